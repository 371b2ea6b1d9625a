"""How fast records become columns and columns become records, per core.

Rates are per second of CPU time, the median of several rounds after a warm-up, with keys of 10
and values of 90 bytes. `run` gives the rows of the table that `python -m bench` prints.
"""

from collections.abc import Callable
from functools import partial
from statistics import median
from time import process_time
from typing import Any

import numpy as np
import pyarrow as pa

from tidelog.records.batch import read_header, stamp
from tidelog.records.columns import decode, encode
from tidelog.records.compression import NAMES
from tidelog.records.crc_kernel import crc32c
from tidelog.records.partition_kernels import partitions_for

Row = dict[str, Any]

RECORDS = 200_000
ROUNDS = 9
MILLION = 1e6


def sample() -> pa.RecordBatch:
    """Values that compress to about half, as text does."""
    words = np.random.default_rng(7).integers(0, 16, (RECORDS, 90), np.uint8) + 97
    ends = pa.py_buffer(np.arange(0, 90 * RECORDS + 1, 90, dtype=np.int32))
    values = pa.BinaryArray.from_buffers(
        pa.binary(), RECORDS, [None, ends, pa.py_buffer(words.tobytes())]
    )
    keys = pa.array([b"key%07d" % index for index in range(RECORDS)])
    times = pa.array(np.arange(RECORDS, dtype=np.int64) + 1_700_000_000_000)
    return pa.record_batch({"key": keys, "value": values, "timestamp": times})


def as_log(batches: list[bytearray]) -> bytes:
    """The batches one after the other, with the offsets a leader would give them."""
    offset = 0
    for batch in batches:
        stamp(batch, offset, 0)
        offset += read_header(batch).record_count
    return b"".join(batches)


def rate(work: Callable[[], Any], amount: float) -> float:
    """Amount per second of CPU time."""
    work()
    work()
    seconds = []
    for _ in range(ROUNDS):
        started = process_time()
        work()
        seconds.append(process_time() - started)
    return amount / median(seconds)


def row(name: str, value: float, unit: str, target: str = "") -> Row:
    return {"name": name, "value": round(value, 2), "unit": unit, "target": target}


def decoding(rows: pa.RecordBatch) -> list[Row]:
    measured = []
    for codec, name in enumerate(NAMES):
        data = as_log(encode(rows, compression=codec))
        speed = rate(partial(decode, data), RECORDS / MILLION)
        measured.append(row(f"decode to Arrow, {name}", speed, "M records/s", _target(codec, 5)))
    data = as_log(encode(rows))
    checked = rate(lambda: decode(data, verify_crc=True), RECORDS / MILLION)
    values = rate(lambda: decode(data, columns=("offset", "value")), RECORDS / MILLION)
    tiny = as_log(encode(rows.slice(0, 50_000), max_bytes=61 + 111))
    single = rate(lambda: decode(tiny), 50_000 / MILLION)
    return [
        *measured,
        row("decode to Arrow, CRC verified", checked, "M records/s", ">= 5"),
        row("decode to Arrow, offset and value only", values, "M records/s", ">= 5"),
        row("decode to Arrow, one record a batch", single, "M records/s"),
    ]


def encoding(rows: pa.RecordBatch) -> list[Row]:
    measured = []
    for codec, name in enumerate(NAMES):
        speed = rate(partial(encode, rows, compression=codec), RECORDS / MILLION)
        measured.append(row(f"encode from Arrow, {name}", speed, "M records/s", _target(codec, 2)))
    small = rate(lambda: encode(rows, max_bytes=16_384), RECORDS / MILLION)
    return [*measured, row("encode from Arrow, batches of 16 KB", small, "M records/s", ">= 2")]


def _target(codec: int, millions: int) -> str:
    return "" if codec else f">= {millions}"


def run() -> list[Row]:
    rows = sample()
    megabytes = np.random.default_rng(1).integers(0, 256, 16_000_000, np.uint8)
    checksum = rate(lambda: crc32c(megabytes, 0, len(megabytes)), len(megabytes) / 1e9)
    hashing = rate(lambda: partitions_for(rows["key"], 12), RECORDS / MILLION)
    return [
        *decoding(rows),
        *encoding(rows),
        row("CRC-32C inside kernels", checksum, "GB/s"),
        row("partitions of keys (murmur2)", hashing, "M keys/s"),
    ]


if __name__ == "__main__":
    for measured in run():
        print("{name:45} {value:8} {unit:12} {target}".format(**measured))
