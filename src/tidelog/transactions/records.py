"""The records of `__transaction_state`, byte for byte those of Kafka.

    key    version 2 (0), transactional id: length 2, text

    value  version 2 (0 or 1)
           producer id 8, producer epoch 2, timeout in ms 4, status 1
           partitions: of each topic its name and the numbers 4; none at all for an idle id
           time of the last change 8, time of the start 8
           tagged fields: 0 previous producer id 8, 1 next producer id 8, 2 client's version 2

Version 1 is Kafka's flexible encoding: lengths and counts are unsigned varints, one too high, and
only it has tagged fields, of which those that say nothing are left out. It is what is written;
both are read, and a tag of a later version is passed over.
"""

from collections.abc import Iterable
from struct import Struct
from typing import Final

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.base.ids import NO_PRODUCER_ID, TopicPartition
from tidelog.base.ports import Buffer
from tidelog.transactions.state import Status, Transaction

_VERSION: Final = Struct(">h")
_HEAD: Final = Struct(">qhib")
_TIMES: Final = Struct(">qq")
_LONG: Final = Struct(">q")
_INT: Final = Struct(">i")
_SHORT: Final = Struct(">h")
_KEY_VERSION: Final = 0
_WRITTEN: Final = 1
_PREVIOUS_ID, _NEXT_ID, _CLIENT_VERSION = 0, 1, 2


def encode_key(transactional_id: str) -> bytes:
    text = transactional_id.encode()
    return _VERSION.pack(_KEY_VERSION) + _SHORT.pack(len(text)) + text


def decode_key(key: Buffer) -> str | None:
    """None for a key of a kind that is not known here."""
    reader = _Reader(key)
    if reader.take(_VERSION) != _KEY_VERSION:
        return None
    return reader.text(reader.take(_SHORT))


def encode_value(transaction: Transaction) -> bytes:
    written = bytearray(_VERSION.pack(_WRITTEN))
    written += _HEAD.pack(
        transaction.producer_id,
        transaction.producer_epoch,
        transaction.timeout_ms,
        transaction.status,
    )
    _put_partitions(written, transaction)
    written += _TIMES.pack(transaction.updated_ms, transaction.started_ms)
    _put_tags(written, transaction)
    return bytes(written)


def _put_partitions(written: bytearray, transaction: Transaction) -> None:
    if transaction.status is Status.Empty:
        written += b"\0"
        return
    topics = by_topic(transaction.partitions)
    _put_unsigned(written, len(topics) + 1)
    for topic, indexes in topics.items():
        name = topic.encode()
        _put_unsigned(written, len(name) + 1)
        written += name
        _put_unsigned(written, len(indexes) + 1)
        written += b"".join(map(_INT.pack, indexes))
        written += b"\0"


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for partition in partitions:
        topics.setdefault(partition.topic, []).append(partition.partition)
    return topics


def _put_tags(written: bytearray, transaction: Transaction) -> None:
    tags: list[tuple[int, bytes]] = []
    if transaction.previous_producer_id != NO_PRODUCER_ID:
        tags.append((_PREVIOUS_ID, _LONG.pack(transaction.previous_producer_id)))
    if transaction.next_producer_id != NO_PRODUCER_ID:
        tags.append((_NEXT_ID, _LONG.pack(transaction.next_producer_id)))
    if transaction.client_version:
        tags.append((_CLIENT_VERSION, _SHORT.pack(transaction.client_version)))
    _put_unsigned(written, len(tags))
    for tag, data in tags:
        _put_unsigned(written, tag)
        _put_unsigned(written, len(data))
        written += data


def _put_unsigned(written: bytearray, number: int) -> None:
    while number > 0x7F:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    written.append(number)


def decode_value(transactional_id: str, value: Buffer) -> Transaction | None:
    """None for a value of a version that is not known here."""
    reader = _Reader(value)
    version = reader.take(_VERSION)
    if version not in (0, _WRITTEN):
        return None
    is_flexible = version == _WRITTEN
    producer_id, epoch, timeout_ms, status = reader.all_of(_HEAD)
    partitions = tuple(reader.partitions(is_flexible))
    updated_ms, started_ms = reader.all_of(_TIMES)
    tags = reader.tags() if is_flexible else {}
    return Transaction(
        transactional_id=transactional_id,
        producer_id=producer_id,
        producer_epoch=epoch,
        timeout_ms=timeout_ms,
        status=_status(status),
        updated_ms=updated_ms,
        started_ms=started_ms,
        partitions=partitions,
        previous_producer_id=_number(tags, _PREVIOUS_ID, NO_PRODUCER_ID),
        next_producer_id=_number(tags, _NEXT_ID, NO_PRODUCER_ID),
        client_version=_number(tags, _CLIENT_VERSION, 0),
    )


def _status(number: int) -> Status:
    try:
        return Status(number)
    except ValueError:
        raise _corrupt(f"a transaction has no status {number}") from None


def _number(tags: dict[int, bytes], tag: int, default: int) -> int:
    return int.from_bytes(tags[tag], "big", signed=True) if tag in tags else default


class _Reader:
    def __init__(self, data: Buffer) -> None:
        self._data = bytes(data)
        self._at = 0

    def all_of(self, kind: Struct) -> tuple[int, ...]:
        return kind.unpack(self._bytes(kind.size))

    def take(self, kind: Struct) -> int:
        return self.all_of(kind)[0]

    def unsigned(self) -> int:
        number = shift = 0
        while True:
            byte = self._bytes(1)[0]
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number
            shift += 7

    def text(self, size: int) -> str:
        try:
            return self._bytes(size).decode()
        except UnicodeDecodeError as error:
            raise _corrupt(str(error)) from error

    def partitions(self, is_flexible: bool) -> Iterable[TopicPartition]:
        for _ in range(self._count(is_flexible)):
            size = self.unsigned() - 1 if is_flexible else self.take(_SHORT)
            topic = self.text(size)
            for _ in range(self._count(is_flexible)):
                yield TopicPartition(topic, self.take(_INT))
            if is_flexible:
                self.tags()

    def _count(self, is_flexible: bool) -> int:
        return self.unsigned() - 1 if is_flexible else self.take(_INT)

    def tags(self) -> dict[int, bytes]:
        found = {}
        for _ in range(self.unsigned()):
            tag = self.unsigned()
            found[tag] = self._bytes(self.unsigned())
        return found

    def _bytes(self, size: int) -> bytes:
        end = self._at + size
        if not self._at <= end <= len(self._data):
            raise _corrupt(f"{size} bytes are missing at {self._at}")
        data, self._at = self._data[self._at : end], end
        return data


def _corrupt(why: str) -> KafkaError:
    return KafkaError(ErrorCode.corrupt_message, f"a record of a transaction: {why}")
