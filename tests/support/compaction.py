"""A folder of segments to compact, and compaction written down once more in plain Python.

`Folder` appends batches of every kind, keeps the transaction indexes a broker would, runs
`clean` and puts its result in place. `expected_batches` is the oracle: the same rules with
a dict, a record at a time.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tidelog.base.log_settings import LogSettings
from tidelog.base.ports import Disk
from tidelog.log import txn_index
from tidelog.log.cleaning import clean
from tidelog.log.files import CLEANED, LOG, SEGMENT_KINDS, TXN_INDEX, OpenFiles, file_name
from tidelog.log.index import OFFSET_ENTRY, TIME_ENTRY, entries_of
from tidelog.log.producers import Producers
from tidelog.log.replay import note_batch
from tidelog.log.segment import Segment
from tidelog.log.txn_index import AbortedTransaction
from tidelog.records.batch import BatchHeader, check_stored, read_header, walk
from tidelog.records.control import (
    ControlType,
    EndTransaction,
    control_type,
    encode_end_transaction,
)
from tidelog.records.reference import Record, encode_batch, read_records

FOLDER = "/orders-0"
NOW = 1_700_000_000_000
RETENTION_MS = 1_000
SETTINGS = LogSettings(index_interval_bytes=150, index_bytes_max=1 << 20)


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch as it lies in a log, with what its header and its records say."""

    header: BatchHeader
    data: bytes

    @property
    def records(self) -> list[Record]:
        return list(read_records(self.data, verify_crc=True))

    @property
    def said(self) -> tuple[Any, ...]:
        """Everything but sizes, checksum and the base timestamp that no horizon hides in."""
        header = self.header._replace(length=0, crc=0, base_timestamp=0)
        return header, self.header.delete_horizon_ms, self.records


def read_batches(data: bytes) -> list[Batch]:
    found = []
    for position, header in walk(data):
        check_stored(data, position)
        found.append(Batch(header, data[position : position + header.size]))
    assert sum(batch.header.size for batch in found) == len(data), "nothing lies between batches"
    return found


