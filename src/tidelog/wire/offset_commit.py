"""Answers to OffsetCommit, put together by hand: consumers get one every few seconds, all of them.

int32 correlation id | (8) tags | (3) int32 throttle time
[ string topic, from 10 on its id | [ int32 partition, int16 error, (8) tags ] (8) tags ]
(8) tags
"""

from collections.abc import Iterable, Sequence
from struct import Struct
from typing import Final

from tidelog.wire.values import INT32, encode_count, encode_string

_THROTTLED_FROM: Final = 3
_FLEXIBLE_FROM: Final = 8
_NO_TAGS: Final = b"\0"
_NOT_THROTTLED: Final = bytes(4)
_ROW: Final = Struct(">ih").pack
_FLEXIBLE_ROW: Final = Struct(">ihx").pack

Topic = tuple[str | bytes, Sequence[tuple[int, int]]]
"""Its name, or its id; and of each partition the number and the error code."""


def write_offset_commit_response(
    correlation_id: int, version: int, topics: Sequence[Topic]
) -> bytes:
    """The whole frame, with its length."""
    is_flexible = version >= _FLEXIBLE_FROM
    parts = [INT32.pack(correlation_id)]
    if is_flexible:
        parts.append(_NO_TAGS)
    if version >= _THROTTLED_FROM:
        parts.append(_NOT_THROTTLED)
    parts.append(encode_count(len(topics), is_flexible))
    for topic, rows in topics:
        parts += _topic(topic, rows, is_flexible)
    if is_flexible:
        parts.append(_NO_TAGS)
    body = b"".join(parts)
    return INT32.pack(len(body)) + body


def _topic(
    topic: str | bytes, rows: Sequence[tuple[int, int]], is_flexible: bool
) -> Iterable[bytes]:
    yield topic if isinstance(topic, bytes) else encode_string(topic, is_flexible)
    yield encode_count(len(rows), is_flexible)
    pack = _FLEXIBLE_ROW if is_flexible else _ROW
    for index, code in rows:
        yield pack(index, code)
    if is_flexible:
        yield _NO_TAGS
