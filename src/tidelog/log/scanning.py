"""The check of a segment file after an unclean stop, as a child process does it (S9).

`scan` reads the batches of one `.log` file and stops at the first that a crash may have
left behind: torn, zeros, a bad checksum, offsets out of order. It answers with how much is
good and with what the broker needs to go on: leader epochs, and the few batches that the
producer state is made of. Where it read the whole file it writes both indexes anew, as
`.rebuilt`. What was made durable before (`trusted_upto`) is only stopped at where the
next batch cannot be found.
"""

from collections.abc import Mapping
from typing import Any, Final

from tidelog.base.ports import Buffer, Disk, File
from tidelog.log.chunks import CHUNK_BYTES, Source
from tidelog.log.files import LOG, OFFSET_INDEX, REBUILT, TIME_INDEX, file_name
from tidelog.records.arrays import Int64s, zeros
from tidelog.records.batch import CRC_START, HEADER_SIZE, read_header
from tidelog.records.checksum import crc32c
from tidelog.records.indexer import (
    MAX_TIMESTAMP,
    MAX_TIMESTAMP_OFFSET,
    POSITION,
    new_indexer,
    take_offset_entries,
    take_time_entries,
)
from tidelog.records.native import Call, close_indexer, move_producers, scan_batches
from tidelog.records.picker import (
    DATA_ROW,
    PRODUCERS,
    last_batches,
    new_epoch_starts,
    new_picker,
    take_epochs,
    take_picked,
)
from tidelog.records.stops import (
    AT,
    BAD_CRC,
    BAD_MAGIC,
    BATCHES,
    DAMAGED,
    DONE,
    INCOMPLETE,
    NEXT_OFFSET,
    OUTPUT_FULL,
    PROBLEMS,
    REASON,
    SCAN_STOP_FIELDS,
    TRUSTED_UPTO,
    VOUCHED,
)

_ROOM: Final = 1 << 14
_FEW_PRODUCERS: Final = 1 << 10
_BATCH_START_BYTES: Final = 1024


class Scan:
    """One run over one file."""

    def __init__(self, source: Source, argument: Mapping[str, Any]) -> None:
        self.source = source
        self.stop: Int64s = zeros(SCAN_STOP_FIELDS)
        self.stop[NEXT_OFFSET] = max(argument["base"], argument["expected_offset"])
        self.stop[TRUSTED_UPTO] = argument.get("trusted_upto", 0)
        self.indexer = new_indexer(
            argument["base"], argument["index_interval_bytes"], argument["max_index_bytes"], _ROOM
        )
        self.indexer.state[POSITION] = argument["from_position"]
        self.picker = new_picker(_FEW_PRODUCERS, _ROOM)
        self.epoch_starts = new_epoch_starts(_ROOM)
        self._scan = self._prepared()
        self.picked: list[list[int]] = []
        self.epochs: list[list[int]] = []
        self.offset_entries = bytearray()
        self.time_entries = bytearray()

    def _prepared(self) -> Call:
        return scan_batches.prepared(self.indexer, self.picker, self.epoch_starts, self.stop)

    @property
    def position(self) -> int:
        return self.indexer.state[POSITION]

    def run(self) -> str | None:
        """Goes through the file; why it stopped before the end, if it did."""
        while self.position < self.source.size:
            buffer = self.source.read(self.position, CHUNK_BYTES)
            self.stop[AT] = 0
            reason = self._take(buffer)
            if reason == INCOMPLETE and self.stop[AT] == 0:
                reason = self._take_large(buffer)
            if reason != DONE and (reason != INCOMPLETE or self.stop[AT] == 0):
                return self._explain(buffer, reason)
        return None

    def _take(self, buffer: memoryview) -> int:
        while True:
            self._scan(buffer)
            if self.stop[REASON] != OUTPUT_FULL:
                return self.stop[REASON]
            self.collect()

    def _take_large(self, buffer: memoryview) -> int:
        """A batch that is larger than a buffer: its checksum is made piece by piece."""
        if len(buffer) < HEADER_SIZE:
            return INCOMPLETE
        header = read_header(buffer)
        end = self.position + header.size
        if end > self.source.size:
            return INCOMPLETE
        crc, at = 0, self.position + CRC_START
        while at < end:
            piece = self.source.read(at, min(CHUNK_BYTES, end - at))
            crc = crc32c(piece, crc)
            at += len(piece)
        if crc != header.crc and header.next_offset > self.stop[TRUSTED_UPTO]:
            return BAD_CRC
        damaged = self.stop[DAMAGED] + (crc != header.crc)
        self.stop[VOUCHED] = header.size
        reason = self._take(buffer[:_BATCH_START_BYTES])
        self.stop[VOUCHED] = 0
        self.stop[DAMAGED] = max(damaged, self.stop[DAMAGED])
        return reason

    def _explain(self, buffer: memoryview, reason: int) -> str:
        start = buffer[self.stop[AT] :][:HEADER_SIZE]
        words = "torn" if reason == INCOMPLETE else PROBLEMS[reason]
        if reason in (INCOMPLETE, BAD_MAGIC) and not any(start):
            words = "zeros"
        return f"{words} at position {self.position}"

    def collect(self) -> None:
        """Takes out what has been collected, and makes room for more producers."""
        self.offset_entries += take_offset_entries(self.indexer)
        self.time_entries += take_time_entries(self.indexer)
        self.picked += take_picked(self.picker)
        self.epochs += take_epochs(self.epoch_starts)
        slots = len(self.picker.entries)
        if 2 * self.picker.counts[PRODUCERS] >= slots:
            larger = new_picker(2 * slots, _ROOM)
            move_producers(self.picker, larger)
            self.picker = larger
            self._scan = self._prepared()

    def producer_batches(self) -> list[list[int]]:
        """The batches that the producer state needs, in their order; a marker's list has two
        more numbers, its type and its coordinator's epoch."""
        found = {row[0]: row for row in (*last_batches(self.picker), *self.picked)}
        rows = [found[position] for position in sorted(found)]
        return [row if row[DATA_ROW] >= 0 else row[:DATA_ROW] for row in rows]


def scan(disk: Disk, argument: Mapping[str, Any]) -> dict[str, Any]:
    path = f"{argument['folder']}/{file_name(argument['base'], LOG)}"
    source = Source(path=path, file=disk.open(path, "read"), size=argument["size"])
    run = Scan(source, argument)
    reason = run.run()
    close_indexer(run.indexer)
    run.collect()
    if argument["from_position"] == 0:
        _write(disk, path, OFFSET_INDEX, run.offset_entries)
        _write(disk, path, TIME_INDEX, run.time_entries)
    return {
        "valid_bytes": run.position,
        "next_offset": run.stop[NEXT_OFFSET],
        "reason": reason,
        "batches": run.stop[BATCHES],
        "damaged": run.stop[DAMAGED],
        "max_timestamp": run.indexer.state[MAX_TIMESTAMP],
        "max_timestamp_offset": run.indexer.state[MAX_TIMESTAMP_OFFSET],
        "epochs": run.epochs,
        "producer_batches": run.producer_batches(),
    }


def _write(disk: Disk, log_path: str, kind: str, data: Buffer) -> None:
    file: File = disk.open(log_path.removesuffix(LOG) + kind + REBUILT, "create")
    file.truncate(0)
    file.pwrite(data, 0)
    file.sync()
    file.close()