@dataclass(slots=True)
class Folder:
    disk: Disk
    path: str = FOLDER
    next_offset: int = 0
    bases: list[int] = field(default_factory=lambda: [0])
    producers: Producers = field(default_factory=Producers)
    aborted: list[AbortedTransaction] = field(default_factory=list)
    now_ms: int = NOW

    def __post_init__(self) -> None:
        self.disk.make_folder(self.path)
        self._write(0, LOG, b"")

    # -- what a broker does

    def append(self, pairs: Iterable[tuple[bytes | None, bytes | None]], **fields: Any) -> Batch:
        """Appends a batch of keys and values; None as value is a tombstone."""
        self.now_ms += 10
        base = self.next_offset
        records = [
            Record(offset=base + index, timestamp=self.now_ms - index, key=key, value=value)
            for index, (key, value) in enumerate(pairs)
        ]
        return self.append_bytes(bytes(encode_batch(records, base_offset=base, **fields)))

    def end_transaction(self, producer_id: int, *, committed: bool, epoch: int = 0) -> Batch:
        self.now_ms += 10
        marker = EndTransaction(
            producer_id=producer_id, producer_epoch=epoch, committed=committed, coordinator_epoch=1
        )
        return self.append_bytes(
            bytes(
                encode_end_transaction(
                    marker, timestamp=self.now_ms, base_offset=self.next_offset, leader_epoch=3
                )
            )
        )

    def append_bytes(self, data: bytes) -> Batch:
        header = read_header(data)
        self._write(self.bases[-1], LOG, self.log(self.bases[-1]) + data)
        entry = note_batch(self.producers, header, data)
        if entry is not None:
            self.aborted.append(entry)
            here = [e for e in self.aborted if e.last_offset >= self.bases[-1]]
            self._write(self.bases[-1], TXN_INDEX, txn_index.encode(here))
        self.next_offset = header.next_offset
        return Batch(header, data)

    def roll(self) -> None:
        if self.next_offset > self.bases[-1]:
            self.bases.append(self.next_offset)
            self._write(self.bases[-1], LOG, b"")

    # -- compaction

    def closed(self, below: int) -> tuple[list[int], int]:
        """The bases of the segments that end at or below an offset, and where the last ends."""
        ends = dict(zip(self.bases, self.bases[1:], strict=False))
        closed = [base for base, end in ends.items() if end <= below]
        return closed, ends[closed[-1]] if closed else 0

    def argument(self, first_dirty: int = 0, **changes: Any) -> dict[str, Any]:
        unstable = self.producers.first_unstable_offset
        self.producers.committed_up_to(self.next_offset)
        unstable = self.producers.first_unstable_offset
        closed, upper = self.closed(self.next_offset if unstable is None else unstable)
        return {
            "folder": self.path,
            "segments": [{"base": base, "size": len(self.log(base))} for base in closed],
            "first_dirty": first_dirty,
            "upper": upper,
            "map_bytes": 1 << 16,
            "load_factor": 0.9,
            "seed": "00112233445566778899aabbccddeeff",
            "max_segment_bytes": 1 << 20,
            "max_index_bytes": 1 << 20,
            "index_interval_bytes": SETTINGS.index_interval_bytes,
            "delete_retention_ms": RETENTION_MS,
            "now_ms": self.now_ms,
            "active_producers": [],
            "raised_epochs": [],
            "max_batch_bytes": 1 << 20,
        } | changes

    def clean(self, first_dirty: int = 0, **changes: Any) -> dict[str, Any]:
        """Compacts, checks what no compaction may break, and puts the result in place."""
        result = clean(self.disk, self.argument(first_dirty, **changes))
        for group in result["groups"]:
            self._check_group(group)
        for group in result["groups"]:
            self._swap_in(group)
        return result

    def _check_group(self, group: dict[str, Any]) -> None:
        before = [batch for base in group["replaces"] for batch in read_batches(self.log(base))]
        data = self._read(group["base"], LOG + CLEANED)
        after = read_batches(data)
        assert len(data) == group["size"]
        if before:
            assert after[-1].header.last_offset == before[-1].header.last_offset
        segment = self.rebuilt(group["base"])
        for index, kind, entry in (
            (segment.offset_index, ".index", OFFSET_ENTRY),
            (segment.time_index, ".timeindex", TIME_ENTRY),
        ):
            written = self._read(group["base"], kind + CLEANED)
            assert entries_of(kind, written, entry) == index.entries()

    def rebuilt(self, base: int) -> Segment:
        """The cleaned segment with the indexes that the log engine makes for it."""
        disk, path = self.disk, f"{self.path}/rebuilt"
        disk.make_folder(path)
        file = disk.open(f"{path}/{file_name(base, LOG)}", "create")
        file.truncate(0)
        file.pwrite(self._read(base, LOG + CLEANED), 0)
        segment = Segment(path, base, SETTINGS, OpenFiles(disk, 10))
        segment.size = file.size()
        segment.rebuild_indexes(disk)
        return segment

    def _swap_in(self, group: dict[str, Any]) -> None:
        for base in group["replaces"]:
            for kind in SEGMENT_KINDS:
                if self.disk.stat(self._path(base, kind)) is not None:
                    self.disk.remove(self._path(base, kind))
            self.bases.remove(base)
        self.bases = sorted([*self.bases, group["base"]])
        for kind in SEGMENT_KINDS:
            source = self._path(group["base"], kind + CLEANED)
            if self.disk.stat(source) is not None:
                self.disk.rename(source, self._path(group["base"], kind))
        here = set(group["replaces"])
        last = max(here)
        ends = [base for base in self.bases if base > last]
        kept = self.index_entries(group["base"])
        start, end = group["base"], ends[0] if ends else self.next_offset
        self.aborted = [
            entry for entry in self.aborted if not start <= entry.last_offset < end or entry in kept
        ]

    # -- reading

    def log(self, base: int) -> bytes:
        return self._read(base, LOG)

    def index_entries(self, base: int) -> list[AbortedTransaction]:
        path = self._path(base, TXN_INDEX)
        if self.disk.stat(path) is None:
            return []
        return list(txn_index.decode(path, self._read(base, TXN_INDEX)))

    def batches(self) -> list[Batch]:
        return [batch for base in self.bases for batch in read_batches(self.log(base))]

    def committed(self) -> Iterator[Record]:
        """What a read_committed reader is shown."""
        for batch in self.batches():
            if not batch.header.is_control and not is_aborted(batch.header, self.aborted):
                yield from batch.records

    def state(self) -> dict[bytes, Record]:
        """Replayed to a map: the last record of every key that is not deleted (V16)."""
        last = {record.key: record for record in self.committed() if record.key is not None}
        return {key: record for key, record in last.items() if record.value is not None}

    def _path(self, base: int, kind: str) -> str:
        return f"{self.path}/{file_name(base, kind)}"

    def _read(self, base: int, kind: str) -> bytes:
        file = self.disk.open(self._path(base, kind), "read")
        return file.pread(file.size(), 0)

    def _write(self, base: int, kind: str, data: bytes) -> None:
        file = self.disk.open(self._path(base, kind), "create")
        file.truncate(0)
        file.pwrite(data, 0)


