"""Fetches of one partition by its topic's id, and their answers, each taken apart or put together
at once.

A consumer sends the same request over and over with another offset in it, and without anything
that is optional such a request always has the same layout (`fetch` has the fields, and reads
whatever is not like that). Its answer ends with three empty tag sections behind the records.
"""

from struct import Struct
from typing import Final

from tidelog.wire.fetch import REPLICA_STATE, FetchRequest
from tidelog.wire.values import varint

ANSWER_END: Final = b"\x00\x00\x00"

_REQUEST = Struct(">iiibiiB16sBiiqiqi5s")
_ONE: Final = 2
"""The count of an array with one item, as a varint."""
_REQUEST_END: Final = b"\x00\x00\x01\x01\x00"
"""No tags, no tags, nothing forgotten, a rack without a name, no tags."""
_ANSWER = Struct(">ii12s16sBihqqq5s")
_ANSWER_START: Final = bytes(11) + b"\x02"
"""No tags, not throttled, no error, no session, one topic."""
_ALL, _COMMITTED = b"\x00\xff\xff\xff\xff", b"\x01\xff\xff\xff\xff"
"""No list of aborted transactions, or an empty one, and no other replica to read from."""
_LENGTH_BYTES: Final = 4
_FIXED_BYTES: Final = _ANSWER.size - _LENGTH_BYTES + len(ANSWER_END)

Marks = tuple[int, int, int]
"""High watermark, last stable offset and log start offset."""


def read_one_fetch(frame: memoryview, at: int, version: int) -> FetchRequest | None:
    """The request, if it is one for one partition and has nothing that is optional."""
    if version < REPLICA_STATE or len(frame) - at != _REQUEST.size:
        return None
    request = FetchRequest()
    (
        request.max_wait_ms,
        request.min_bytes,
        request.max_bytes,
        request.isolation_level,
        request.session_id,
        request.session_epoch,
        topics,
        topic,
        partitions,
        index,
        epoch,
        offset,
        last_epoch,
        log_start,
        max_bytes,
        end,
    ) = _REQUEST.unpack_from(frame, at)
    if topics != _ONE or partitions != _ONE or end != _REQUEST_END:
        return None
    request.partitions.append((topic, index, epoch, offset, last_epoch, log_start, max_bytes))
    return request


def write_one_fetched(
    correlation_id: int, topic: bytes, index: int, marks: Marks, committed_only: bool, size: int
) -> bytes:
    """The answer without a session up to its records, of which so many bytes follow, and then
    `ANSWER_END`. Who wants committed records only is told that none of these were aborted."""
    counted = varint(size + 1)
    head = _ANSWER.pack(
        _FIXED_BYTES + len(counted) + size,
        correlation_id,
        _ANSWER_START,
        topic,
        _ONE,
        index,
        0,
        *marks,
        _COMMITTED if committed_only else _ALL,
    )
    return head + counted
