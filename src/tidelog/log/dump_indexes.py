"""The lines of the index files, and whether each index agrees with the log beside it.

An offset index agrees if at every position it names a batch starts whose last offset is the
one it names. A time index agrees if the batch with the offset it names has the time it names
as its latest, and no batch before it has a later one: then no lookup by time can miss a
record. An index of aborted transactions agrees if each of them ends in an abort marker.
"""

from collections.abc import Callable, Iterator
from struct import Struct
from typing import Final

from tidelog.base.errors import BadValue, KafkaError
from tidelog.base.ports import Disk, File
from tidelog.log import txn_index
from tidelog.log.dump_options import DumpOptions
from tidelog.log.dump_text import Problem
from tidelog.log.dump_walk import LogWalk, header_at, only_zeros
from tidelog.log.files import LOG, read_whole
from tidelog.log.index import OFFSET_ENTRY, TIME_ENTRY
from tidelog.records.batch import BatchHeader
from tidelog.records.control import read_end_transaction

_CHUNK_ENTRIES: Final = 8192

Check = Callable[[int, int], str | None]
"""Given an entry, with its offset made absolute: what is wrong with it."""


class EntryWalk:
    """The entries of an index up to a zero-filled tail; `problem` says why it stopped before."""

    def __init__(self, file: File, entry: Struct) -> None:
        self._file = file
        self._entry = entry
        self._size = file.size()
        self.zero_bytes = 0
        self.problem: str | None = None

    def __iter__(self) -> Iterator[tuple[int, int]]:
        size = self._entry.size
        position, previous = 0, -1
        while position + size <= self._size:
            chunk = self._file.pread(_CHUNK_ENTRIES * size, position)
            for key, value in self._entry.iter_unpack(chunk[: len(chunk) - len(chunk) % size]):
                if key == 0 and value == 0 and only_zeros(self._file, position, self._size):
                    self.zero_bytes = self._size - position
                    break
                if key <= previous:
                    self.problem = f"{key} follows {previous} at position {position}: must grow"
                    return
                yield key, value
                previous = key
                position += size
            if self.zero_bytes:
                break
        if self._size % size:
            self.problem = f"{self._size} bytes are not a multiple of {size}"


def dump_offset_index(disk: Disk, path: str, options: DumpOptions) -> Iterator[str]:
    def check(offset: int, position: int) -> str | None:
        assert log is not None
        header = header_at(log, position)
        found = -1 if header is None else header.last_offset
        return None if found == offset else f"Index offset: {offset}, log offset: {found}"

    base_offset = _base_offset(path)
    log = _log_beside(disk, path)
    walk = EntryWalk(disk.open(path, "read"), OFFSET_ENTRY)
    entries = ((base_offset + relative, position) for relative, position in walk)
    lines = _entries(path, walk, entries, check if log is not None else None, options)
    for entry in lines:
        yield entry if isinstance(entry, str) else f"offset: {entry[0]} position: {entry[1]}"


def dump_time_index(disk: Disk, path: str, options: DumpOptions) -> Iterator[str]:
    base_offset = _base_offset(path)
    log = _log_beside(disk, path)
    walk = EntryWalk(disk.open(path, "read"), TIME_ENTRY)
    entries = ((timestamp, base_offset + relative) for timestamp, relative in walk)
    check = _TimeCheck(log) if log is not None else None
    for entry in _entries(path, walk, entries, check, options):
        yield entry if isinstance(entry, str) else f"timestamp: {entry[0]} offset: {entry[1]}"


class _TimeCheck:
    """Walks the log along with the index, once."""

    def __init__(self, log: File) -> None:
        self._batches = iter(LogWalk(log, bodies=False))
        self._batch: BatchHeader | None = None
        self._latest_before = -1

    def __call__(self, timestamp: int, offset: int) -> str | None:
        batch = self._batch_with(offset)
        if batch is None or batch.base_offset > offset:
            found = -1 if batch is None else batch.last_offset
            return f"Indexed offset: {offset}, found log offset: {found}"
        if batch.max_timestamp != timestamp:
            return f"Index timestamp: {timestamp}, log timestamp: {batch.max_timestamp}"
        if self._latest_before > timestamp:
            return f"Index timestamp: {timestamp}, a batch before it: {self._latest_before}"
        return None

    def _batch_with(self, offset: int) -> BatchHeader | None:
        while self._batch is None or self._batch.last_offset < offset:
            if self._batch is not None:
                self._latest_before = max(self._latest_before, self._batch.max_timestamp)
            following = next(self._batches, None)
            if following is None:
                return None
            self._batch = following[0]
        return self._batch