def is_aborted(header: BatchHeader, aborted: Iterable[AbortedTransaction]) -> bool:
    return header.is_transactional and any(
        entry.producer_id == header.producer_id
        and entry.first_offset <= header.base_offset <= entry.last_offset
        for entry in aborted
    )


def last_offsets(
    batches: Iterable[Batch], first: int, end: int, aborted: list[AbortedTransaction]
) -> dict[bytes, int]:
    found: dict[bytes, int] = {}
    for batch in batches:
        if batch.header.is_control or is_aborted(batch.header, aborted):
            continue
        for record in batch.records:
            if record.key is not None and first <= record.offset < end:
                found[record.key] = record.offset
    return found


@dataclass(slots=True)
class Oracle:
    """The rules of compaction, a record at a time."""

    last: dict[bytes, int]
    end: int
    now_ms: int
    active: set[int]
    aborted: list[AbortedTransaction]
    with_data: set[int] = field(default_factory=set)
    raised: set[tuple[int, int]] = field(default_factory=set)

    def filter(self, batches: list[Batch]) -> list[tuple[Any, ...]]:
        """What is left of the batches of one group, as `Batch.said` says it."""
        left = (self._left(batch, is_last=batch is batches[-1]) for batch in batches)
        return [said for said in left if said is not None]

    def _left(self, batch: Batch, *, is_last: bool) -> tuple[Any, ...] | None:
        header = batch.header
        expired = header.delete_horizon_ms is not None and header.delete_horizon_ms <= self.now_ms
        if header.is_control:
            kept, wants_horizon = self._marker(batch, expired)
        else:
            kept = self._data(batch, expired)
            wants_horizon = any(record.value is None for record in kept)
        if header.base_offset >= self.end:
            return batch.said
        if not kept:
            stays = is_last or (header.producer_id >= 0 and header.last_offset in self.active)
            return self._empty(header) if stays else None
        horizon_ms = header.delete_horizon_ms
        attributes = header.attributes
        if wants_horizon and horizon_ms is None:
            horizon_ms, attributes = self.now_ms + RETENTION_MS, attributes | 0x40
        latest = max(record.timestamp for record in kept)
        said = header._replace(
            length=0,
            crc=0,
            base_timestamp=0,
            attributes=attributes,
            record_count=len(kept),
            max_timestamp=header.max_timestamp if header.is_log_append_time else latest,
        )
        return said, horizon_ms, kept

    def _marker(self, batch: Batch, expired: bool) -> tuple[list[Record], bool]:
        if not batch.records:
            return [], False
        had_data = batch.header.producer_id in self.with_data
        self.with_data.discard(batch.header.producer_id)
        assert control_type(batch.records[0].key) in (ControlType.ABORT, ControlType.COMMIT)
        expired &= (batch.header.producer_id, batch.header.producer_epoch) not in self.raised
        return ([], False) if not had_data and expired else (batch.records, not had_data)

    def _data(self, batch: Batch, expired: bool) -> list[Record]:
        if batch.header.is_transactional:
            self.with_data.add(batch.header.producer_id)
        if is_aborted(batch.header, self.aborted):
            return []
        return [
            record
            for record in batch.records
            if record.key is not None
            and record.offset >= self.last.get(record.key, -1)
            and not (expired and record.value is None)
        ]

    def _empty(self, header: BatchHeader) -> tuple[Any, ...]:
        plain = header.attributes & ~0x47
        said = header._replace(length=0, crc=0, base_timestamp=0, attributes=plain, record_count=0)
        return said, None, []
