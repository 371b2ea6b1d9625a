"""The recovery scan against reading and checksumming the same bytes.

Two bare loops: one makes the CRC-32C of whole pieces of 1 MiB, the least that can be done;
the other of each batch by itself, at positions it is given, which is what a check of batches
cannot avoid.
"""

from functools import partial
from typing import Any

import numpy as np
from crc32c import crc32c
from numba import types

from bench.keyed_logs import KeyedLog, Row, keyed_log, ratio, row
from tidelog.log.scanning import scan
from tidelog.records.batch import CRC_START
from tidelog.records.crc_kernel import crc32c as crc_in_kernel
from tidelog.records.kernels import BYTES, kernel
from tidelog.world.real.disk import RealDisk

MEGABYTES = 256
ROUNDS = 7
PIECE = 1 << 20


@kernel(types.int64(BYTES, types.int64))
def checksum_batches(buffer: Any, size: int) -> int:
    total = 0
    for position in range(0, len(buffer) - size + 1, size):
        total += int(crc_in_kernel(buffer, position + CRC_START, position + size))
    return total


def check(log: KeyedLog) -> None:
    batches = 0
    for segment in log.segments:
        asked = {
            "folder": str(log.folder),
            "base": segment["base"],
            "from_position": 0,
            "size": segment["size"],
            "expected_offset": segment["base"],
            "index_interval_bytes": 4096,
            "max_index_bytes": 10 << 20,
        }
        result = scan(RealDisk(), asked)
        assert result["reason"] is None, result["reason"]
        batches += result["batches"]
    assert batches == log.batches


def pieces(log: KeyedLog) -> None:
    for segment in log.segments:
        with open(log.path(segment["base"]), "rb") as file:
            while piece := file.read(PIECE):
                crc32c(piece)


def single_batches(log: KeyedLog) -> None:
    size = log.size // log.batches
    whole = PIECE // size * size
    for segment in log.segments:
        with open(log.path(segment["base"]), "rb") as file:
            while piece := file.read(whole):
                checksum_batches(np.frombuffer(piece, np.uint8), size)


def speed(name: str, records_in_batch: int) -> list[Row]:
    with keyed_log("scanning", MEGABYTES, records_in_batch) as log:
        of_pieces, _ = ratio(partial(check, log), partial(pieces, log), ROUNDS)
        of_batches, took = ratio(partial(check, log), partial(single_batches, log), ROUNDS)
        target = ">= 6" if records_in_batch == 1 else ""
        return [
            row(f"scan, {name}", of_batches, "x read, crc a batch", "<= 2"),
            row(f"scan, {name}", of_pieces, "x read, crc in bulk"),
            row(f"scan, {name}", log.batches / took / 1e6, "M batches/s", target),
            row(f"scan, {name}", log.size / took / 1e6, "MB/s"),
        ]


def run() -> list[Row]:
    return [*speed("170-byte batches", 1), *speed("16 KB batches", 150)]


if __name__ == "__main__":
    for measured in run():
        print("{name:45} {value:8} {unit:20} {target}".format(**measured))
