"""The batch in which a coordinator keeps something: records of one time, with keys, no headers.

Every offset that is committed becomes such a batch, so it is put together without a value for each
record. The bytes are those that `reference.encode_batch` makes of the same records.
"""

from collections.abc import Sequence
from typing import Final

from tidelog.base.ids import NO_EPOCH, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE
from tidelog.records.batch import MAGIC, TRANSACTIONAL, BatchHeader, seal
from tidelog.records.varint import append_varint

_ATTRIBUTES_AND_TIME: Final = b"\0\0"
"""Of a record: it has none, and its time is the batch's."""
_NULL: Final = b"\1"
_NO_HEADERS: Final = b"\0"


def encode_entries(
    entries: Sequence[tuple[bytes, bytes | None]],
    timestamp: int,
    producer: tuple[int, int] | None = None,
) -> bytearray:
    """Keys and values as one batch, of a producer's transaction if one is named."""
    parts: list[bytes] = []
    for number, (key, value) in enumerate(entries):
        size = _NULL if value is None else _varint(len(value))
        head = _ATTRIBUTES_AND_TIME + _varint(number) + _varint(len(key)) + key + size
        content = head + (value or b"") + _NO_HEADERS
        parts += (_varint(len(content)), content)
    producer_id, epoch = (NO_PRODUCER_ID, NO_PRODUCER_EPOCH) if producer is None else producer
    header = BatchHeader(
        0,
        0,
        NO_EPOCH,
        MAGIC,
        0,
        0 if producer is None else TRANSACTIONAL,
        len(entries) - 1,
        timestamp,
        timestamp,
        producer_id,
        epoch,
        NO_SEQUENCE,
        len(entries),
    )
    return seal(header, b"".join(parts))


def _encoded(number: int) -> bytes:
    output = bytearray()
    append_varint(output, number)
    return bytes(output)


_SMALL: Final = tuple(_encoded(number) for number in range(512))


def _varint(number: int) -> bytes:
    return _SMALL[number] if number < 512 else _encoded(number)
