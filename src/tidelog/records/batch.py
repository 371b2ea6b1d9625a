"""The header of a record batch, format v2: the only part of a batch that a broker reads.

     0  base offset             8   stamped by the leader, outside the CRC
     8  batch length            4   of everything after this field
    12  partition leader epoch  4   stamped by the leader, outside the CRC
    16  magic                   1   always 2
    17  CRC-32C                 4   of everything from the attributes on
    21  attributes              2   bits 0-2 compression, 3 log append time, 4 transactional,
                                    5 control, 6 base timestamp is a delete horizon
    23  last offset delta       4
    27  base timestamp          8
    35  max timestamp           8
    43  producer id             8
    51  producer epoch          2
    53  base sequence           4
    57  records count           4
    61  records, compressed as one block if the attributes say so

`check_produced` is what a client's batch must pass before anything is changed, `check_stored`
what a leader's answer or a file must pass. Both return the unpacked header as a plain
tuple: this is the hot path. Everywhere else, `read_header` gives it names.
"""

from collections.abc import Callable, Iterator
from struct import Struct
from typing import Final, NamedTuple

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.base.ids import NO_SEQUENCE
from tidelog.base.ports import Buffer
from tidelog.records.checksum import crc32c

HEADER: Final = Struct(">qiibIhiqqqhii")
HEADER_SIZE: Final = HEADER.size
OFFSET_AND_LENGTH: Final = Struct(">qi")
OFFSET_LENGTH_EPOCH: Final = Struct(">qii")
LENGTH_OVERHEAD: Final = OFFSET_AND_LENGTH.size
MAGIC: Final = 2
MAGIC_POSITION: Final = 16
CRC_POSITION: Final = 17
CRC_START: Final = 21
MAX_TIMESTAMP: Final = 35
NEGATIVE: Final = 0x80
"""A max timestamp whose first byte has this bit is -1: the client leaves it to the broker to find
the youngest record."""
SEQUENCE_LIMIT: Final = 1 << 31

COMPRESSION_MASK: Final = 0x07
LOG_APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
DELETE_HORIZON: Final = 0x40
ZSTD: Final = 4

_OFFSET: Final = Struct(">q")
_CRC: Final = Struct(">I")
_ATTRIBUTES: Final = Struct(">h")
_PRODUCER: Final = Struct(">qhi")

type_of_timestamp: Final = ("CreateTime", "LogAppendTime")

RawHeader = tuple[int, int, int, int, int, int, int, int, int, int, int, int, int]
unpack_header: Final[Callable[[Buffer], RawHeader]] = HEADER.unpack_from


class BatchHeader(NamedTuple):
    base_offset: int
    length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        return LENGTH_OVERHEAD + self.length

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def compression(self) -> int:
        return self.attributes & COMPRESSION_MASK

    @property
    def is_log_append_time(self) -> bool:
        return bool(self.attributes & LOG_APPEND_TIME)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)

    @property
    def delete_horizon_ms(self) -> int | None:
        return self.base_timestamp if self.attributes & DELETE_HORIZON else None

    @property
    def last_sequence(self) -> int:
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return sequence_after(self.base_sequence, self.last_offset_delta)


def sequence_after(sequence: int, steps: int) -> int:
    """Sequence numbers wrap to 0 after the largest 32-bit one."""
    return (sequence + steps) % SEQUENCE_LIMIT


def read_header(data: Buffer, position: int = 0) -> BatchHeader:
    return BatchHeader._make(HEADER.unpack_from(data, position))


