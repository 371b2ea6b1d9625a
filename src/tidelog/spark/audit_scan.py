"""Reading segment files where Spark's executors run: batches and records as Arrow, damage as rows.

A task is a row that names a segment file. Its batches come out as their header fields, checked
by their checksum, its records whole, and whether they were aborted. What is wrong comes out as a
row with a `problem`, at the offset that was expected there: whether it matters is for the audit to
say.
"""

import os
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from tidelog.base.errors import KafkaError
from tidelog.log.txn_index import AbortedTransaction
from tidelog.records.batch import TRANSACTIONAL
from tidelog.records.column_headers import BatchTable, size_of_batch
from tidelog.records.columns import ALL_COLUMNS, SCHEMA, Wanted, decode_stream
from tidelog.spark.audited_files import aborted_from, open_segment

TASKS: Final = "partition int, broker string, base_offset bigint, path string"
BATCHES: Final = (
    "partition int, broker string, base_offset bigint, next_offset bigint, leader_epoch int, "
    "size int, crc bigint, records int, producer_id bigint, producer_epoch int, "
    "base_sequence int, problem string"
)
RECORDS: Final = (
    "partition int, broker string, offset bigint, timestamp bigint, timestamp_type int, "
    "key binary, value binary, headers array<struct<key string, value binary>>, "
    "is_aborted boolean, problem string"
)
VANISHED: Final = "the file has gone"
PIECE_BYTES: Final = 8 << 20

_BATCHES_IN_ARROW: Final = pa.schema(
    [
        ("partition", pa.int32()),
        ("broker", pa.string()),
        ("base_offset", pa.int64()),
        ("next_offset", pa.int64()),
        ("leader_epoch", pa.int32()),
        ("size", pa.int32()),
        ("crc", pa.int64()),
        ("records", pa.int32()),
        ("producer_id", pa.int64()),
        ("producer_epoch", pa.int32()),
        ("base_sequence", pa.int32()),
        ("problem", pa.string()),
    ]
)
_RECORDS_IN_ARROW: Final = pa.schema(
    [
        ("partition", pa.int32()),
        ("broker", pa.string()),
        *((field.name, field.type) for field in SCHEMA),
        ("is_aborted", pa.bool_()),
        ("problem", pa.string()),
    ]
)


class Piece(NamedTuple):
    """Good batches that follow one another, or what is wrong where one should be."""

    data: memoryview
    table: BatchTable | None
    offset: int
    problem: str | None


def pieces(path: str, base_offset: int) -> Iterator[Piece]:
    """A segment file from its beginning to its end, or to where nothing can be made of it."""
    descriptor = open_segment(path)
    if descriptor is None:
        yield Piece(memoryview(b""), None, base_offset, f"{path}: {VANISHED}")
        return
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        yield from _pieces(file, path, base_offset)


def _pieces(file: Any, path: str, next_offset: int) -> Iterator[Piece]:
    data, position = b"", 0
    while True:
        read = file.read(max(PIECE_BYTES, len(data)))
        data += read
        if not data:
            return
        table = BatchTable(data, next_offset)
        next_offset = table.next_offset
        if len(table.headers):
            yield Piece(memoryview(data)[: table.end], table, next_offset, None)
        problem = table.problem or (None if read else "the file ends in the middle of a batch")
        passed = table.end
        if problem is not None:
            at = position + table.end
            yield Piece(memoryview(b""), None, next_offset, f"{path}: at position {at}: {problem}")
            if not table.can_be_passed:
                return
            passed += size_of_batch(data, table.end)
        data, position = data[passed:], position + passed


