"""Kafka's small text files: offset checkpoints, leader epochs, partition.metadata, meta.properties.

A checkpoint is a version line, a line with the number of entries, and an entry a line:

    0
    3
    orders 0 1234
    orders 1 99
    ##crc32c 0 3810727397

All are written whole by rename and fsynced. A file that does not say what it should is
refused by name: `BadValue` with the line that is wrong.

A digit that has rotted is still a digit. So offset checkpoints of ours end with a checksum of all
that comes before it, in the form of an entry, for Kafka reads no other form: to it that is a
partition that it does not have. Files without one, as Kafka writes them, are taken as they are.
Leader epochs have none: Kafka would take it for an epoch, and the batches tell what they should be.
"""

import base64
import binascii
from collections.abc import Iterable, Mapping
from typing import Final

from tidelog.base.errors import BadValue
from tidelog.base.ids import TopicPartition, is_legal_topic
from tidelog.base.ports import Disk
from tidelog.log.files import read_whole, write_whole
from tidelog.records.checksum import crc32c

RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
HIGH_WATERMARKS: Final = "replication-offset-checkpoint"
LOG_STARTS: Final = "log-start-offset-checkpoint"
LOG_STARTS_COPY: Final = "log-start-offset-copy-checkpoint"
CLEANER_OFFSETS: Final = "cleaner-offset-checkpoint"
LEADER_EPOCHS: Final = "leader-epoch-checkpoint"
LEADER_EPOCHS_UNSYNCED: Final = "leader-epoch-checkpoint.unsynced"
PARTITION_METADATA: Final = "partition.metadata"
META_PROPERTIES: Final = "meta.properties"
CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"

CHECKSUM: Final = "##crc32c"
"""Where an entry has its topic. No topic has such a name, with any one bit of it changed either."""

_VERSION: Final = "0"
_INT64_MAX: Final = (1 << 63) - 1
_DIGITS_MAX: Final = 19


def format_entries(entries: Iterable[str], to_come: int = 0) -> bytes:
    """With the number of those that will be written behind them counted in."""
    lines = list(entries)
    head = (_VERSION, str(len(lines) + to_come))
    return "".join(f"{line}\n" for line in (*head, *lines)).encode()


def parse_entries(path: str, data: bytes) -> list[list[str]]:
    try:
        lines = data.decode("utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise BadValue(f"{path}: is not text: {error}") from error
    if not lines or lines[0].strip() != _VERSION:
        found = lines[0] if lines else "an empty file"
        raise BadValue(f"{path}: line 1 should be the version {_VERSION}, not {found!r}")
    entries = [line.split() for line in lines[2:] if line.strip()]
    if len(lines) < 2 or _whole_number(lines[1].strip()) is None:
        raise BadValue(f"{path}: line 2 should be the number of entries")
    if len(entries) != _whole_number(lines[1].strip()):
        raise BadValue(f"{path}: holds {len(entries)} entries where line 2 says {lines[1]}")
    return entries


def _whole_number(text: str) -> int | None:
    """Not below 0 and not above what 64 bits hold; None if it is anything else."""
    if not (text.isascii() and text.isdigit()) or len(text) > _DIGITS_MAX:
        return None
    return int(text) if int(text) <= _INT64_MAX else None


def _number(path: str, line: Iterable[str], text: str) -> int:
    number = _whole_number(text)
    if number is None:
        raise BadValue(f"{path}: {text!r} in {' '.join(line)!r} should be a number from 0 on")
    return number


def format_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    entries = (f"{p.topic} {p.partition} {offsets[p]}" for p in sorted(offsets))
    body = format_entries(entries, to_come=1)
    return body + _checksum_of(body)


def _checksum_of(body: bytes) -> bytes:
    return f"{CHECKSUM} 0 {crc32c(body)}\n".encode()


def _check(path: str, data: bytes) -> None:
    """Refuses data that has a checksum, but is not what that was made of, to the byte."""
    before, end_of_line, _ = data.rpartition(f"\n{CHECKSUM} ".encode())
    body = before + end_of_line[:1]
    if data != body + _checksum_of(body):
        raise BadValue(f"{path}: is not what was written: the checksum at its end does not match")


def parse_offsets(path: str, data: bytes) -> dict[TopicPartition, int]:
    offsets: dict[TopicPartition, int] = {}
    for line in parse_entries(path, data):
        if line[0] == CHECKSUM:
            _check(path, data)
            continue
        if len(line) != 3 or not is_legal_topic(line[0]):
            raise BadValue(f"{path}: {' '.join(line)!r} should be: topic partition offset")
        partition = TopicPartition(line[0], _number(path, line, line[1]))
        offsets[partition] = _number(path, line, line[2])
    return offsets


def read_offsets(disk: Disk, path: str) -> dict[TopicPartition, int]:
    """An empty mapping if there is no such file yet."""
    if disk.stat(path) is None:
        return {}
    return parse_offsets(path, read_whole(disk, path))


def write_offsets(disk: Disk, path: str, offsets: Mapping[TopicPartition, int]) -> None:
    write_whole(disk, path, format_offsets(offsets))


def format_epochs(epochs: Iterable[tuple[int, int]]) -> bytes:
    return format_entries(f"{epoch} {start}" for epoch, start in epochs)


def parse_epochs(path: str, data: bytes) -> list[tuple[int, int]]:
    epochs: list[tuple[int, int]] = []
    for line in parse_entries(path, data):
        if len(line) != 2:
            raise BadValue(f"{path}: {' '.join(line)!r} should be: epoch start-offset")
        epoch, start = _number(path, line, line[0]), _number(path, line, line[1])
        if epochs and (epoch <= epochs[-1][0] or start <= epochs[-1][1]):
            raise BadValue(f"{path}: {epoch} {start} after {epochs[-1]}: both numbers must grow")
        epochs.append((epoch, start))
    return epochs


def format_partition_metadata(topic_id: bytes) -> bytes:
    return f"version: 0\ntopic_id: {base64.urlsafe_b64encode(topic_id)[:22].decode()}".encode()


def parse_partition_metadata(path: str, data: bytes) -> bytes:
    """The 16 bytes of the topic's id."""
    fields = dict(_fields(path, data, ":"))
    if fields.get("version") != "0":
        raise BadValue(f"{path}: version {fields.get('version')!r} should be 0")
    try:
        topic_id = base64.b64decode(
            fields.get("topic_id", "") + "==", altchars=b"-_", validate=True
        )
    except (binascii.Error, ValueError) as error:
        raise BadValue(f"{path}: topic_id {fields.get('topic_id')!r}: {error}") from error
    if len(topic_id) != 16:
        raise BadValue(f"{path}: topic_id should be 16 bytes in base64, not {len(topic_id)}")
    return topic_id


def format_meta_properties(fields: Mapping[str, str]) -> bytes:
    return "".join(f"{name}={fields[name]}\n" for name in sorted(fields)).encode()


def parse_meta_properties(path: str, data: bytes) -> dict[str, str]:
    fields = dict(_fields(path, data, "="))
    if fields.get("version") not in ("0", "1"):
        raise BadValue(f"{path}: version {fields.get('version')!r} should be 0 or 1")
    return fields


def _fields(path: str, data: bytes, separator: str) -> Iterable[tuple[str, str]]:
    try:
        lines = data.decode("utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise BadValue(f"{path}: is not text: {error}") from error
    for line in lines:
        if line.strip() and not line.startswith("#"):
            name, found, value = line.partition(separator)
            if not found:
                raise BadValue(f"{path}: {line!r} should be: name{separator} value")
            yield name.strip(), value.strip()