def _entries(
    path: str,
    walk: EntryWalk,
    entries: Iterator[tuple[int, int]],
    check: Check | None,
    options: DumpOptions,
) -> Iterator[tuple[int, int] | str]:
    """The entries to be printed, and the lines about them."""
    agrees, found = check is not None, False
    for entry in entries:
        found = True
        wrong = None if check is None else check(*entry)
        if options.prints_indexes:
            yield entry
        if wrong is not None:
            agrees = False
            yield Problem(f"Mismatch in {path}: {wrong}")
    if check is None:
        yield Problem(f"{path}: there is no log beside it to compare it with")
    if walk.problem is not None:
        agrees = False
        yield Problem(f"{path}: {walk.problem}")
    elif not found:
        yield f"{path} is empty."
    if walk.zero_bytes:
        yield f"Found {walk.zero_bytes} zero bytes at the end of {path}: never written"
    if agrees and options.index_sanity_check:
        yield f"{path} passed sanity check."


def dump_txn_index(disk: Disk, path: str, options: DumpOptions) -> Iterator[str]:
    data = read_whole(disk, path)
    aborted = list(txn_index.decode(path, data))
    if options.prints_indexes:
        for entry in aborted:
            yield (
                f"version: {txn_index.VERSION} producerId: {entry.producer_id}"
                f" firstOffset: {entry.first_offset} lastOffset: {entry.last_offset}"
                f" lastStableOffset: {entry.last_stable_offset}"
            )
    problems = list(_txn_index_problems(disk, path, aborted, options))
    rest = memoryview(data)[len(aborted) * txn_index.ENTRY.size :]
    if rest and not any(rest):
        yield f"Found {len(rest)} zero bytes at the end of {path}: never written"
    elif rest:
        problems.append(f"{path}: the last {len(rest)} bytes are not an entry")
    yield from map(Problem, problems)
    if options.index_sanity_check and not problems:
        yield f"{path} passed sanity check."


def _txn_index_problems(
    disk: Disk, path: str, aborted: list[txn_index.AbortedTransaction], options: DumpOptions
) -> Iterator[str]:
    if options.prints_indexes:
        return
    log = _log_beside(disk, path)
    if log is None:
        yield f"{path}: there is no log beside it to compare it with"
        return
    wanted = {(entry.last_offset, entry.producer_id) for entry in aborted}
    for header, data in LogWalk(log):
        if header.is_control and data and _is_abort(data):
            wanted.discard((header.base_offset, header.producer_id))
    for offset, producer_id in sorted(wanted):
        yield f"Mismatch in {path}: no abort marker of producer {producer_id} at offset {offset}"


def _is_abort(data: memoryview) -> bool:
    try:
        marker = read_end_transaction(data)
    except KafkaError:
        return False
    return marker is not None and not marker.committed


def _base_offset(path: str) -> int:
    stem = path.rpartition("/")[2].partition(".")[0]
    if not (stem.isascii() and stem.isdigit()):
        raise BadValue(f"{path}: an index is named by the first offset of its log, in 20 digits")
    return int(stem)


def _log_beside(disk: Disk, path: str) -> File | None:
    """The log with the same name, and with the same `.deleted`, `.cleaned` or `.swap` behind."""
    folder, slash, name = path.rpartition("/")
    stem, _, endings = name.partition(".")
    _, dot, mark = endings.partition(".")
    log_path = f"{folder}{slash}{stem}{LOG}{dot}{mark}"
    return disk.open(log_path, "read") if disk.stat(log_path) is not None else None