def walk(data: Buffer, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
    """Positions and headers of the whole batches in `data`, trusting their lengths; stops at a
    batch that is cut off, and at the zeros of a preallocated tail."""
    end = len(data)
    while position + HEADER_SIZE <= end:
        header = read_header(data, position)
        if header.size < HEADER_SIZE or position + header.size > end:
            return
        yield position, header
        position += header.size


def crc_is_good(data: Buffer, position: int, size: int, crc: int) -> bool:
    return crc32c(memoryview(data)[position + CRC_START : position + size]) == crc


def check_stored(data: Buffer, position: int = 0) -> RawHeader:
    """Checks the batch at `position` as it comes from a leader or a file. Compaction may have
    taken records out of it, so its count may be smaller than its offsets suggest."""
    available = len(data) - position
    if available < HEADER_SIZE:
        raise _corrupt(f"{available} bytes are too few for a batch header of {HEADER_SIZE}")
    raw: RawHeader = HEADER.unpack_from(data, position)
    _, length, _, magic, crc, attributes, delta, _, _, _, _, _, count = raw
    size = LENGTH_OVERHEAD + length
    if magic != MAGIC:
        raise bad_magic(magic)
    if size < HEADER_SIZE or size > available:
        raise _corrupt(f"batch length {length} where {available - LENGTH_OVERHEAD} bytes follow")
    if crc32c(memoryview(data)[position + CRC_START : position + size]) != crc:
        raise _corrupt("the CRC-32C does not match the content")
    if delta < 0 or not 0 <= count <= delta + 1:
        raise _corrupt(f"{count} records with a last offset delta of {delta}")
    if attributes & COMPRESSION_MASK > ZSTD:
        raise unknown_compression(attributes & COMPRESSION_MASK)
    return raw


def check_produced(data: Buffer, max_bytes: int, *, may_lack_max: bool = False) -> RawHeader:
    """Checks what a client sent for one partition: exactly one good batch, not yet stamped. It may
    lack its max timestamp if that is still to be filled in."""
    available = len(data)
    if available < HEADER_SIZE:
        if available > MAGIC_POSITION and data[MAGIC_POSITION] < MAGIC:
            raise bad_magic(data[MAGIC_POSITION])
        raise _corrupt(f"{available} bytes are too few for a batch header of {HEADER_SIZE}")
    raw: RawHeader = HEADER.unpack_from(data)
    (
        base_offset,
        length,
        _,
        magic,
        crc,
        attributes,
        delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        count,
    ) = raw
    size = LENGTH_OVERHEAD + length
    if magic != MAGIC:
        raise bad_magic(magic)
    if size > max_bytes:
        raise KafkaError(
            ErrorCode.message_too_large,
            f"a batch of {size} bytes is larger than max.message.bytes={max_bytes}",
        )
    if size != available:
        if HEADER_SIZE <= size < available:
            raise _invalid(f"a batch of {size} bytes is followed by {available - size} more bytes")
        raise _corrupt(f"batch length {length} where {available - LENGTH_OVERHEAD} bytes follow")
    if crc32c(memoryview(data)[CRC_START:]) != crc:
        raise _corrupt("the CRC-32C does not match the content")
    if count != delta + 1 or count <= 0:
        raise _invalid(f"{count} records with a last offset delta of {delta}")
    if base_offset:
        raise _invalid(f"base offset {base_offset} where a produced batch has 0")
    if attributes & 0x67:  # compression, control, delete horizon: the uncommon ones
        _check_attributes(attributes)
    is_to_come = may_lack_max and max_timestamp == -1 < base_timestamp
    if not is_to_come and (max_timestamp < base_timestamp or base_timestamp < -1):
        _check_timestamps(attributes, base_timestamp, max_timestamp)
    check_producer(producer_id, producer_epoch, base_sequence)
    return raw


def check_producer(producer_id: int, epoch: int, sequence: int) -> None:
    """Who has a producer id has an epoch and numbers his batches."""
    if producer_id >= 0 and (sequence < 0 or epoch < 0):
        raise _invalid(f"producer {producer_id} with epoch {epoch} and sequence {sequence}")


def _check_attributes(attributes: int) -> None:
    if attributes & COMPRESSION_MASK > ZSTD:
        raise unknown_compression(attributes & COMPRESSION_MASK)
    if attributes & CONTROL:
        raise _invalid("clients must not write control batches")
    if attributes & DELETE_HORIZON:
        raise _invalid("clients must not set a delete horizon")


def _check_timestamps(attributes: int, base_timestamp: int, max_timestamp: int) -> None:
    if base_timestamp < -1 or max_timestamp < -1:
        raise invalid_timestamp(f"timestamps {base_timestamp} to {max_timestamp} are before 1970")
    if not attributes & LOG_APPEND_TIME:
        raise invalid_timestamp(
            f"max timestamp {max_timestamp} is before base timestamp {base_timestamp}"
        )


def stamp(data: bytearray | memoryview, base_offset: int, leader_epoch: int) -> None:
    """Writes what the leader assigns. Neither field is covered by the CRC."""
    _, length = OFFSET_AND_LENGTH.unpack_from(data)
    OFFSET_LENGTH_EPOCH.pack_into(data, 0, base_offset, length, leader_epoch)


def stamp_log_append_time(data: bytearray | memoryview, now_ms: int) -> None:
    """Makes the leader's clock the time of all records of the batch; the CRC is made anew."""
    (attributes,) = _ATTRIBUTES.unpack_from(data, CRC_START)
    _ATTRIBUTES.pack_into(data, CRC_START, attributes | LOG_APPEND_TIME)
    _OFFSET.pack_into(data, MAX_TIMESTAMP, now_ms)
    _CRC.pack_into(data, CRC_POSITION, crc32c(memoryview(data)[CRC_START:]))


def stamp_producer(
    data: bytearray | memoryview,
    producer: tuple[int, int],
    sequence: int,
    *,
    is_transactional: bool = False,
) -> None:
    """Writes who sends the batch, with his epoch, its place among his, and whether it is part of
    his transaction; the CRC is made anew."""
    if is_transactional:
        (attributes,) = _ATTRIBUTES.unpack_from(data, CRC_START)
        _ATTRIBUTES.pack_into(data, CRC_START, attributes | TRANSACTIONAL)
    _PRODUCER.pack_into(data, 43, *producer, sequence)
    _CRC.pack_into(data, CRC_POSITION, crc32c(memoryview(data)[CRC_START:]))


def seal(header: BatchHeader, records: Buffer) -> bytearray:
    """Puts a batch together: length and CRC are computed, the rest is taken from `header`."""
    length = HEADER_SIZE - LENGTH_OVERHEAD + len(records)
    base_offset, _, leader_epoch, magic, _, *rest = header
    batch = bytearray(HEADER.pack(base_offset, length, leader_epoch, magic, 0, *rest))
    batch += records
    _CRC.pack_into(batch, CRC_POSITION, crc32c(memoryview(batch)[CRC_START:]))
    return batch


def bad_magic(magic: int) -> KafkaError:
    if magic in (0, 1):
        return KafkaError(
            ErrorCode.unsupported_for_message_format,
            f"message format v{magic} is not supported: use a client that writes v2 batches",
        )
    return _corrupt(f"magic {magic} where 2 is expected")


def unknown_compression(codec: int) -> KafkaError:
    return KafkaError(
        ErrorCode.unsupported_compression_type,
        f"compression {codec} is none of none(0), gzip(1), snappy(2), lz4(3), zstd(4)",
    )


def invalid_timestamp(message: str) -> KafkaError:
    return KafkaError(ErrorCode.invalid_timestamp, message)


def _corrupt(message: str) -> KafkaError:
    return KafkaError(ErrorCode.corrupt_message, message)


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.invalid_record, message)
