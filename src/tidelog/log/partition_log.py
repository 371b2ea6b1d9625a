"""The log of one replica: append and read, as a leader and as a follower.

Offsets are assigned by a leader and kept by a follower. Everything is checked before anything
is changed; state follows what the disk has done. A read is a range of a file, to be sent as
it is.
"""

from bisect import bisect_right
from collections.abc import Sequence
from typing import Final, NamedTuple

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.base.ids import NO_TIMESTAMP
from tidelog.base.ports import Buffer, File
from tidelog.log.files import Warmed
from tidelog.log.followed_batches import check_followed, note_run, run_for
from tidelog.log.log_files import LogFiles
from tidelog.log.producers import FRESH, NO_TRANSACTION, SEQUENCE_MAX
from tidelog.log.scan import RELATIVE_OFFSET_MAX
from tidelog.log.segment import Segment
from tidelog.log.segment_reader import DamagedIndex
from tidelog.log.time_search import Batch, search_in, searching
from tidelog.log.unverified import Unverified
from tidelog.records.batch import (
    COMPRESSION_MASK,
    CONTROL,
    CRC_START,
    DELETE_HORIZON,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    LOG_APPEND_TIME,
    MAGIC,
    OFFSET_LENGTH_EPOCH,
    TRANSACTIONAL,
    ZSTD,
    BatchHeader,
    RawHeader,
    check_produced,
    check_producer,
    check_stored,
    invalid_timestamp,
    read_header,
    stamp,
    stamp_log_append_time,
    unpack_header,
)
from tidelog.records.checksum import crc32c
from tidelog.records.control import read_end_transaction

new_tuple = tuple.__new__
_COPIED_BYTES: Final = 4096
_UNCOMMON_BITS: Final = LOG_APPEND_TIME | CONTROL | DELETE_HORIZON


class Slice(NamedTuple):
    """A range of a log file, to be sent as it is. Holding it holds the file open."""

    file: File
    position: int
    size: int
    unverified: Unverified | None = None
    """What was in the file when it was opened, and may not have been looked at since."""
    left_out: int = 0
    """What there would have been room for of a batch that is not whole: of no use to a reader."""


