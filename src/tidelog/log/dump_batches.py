"""The lines of a `.log` file: one a batch as Apache Kafka 4 prints it, or one a record.

A batch line says what the header says, and whether the CRC-32C is right. A record line has
the fields of Kafka's deep format, with the position of the record's batch; control records
are named instead of shown. Damage inside a batch is reported and the walk goes on behind it.
"""

from collections.abc import Iterator
from typing import Final

from tidelog.base.errors import KafkaError
from tidelog.base.ids import NO_SEQUENCE
from tidelog.base.ports import Disk, File
from tidelog.log.dump_options import DumpOptions
from tidelog.log.dump_text import Problem, printable
from tidelog.log.dump_walk import LogWalk, crc_in_pieces
from tidelog.records.batch import CRC_START, BatchHeader, sequence_after, type_of_timestamp
from tidelog.records.checksum import crc32c
from tidelog.records.compression import NAMES
from tidelog.records.control import ControlType, control_type, read_end_transaction
from tidelog.records.reference import Record, read_records

_TRUTH: Final = ("false", "true")
_ENDS: Final = (ControlType.ABORT, ControlType.COMMIT)


def dump_log(disk: Disk, path: str, options: DumpOptions) -> Iterator[str]:
    file = disk.open(path, "read")
    stem = path.rpartition("/")[2].partition(".")[0]
    if stem.isascii() and stem.isdigit():
        yield f"Log starting offset: {int(stem)}"
    if file.size() == 0:
        yield f"{path} is empty."
    walk = LogWalk(file, end=options.max_bytes)
    yield from _batches(file, path, walk, options)
    if walk.position + walk.left_bytes < file.size():
        return
    if walk.zero_bytes:
        yield f"Found {walk.zero_bytes} zero bytes at the end of {path}: never written"
    if walk.problem is not None:
        yield Problem(f"Found {walk.left_bytes} invalid bytes at the end of {path}: {walk.problem}")


def _batches(file: File, path: str, walk: LogWalk, options: DumpOptions) -> Iterator[str]:
    next_offset = -1
    by_record = options.by_record
    for header, data in walk:
        position = walk.position
        crc = crc32c(data[CRC_START:]) if data else crc_in_pieces(file, position, header.size)
        valid = crc == header.crc
        if by_record:
            yield from _record_lines(path, position, header, data, valid, options)
        else:
            yield batch_line(position, header, valid)
        if not valid or header.base_offset < next_offset:
            yield _complaint(path, position, header, crc, next_offset)
        next_offset = max(next_offset, header.next_offset)


def _complaint(
    path: str, position: int, header: BatchHeader, crc: int, next_offset: int
) -> Problem:
    where = f"{path}: the batch at position {position}"
    if crc != header.crc:
        return Problem(f"{where} has the CRC {header.crc}, but its content gives {crc}")
    return Problem(f"{where} starts at offset {header.base_offset}, expected {next_offset} or more")


def batch_line(position: int, header: BatchHeader, valid: bool) -> str:
    (
        base_offset,
        length,
        leader_epoch,
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
    ) = header
    last_sequence = base_sequence if base_sequence < 0 else sequence_after(base_sequence, delta)
    horizon = f"OptionalLong[{base_timestamp}]" if attributes & 0x40 else "OptionalLong.empty"
    return (
        f"baseOffset: {base_offset} lastOffset: {base_offset + delta} count: {count}"
        f" baseSequence: {base_sequence} lastSequence: {last_sequence}"
        f" producerId: {producer_id} producerEpoch: {producer_epoch}"
        f" partitionLeaderEpoch: {leader_epoch}"
        f" isTransactional: {_TRUTH[attributes >> 4 & 1]} isControl: {_TRUTH[attributes >> 5 & 1]}"
        f" deleteHorizonMs: {horizon} position: {position}"
        f" {type_of_timestamp[attributes >> 3 & 1]}: {max_timestamp} size: {length + 12}"
        f" magic: {magic} compresscodec: {codec_name(attributes & 7)} crc: {crc}"
        f" isvalid: {_TRUTH[valid]}"
    )


def codec_name(codec: int) -> str:
    return NAMES[codec] if codec < len(NAMES) else f"unknown({codec})"


def _record_lines(
    path: str,
    position: int,
    header: BatchHeader,
    data: memoryview,
    valid: bool,
    options: DumpOptions,
) -> Iterator[str]:
    where = f"{path}: the records of the batch at position {position}"
    if not data:
        yield Problem(f"{where} are not shown: it has {header.size} bytes")
        return
    metadata = _Metadata(position, header, valid)
    try:
        for record in read_records(data, options.max_message_size):
            line = "" if options.skip_record_metadata else metadata.of(record)
            if header.is_control:
                if options.skip_record_metadata:
                    continue
                line += _control(record, data)
            elif options.print_data_log:
                line += _content(record)
            yield line.removeprefix(" ")
    except KafkaError as error:
        yield Problem(f"{where} cannot be read: {error.message}")


class _Metadata:
    """What the records of one batch have in common is put together once."""

    def __init__(self, position: int, header: BatchHeader, valid: bool) -> None:
        self._header = header
        time = type_of_timestamp[header.is_log_append_time]
        self._before_time = f" position: {position} {time}: "
        self._before_sizes = f" isvalid: {_TRUTH[valid]} keysize: "
        self._before_sequence = (
            f" magic: {header.magic} compresscodec: {codec_name(header.compression)}"
            f" producerId: {header.producer_id} producerEpoch: {header.producer_epoch} sequence: "
        )
        self._before_headers = f" isTransactional: {_TRUTH[header.is_transactional]} headerKeys: ["

    def of(self, record: Record) -> str:
        header = self._header
        sequence = header.base_sequence
        if sequence >= 0:
            sequence = sequence_after(sequence, record.offset - header.base_offset)
        keys = [printable(key.encode("utf-8", "surrogateescape")) for key, _ in record.headers]
        return (
            f"offset: {record.offset}{self._before_time}{record.timestamp}"
            f"{self._before_sizes}{_size(record.key)} valuesize: {_size(record.value)}"
            f"{self._before_sequence}{max(sequence, NO_SEQUENCE)}"
            f"{self._before_headers}{','.join(keys)}]"
        )


def _size(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def _content(record: Record) -> str:
    key = "" if record.key is None else f" key: {printable(record.key)}"
    return key if record.value is None else f"{key} payload: {printable(record.value)}"


def _control(record: Record, data: memoryview) -> str:
    kind = control_type(record.key)
    marker = read_end_transaction(data) if kind in _ENDS else None
    if marker is not None:
        return f" endTxnMarker: {kind.name} coordinatorEpoch: {marker.coordinator_epoch}"
    assert record.key is not None
    return f" controlType: {kind.name}({int.from_bytes(record.key[2:4], signed=True)})"
