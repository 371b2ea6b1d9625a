"""Logs for the benchmarks of cleaning and scanning: idempotent batches of keyed records.

All batches of a log have one shape, 170 bytes with one record or 16 KB with 150; only
offsets, keys and checksums differ. Keys are random. With one record a key on average,
compaction leaves two thirds of the records and every lookup in its map is a cache miss: the
worst case. With ten it leaves a tenth, as in a topic that is worth compacting.
"""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from struct import pack_into
from time import perf_counter
from typing import Any

import numpy as np
from crc32c import crc32c

from tidelog.records.reference import Record, encode_batch

Row = dict[str, Any]

KEY = b"................"
VALUE_BYTES = 82
ROOT = Path(__file__).parent.parent / ".bench"
SEGMENT_BYTES = 128 << 20
LOT = 2048


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedLog:
    folder: Path
    segments: list[dict[str, int]]
    end: int
    batches: int

    @property
    def size(self) -> int:
        return sum(segment["size"] for segment in self.segments)

    def path(self, base: int) -> Path:
        return self.folder / f"{base:020d}.log"


@contextmanager
def keyed_log(
    name: str, megabytes: int, records_in_batch: int, records_a_key: int = 1
) -> Iterator[KeyedLog]:
    folder = ROOT / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        yield _write(folder, megabytes << 20, records_in_batch, records_a_key)
    finally:
        shutil.rmtree(folder)


def _write(folder: Path, size: int, count: int, records_a_key: int) -> KeyedLog:
    shape = _shape(count)
    batches = size // len(shape)
    different = batches * count // records_a_key
    keys = np.random.default_rng(1).integers(0, different, batches * count)
    segments = []
    per_segment = SEGMENT_BYTES // len(shape)
    for first in range(0, batches, per_segment):
        last = min(batches, first + per_segment)
        with open(folder / f"{first * count:020d}.log", "wb") as file:
            for lot in range(first, last, LOT):
                file.write(_lot(shape, keys, lot, min(last, lot + LOT)))
        segments.append({"base": first * count, "size": (last - first) * len(shape)})
    return KeyedLog(folder=folder, segments=segments, end=batches * count, batches=batches)


def _shape(count: int) -> bytes:
    records = [
        Record(offset=i, timestamp=1_700_000_000_000 + i, key=KEY, value=bytes(VALUE_BYTES))
        for i in range(count)
    ]
    return bytes(encode_batch(records, producer_id=1, producer_epoch=0, base_sequence=0))


def _lot(shape: bytes, keys: Any, first: int, last: int) -> bytes:
    places = [at for at in range(len(shape)) if shape.startswith(KEY, at)]
    count = len(places)
    rows = np.tile(np.frombuffer(shape, np.uint8), (last - first, 1))
    offsets = (np.arange(first, last) * count).astype(">i8")
    rows[:, :8] = offsets.view(np.uint8).reshape(-1, 8)
    lot = keys[first * count : last * count].reshape(-1, count)
    for index, place in enumerate(places):
        column = np.ascontiguousarray(lot[:, index])
        rows[:, place : place + 8] = column.view(np.uint8).reshape(-1, 8)
    for one in rows:
        pack_into(">I", one.data, 17, crc32c(one.data[21:]))
    return rows.tobytes()


def seconds(work: Callable[[], object]) -> float:
    started = perf_counter()
    work()
    return perf_counter() - started


def ratio(
    work: Callable[[], object], bare: Callable[[], object], rounds: int
) -> tuple[float, float]:
    """How long `work` takes, in times of what the bare one does, and in seconds: medians of runs
    in turns, the order changing."""
    work()
    bare()
    pairs = []
    for number in range(rounds):
        order = (work, bare) if number % 2 else (bare, work)
        took = {one: seconds(one) for one in order}
        pairs.append((took[work] / took[bare], took[work]))
    return median(pair[0] for pair in pairs), median(pair[1] for pair in pairs)


def row(name: str, value: float, unit: str, target: str = "") -> Row:
    return {"name": name, "value": round(value, 2), "unit": unit, "target": target}