class PartitionLog(LogFiles):
    # -- append

    def append_as_leader(
        self, batch: bytearray | memoryview, leader_epoch: int, now_ms: int
    ) -> int:
        """Appends one produced batch and returns its first offset. The batch is stamped in
        place. A batch that was appended before is answered with the offset it has."""
        if self.home.failure is not None:
            self.check_online()
        raw = self.checked(batch, now_ms)
        _, length, _, _, _, attributes, delta, _, timestamp, producer_id, epoch, sequence, _ = raw
        if self.settings.timestamp_type_log_append:
            timestamp = now_ms
        if producer_id < 0:
            return self._write_produced(batch, length, delta, timestamp, leader_epoch)
        producer = self.producers.by_id.get(producer_id)
        if (
            producer is None
            or sequence != producer.next_sequence
            or not 0 <= epoch == producer.epoch
            or attributes & TRANSACTIONAL
            or producer.txn_first_offset != NO_TRANSACTION
        ):
            return self._append_produced(batch, timestamp, leader_epoch)
        # The next one of a producer that is known, outside any transaction.
        offset = self._write_produced(batch, length, delta, timestamp, leader_epoch)
        producer.remember((sequence + delta) & SEQUENCE_MAX, offset, offset + delta, timestamp)
        return offset

    def checked(self, batch: bytearray | memoryview, now_ms: int) -> RawHeader:
        """The header of a produced batch; raises what is wrong with that, or with the rest."""
        settings = self.settings
        latest = now_ms + settings.timestamp_after_max_ms
        earliest = now_ms - settings.timestamp_before_max_ms
        size = len(batch)
        raw = unpack_header(batch) if size >= HEADER_SIZE else check_produced(batch, size)
        base_offset, length, _, magic, crc, attributes, delta, first, last, _, _, _, count = raw
        # Copying a little is quicker than a view of it; what is a view already is not copied.
        body = batch if size < _COPIED_BYTES else memoryview(batch)
        if (
            magic != MAGIC
            or size != LENGTH_OVERHEAD + length
            or size > settings.max_message_bytes
            or crc32c(body[CRC_START:]) != crc
            or not 0 < count == delta + 1
            or base_offset
            or (
                attributes and (attributes & _UNCOMMON_BITS or attributes & COMPRESSION_MASK > ZSTD)
            )
            or not earliest <= first <= last <= latest
            or first < -1
        ):
            self._check_closely(batch, now_ms)
        return raw

    def _check_closely(self, batch: Buffer, now_ms: int) -> None:
        """Says what is wrong with a produced batch; nothing may be."""
        settings = self.settings
        raw = check_produced(batch, settings.max_message_bytes)
        if not settings.timestamp_type_log_append:
            self.check_timestamps(raw[5], raw[7], raw[8], now_ms)

    def _append_produced(
        self, batch: bytearray | memoryview, timestamp: int, leader_epoch: int
    ) -> int:
        """Appends the batch of a producer with an id, unless it was appended before."""
        header = read_header(batch)
        check_producer(header.producer_id, header.producer_epoch, header.base_sequence)
        producer = (header.producer_id, header.producer_epoch, header.base_sequence)
        delta, attributes = header.last_offset_delta, header.attributes
        found = self.producers.check(*producer, delta, attributes)
        if found != FRESH:
            return found
        offset = self._write_produced(batch, header.length, delta, timestamp, leader_epoch)
        self.producers.append(*producer, (offset, offset + delta), timestamp, attributes)
        return offset

    def _write_produced(
        self,
        batch: bytearray | memoryview,
        length: int,
        delta: int,
        timestamp: int,
        leader_epoch: int,
    ) -> int:
        """Stamps a checked batch and writes it behind the last; returns its first offset."""
        offset = self.log_end_offset
        last_offset = offset + delta
        size = LENGTH_OVERHEAD + length
        segment = self.segments.active
        position = segment.size
        try:
            if (
                position + size > segment.roll_bytes
                or timestamp - segment.first_timestamp > segment.roll_ms
                or last_offset - segment.base_offset > RELATIVE_OFFSET_MAX
            ):
                segment = self.room_for(size, last_offset, timestamp)
                position = segment.size
            if self.settings.timestamp_type_log_append:
                stamp_log_append_time(batch, timestamp)
            OFFSET_LENGTH_EPOCH.pack_into(batch, 0, offset, length, leader_epoch)
            if leader_epoch != self.epochs.latest:
                self.assign_epoch(leader_epoch, offset)
            file = segment.file
            assert file is not None
            file.pwrite(batch, position)
            segment.note(position, size, offset, last_offset, timestamp)
        except OSError as error:
            raise self.failed(error) from error
        self.log_end_offset = last_offset + 1
        return offset

    def append_own(self, batch: bytearray, leader_epoch: int) -> int:
        """Appends a batch that a broker made itself: a marker, or what a coordinator keeps, however
        small segments must be. Returns its first offset."""
        if self.home.failure is not None:
            self.check_online()
        header = BatchHeader._make(check_stored(batch))
        if header.producer_id >= 0:
            self.producers.check_epoch(header.producer_id, header.producer_epoch)
        marker = read_end_transaction(batch) if header.is_control else None
        if marker is not None:
            self.producers.check_coordinator(header.producer_id, marker.coordinator_epoch)
        offset = self.log_end_offset
        stamp(batch, offset, leader_epoch)
        header = header._replace(base_offset=offset, partition_leader_epoch=leader_epoch)
        self._append_checked([header], memoryview(batch))
        return offset

    def append_as_follower(self, data: Buffer, leader_epoch: int, watermark: int = 0) -> int:
        """Appends a leader's batches as they are and returns the new log end offset. All are
        checked before one is written; a batch cut off at the end is left for the next fetch.
        Only compaction leaves gaps: `check_followed` says where they are taken."""
        view = memoryview(data)
        headers = check_followed(self, view, leader_epoch, watermark)
        self._append_checked(headers, view)
        return self.log_end_offset

    def append_part(self, data: memoryview, leader_epoch: int, watermark: int = 0) -> int:
        """Does the same with what has come so far of a leader's answer; returns the size of its
        whole batches, all of which were appended."""
        headers = check_followed(self, data, leader_epoch, watermark)
        self._append_checked(headers, data)
        return sum(LENGTH_OVERHEAD + header[1] for header in headers)

    def _append_checked(self, headers: Sequence[RawHeader], data: memoryview) -> None:
        """Writes batches that were checked, as many at a time as a segment has room for."""
        try:
            while headers:
                base, length, _, _, _, _, delta, _, timestamp, _, _, _, _ = headers[0]
                fits = self.takes(LENGTH_OVERHEAD + length, base + delta, timestamp)
                next_base = self.next_base(base, base + delta)
                segment = self.segments.active if fits else self._roll(next_base)
                count, size = run_for(segment, headers)
                assert segment.file is not None
                segment.file.pwrite(data[:size], segment.size)
                note_run(self, segment, headers[:count], data[:size])
                headers, data = headers[count:], data[size:]
        except OSError as error:
            raise self.failed(error) from error

    def room_for(self, size: int, last_offset: int, timestamp: int) -> Segment:
        """The active segment if it takes a batch that ends so, or is as empty as a new one;
        otherwise a new one."""
        if self.has_room(size, last_offset, timestamp):
            return self.segments.active
        return self._roll()

    def has_room(self, size: int, last_offset: int, timestamp: int) -> bool:
        """Whether the active segment takes a batch that ends so; if not, the next one must."""
        if self.takes(size, last_offset, timestamp):
            return True
        if size > self.settings.segment_bytes:
            raise KafkaError(
                ErrorCode.record_list_too_large,
                f"a batch of {size} bytes is larger than segment.bytes="
                f"{self.settings.segment_bytes}",
            )
        return False

    def takes(self, size: int, last_offset: int, timestamp: int) -> bool:
        """The same for a batch that is in a leader's log already, or that a broker made itself:
        whatever `segment.bytes` is by now, a new segment takes it."""
        segment = self.segments.active
        if segment.size == 0:
            return last_offset - segment.base_offset <= RELATIVE_OFFSET_MAX
        return segment.has_room(size, last_offset, timestamp)

    def next_base(self, base: int, last_offset: int) -> int:
        """Where a new segment for a leader's batch begins: at the log end, unless compaction has
        left so wide a gap before it that no segment spans both."""
        end = self.log_end_offset
        return end if last_offset - end <= RELATIVE_OFFSET_MAX else base

    def check_timestamps(
        self, attributes: int, base_timestamp: int, timestamp: int, now_ms: int
    ) -> None:
        """Refuses a batch that is too far from the broker's time, or claims to have it."""
        settings = self.settings
        if attributes & LOG_APPEND_TIME:
            raise invalid_timestamp("a producer must not mark its batch as LogAppendTime")
        if timestamp - now_ms > settings.timestamp_after_max_ms:
            raise invalid_timestamp(
                f"timestamp {timestamp} is more than message.timestamp.after.max.ms="
                f"{settings.timestamp_after_max_ms} ahead of the broker's {now_ms}"
            )
        if base_timestamp != NO_TIMESTAMP and (
            now_ms - base_timestamp > settings.timestamp_before_max_ms
        ):
            raise invalid_timestamp(
                f"timestamp {base_timestamp} is more than message.timestamp.before.max.ms="
                f"{settings.timestamp_before_max_ms} behind the broker's {now_ms}"
            )

    # -- read

    def read(self, offset: int, max_bytes: int, upto: int, warmed: Warmed | None = None) -> Slice:
        """The range from the batch that holds `offset`, below the offset `upto`, of at most
        `max_bytes`, but never less than one batch, and mostly of whole ones. Its size is 0 if there
        is nothing to read. Given what was `warmed`, a lookup does not wait for the disk for
        anything else, but raises `Cold`."""
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise self._out_of_range(offset)
        if warmed is not None and offset < self.segments.active.base_offset:
            return self._read_warmed(offset, max_bytes, upto, warmed)
        try:
            return self._read(offset, max_bytes, upto)
        except DamagedIndex as damage:
            return self.mended(damage, lambda: self._read(offset, max_bytes, upto))
        except OSError as error:
            raise self.failed(error) from error

    def _read_warmed(self, offset: int, max_bytes: int, upto: int, warmed: Warmed) -> Slice:
        files = self.home.files
        files.warmed = warmed
        try:
            return self._read(offset, max_bytes, upto)
        except DamagedIndex as found:
            damage = found
        except OSError as error:
            raise self.failed(error) from error
        finally:
            files.warmed = None
        # An index is made anew from all of its log, and that is waited for.
        return self.mended(damage, lambda: self._read(offset, max_bytes, upto))

    def _out_of_range(self, offset: int) -> KafkaError:
        return KafkaError(
            ErrorCode.offset_out_of_range,
            f"{self.partition}: offset {offset} is not between the log start "
            f"{self.log_start_offset} and the log end {self.log_end_offset}",
        )

    def _read(self, offset: int, max_bytes: int, upto: int) -> Slice:
        segments = self.segments
        segment = active = segments.active
        if offset < active.base_offset:
            segment = segments.all[bisect_right(segments.bases, offset) - 1]
        position, size = segment.locate(offset)
        while size == 0 and segment is not active:
            segment = segments.all[segments.all.index(segment) + 1]
            position, size = segment.locate(offset)
        end = segment.size
        if upto < self.log_end_offset and (segment is active or upto < active.base_offset):
            end = self._end_in(segment, upto)
        first, size, left_out = size, end - position, 0
        if size > max_bytes:
            if max_bytes > first:
                size = max(first, segment.whole(offset, position, max_bytes))
                left_out = max_bytes - size
            else:
                size = first
        elif size < 0:
            size = 0
        # As `Slice(...)` would, which is twice as slow.
        file = segment.file or segment.open_file()
        return new_tuple(Slice, (file, position, size, segment.unverified, left_out))

    def _end_in(self, segment: Segment, upto: int) -> int:
        """Where a segment's batches below an offset end."""
        index = self.segments.at(segment.base_offset)
        if upto < self.segments.end_of(index, upto + 1):
            return segment.locate(upto)[0]
        return segment.size

    def largest_timestamp(self) -> int:
        """The largest of any record in the log; -1 if none has one."""
        try:
            return self._largest_timestamp()
        except DamagedIndex as damage:
            return self.mended(damage, self._largest_timestamp)
        except OSError as error:
            raise self.failed(error) from error

    def _largest_timestamp(self) -> int:
        return max(segment.largest_timestamp() for segment in self.segments.all)

    def offset_for_timestamp(self, timestamp: int) -> tuple[int, int] | None:
        """Offset and timestamp of the first record that is at least that young, or None. Takes
        as long as it takes; whoever cannot wait for that goes through `searching` himself."""
        search, found = searching(self, timestamp), None
        while True:
            try:
                step = search.send(found)
            except StopIteration as end:
                place: tuple[int, int] | None = end.value
                return place
            try:
                found = self._search_in(step, timestamp) if isinstance(step, Batch) else None
            except OSError as error:
                raise self.failed(error) from error

    def _search_in(self, batch: Batch, timestamp: int) -> tuple[int, int] | None:
        data = batch.file.pread(batch.size, batch.position)
        return search_in(self, batch, data, timestamp)