def scan_batches(tasks: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for task in _rows(tasks):
        for piece in pieces(task["path"], task["base_offset"]):
            yield _problem(task, piece) if piece.table is None else _batches(task, piece.table)


def scan_records(tasks: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What is wrong with a batch is what `scan_batches` tells; here it is a file that has gone
    since, and records that cannot be read although their checksum is right."""
    wanted = Wanted()
    for task in _rows(tasks):
        aborted = _Aborted(aborted_from(task["path"], task["base_offset"]))
        for piece in pieces(task["path"], task["base_offset"]):
            if piece.problem is not None and piece.problem.endswith(VANISHED):
                yield _no_record(task, piece.offset, piece.problem)
            try:
                for found in decode_stream(piece.data, wanted, chunk_bytes=PIECE_BYTES):
                    yield _records(task, found, aborted.among(piece, found))
            except KafkaError as error:
                yield _no_record(task, _first_offset(piece), f"{task['path']}: {error.message}")


def _first_offset(piece: Piece) -> int:
    """Of batches that follow one another: what is wrong is there or further on."""
    assert piece.table is not None, "only what holds batches is decoded"
    return int(piece.table.headers["base_offset"][0])


def _rows(tasks: Iterable[pa.RecordBatch]) -> Iterator[dict[str, Any]]:
    for batch in tasks:
        yield from batch.to_pylist()


def _batches(task: dict[str, Any], table: BatchTable) -> pa.RecordBatch:
    headers = table.headers
    bases = headers["base_offset"].astype("i8")
    columns: dict[str, Any] = {
        "base_offset": bases,
        "next_offset": bases + headers["last_offset_delta"] + 1,
        "leader_epoch": headers["leader_epoch"].astype("i4"),
        "size": headers["length"].astype("i4") + 12,
        "crc": headers["crc"].astype("i8"),
        "records": headers["count"].astype("i4"),
        "producer_id": headers["producer_id"].astype("i8"),
        "producer_epoch": headers["producer_epoch"].astype("i4"),
        "base_sequence": headers["base_sequence"].astype("i4"),
    }
    return _framed(task, len(headers), columns, _BATCHES_IN_ARROW)


def _problem(task: dict[str, Any], piece: Piece) -> pa.RecordBatch:
    columns = {
        "base_offset": [piece.offset],
        "next_offset": [piece.offset],
        "problem": [piece.problem],
    }
    return _framed(task, 1, columns, _BATCHES_IN_ARROW)


class _Aborted:
    """Transactions, by producer: those of one follow one another."""

    def __init__(self, transactions: Iterable[AbortedTransaction]) -> None:
        by_producer: dict[int, list[tuple[int, int]]] = {}
        for one in transactions:
            places = by_producer.setdefault(one.producer_id, [])
            places.append((one.first_offset, one.last_offset))
        self._places = {
            producer: np.array(sorted(places), np.int64) for producer, places in by_producer.items()
        }

    def among(self, piece: Piece, found: pa.RecordBatch) -> Any:
        """Whether each record was aborted that was found in these batches."""
        if piece.table is None or not self._places:
            return np.zeros(found.num_rows, bool)
        headers = piece.table.headers
        bases = headers["base_offset"].astype("i8")
        is_transactional = (headers["attributes"] & TRANSACTIONAL) != 0
        are = np.zeros(len(headers), bool)
        for producer in np.unique(headers["producer_id"][is_transactional]).tolist():
            places = self._places.get(producer)
            if places is not None:
                theirs = np.flatnonzero(is_transactional & (headers["producer_id"] == producer))
                at = np.searchsorted(places[:, 0], bases[theirs], side="right") - 1
                are[theirs] = (at >= 0) & (bases[theirs] <= places[at, 1])
        return are[np.searchsorted(bases, np.asarray(found.column("offset")), side="right") - 1]


def _records(task: dict[str, Any], found: pa.RecordBatch, are_aborted: Any) -> pa.RecordBatch:
    columns = {name: found.column(name) for name in ALL_COLUMNS}
    columns["is_aborted"] = are_aborted
    return _framed(task, found.num_rows, columns, _RECORDS_IN_ARROW)


def _no_record(task: dict[str, Any], offset: int, problem: str) -> pa.RecordBatch:
    return _framed(task, 1, {"offset": [offset], "problem": [problem]}, _RECORDS_IN_ARROW)


def _framed(
    task: dict[str, Any], count: int, columns: dict[str, Any], schema: pa.Schema
) -> pa.RecordBatch:
    """With partition and broker in front, and nulls for what there is not."""
    named = {
        "partition": [task["partition"]] * count,
        "broker": [task["broker"]] * count,
        **columns,
    }
    arrays = [
        pa.array(named[field.name], field.type)
        if field.name in named
        else pa.nulls(count, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
