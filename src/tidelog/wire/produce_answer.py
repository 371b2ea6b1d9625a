"""Answers to Produce, versions 3 to 13, packed by hand.

A topic begins with the bytes it had in the request (`produce`), a partition is a struct.

    answer    topics [name or id, partitions [int32 index | int16 error | int64 base offset |
              int64 append time | int64 log start (5+) | record errors [int32 place in the batch |
              message] (8+) | message (8+)]] | int32 throttle time
"""

from collections.abc import Generator, Iterable, Sequence
from itertools import islice
from struct import Struct
from typing import Any, NamedTuple, TypeAlias

from tidelog.base.ports import Buffer
from tidelog.records.join_layout import ANSWER
from tidelog.wire.produce import FLEXIBLE, ProducePartition, ProduceRequest
from tidelog.wire.values import INT32, encode_string, varint

# error code, base offset, log append time, log start offset, error message
ProduceResult: TypeAlias = tuple[int, int, int, int, str | None]


class RecordsRefused(NamedTuple):
    """Why a batch was refused, and which of its records are to blame, by their places in it."""

    message: str
    records: Sequence[int]


# as a `ProduceResult`, but for what is said of an error
ProduceAnswer: TypeAlias = tuple[int, int, int, int, str | RecordsRefused | None]

_START_CLASSIC = Struct(">iii")
_START_FLEXIBLE = Struct(">iiBB")
_END_FLEXIBLE = Struct(">iB")
_RESULT_3 = Struct(">ihqq")
_RESULT_5 = Struct(">ihqqq")
_RESULT_8 = Struct(">ihqqqih")
_RESULT_9 = ANSWER


def write_produce_response(
    correlation_id: int,
    version: int,
    request: ProduceRequest,
    results: Sequence[ProduceAnswer],
    throttle_ms: int = 0,
) -> bytes:
    """The whole answer frame; `results` are in the order of `request.partitions`."""
    parts: list[bytes] = []
    pairs = zip(request.partitions, results, strict=True)
    pack = _pack_flexible if version >= FLEXIBLE else _pack_classic
    for head, count in request.groups:
        parts.append(head)
        pack(parts, version, islice(pairs, count))
        if version >= FLEXIBLE:
            parts.append(b"\x00")
    return _framed(correlation_id, version, len(request.groups), parts, throttle_ms)


def frame_packed(correlation_id: int, request: ProduceRequest, packed: memoryview) -> bytes:
    """The same of a flexible version, of parts for each partition that are packed already."""
    parts: list[Buffer] = []
    at = 0
    for head, count in request.groups:
        end = at + count * _RESULT_9.size
        parts += (head, packed[at:end], b"\x00")
        at = end
    return _framed(correlation_id, FLEXIBLE, len(request.groups), parts, 0)


def write_in_steps(
    correlation_id: int,
    version: int,
    request: ProduceRequest,
    results: Sequence[ProduceAnswer],
    step: int,
) -> Generator[None, None, bytes]:
    """The same answer, made of so many partitions at a time."""
    parts: list[bytes] = []
    pairs = zip(request.partitions, results, strict=True)
    pack = _pack_flexible if version >= FLEXIBLE else _pack_classic
    packed = 0
    for head, count in request.groups:
        parts.append(head)
        for start in range(0, count, step):
            size = min(step, count - start)
            pack(parts, version, islice(pairs, size))
            packed += size
            if packed >= step:
                packed = 0
                yield
        if version >= FLEXIBLE:
            parts.append(b"\x00")
    return _framed(correlation_id, version, len(request.groups), parts, 0)


def _framed(
    correlation_id: int, version: int, groups: int, parts: list[Any], throttle_ms: int
) -> bytes:
    if version < FLEXIBLE:
        parts.append(INT32.pack(throttle_ms))
        body = b"".join(parts)
        return _START_CLASSIC.pack(8 + len(body), correlation_id, groups) + body
    parts.append(_END_FLEXIBLE.pack(throttle_ms, 0))
    body = b"".join(parts)
    if groups < 0x7F:
        return _START_FLEXIBLE.pack(6 + len(body), correlation_id, 0, groups + 1) + body
    counted = varint(groups + 1)
    size = 5 + len(counted) + len(body)
    return _START_FLEXIBLE.pack(size, correlation_id, 0, 0)[:-1] + counted + body


def _pack_flexible(
    parts: list[bytes],
    _version: int,
    pairs: Iterable[tuple[ProducePartition, ProduceAnswer]],
) -> None:
    for (_, index, _), (error_code, base, append_time, log_start, message) in pairs:
        if message is None:
            parts.append(_RESULT_9.pack(index, error_code, base, append_time, log_start, 1, 0, 0))
        else:
            parts.append(_RESULT_5.pack(index, error_code, base, append_time, log_start))
            parts += (_why(message, True), b"\x00")


def _pack_classic(
    parts: list[bytes],
    version: int,
    pairs: Iterable[tuple[ProducePartition, ProduceAnswer]],
) -> None:
    for (_, index, _), (error_code, base, append_time, log_start, message) in pairs:
        if version < 5:
            parts.append(_RESULT_3.pack(index, error_code, base, append_time))
        elif version < 8:
            parts.append(_RESULT_5.pack(index, error_code, base, append_time, log_start))
        elif message is None:
            parts.append(_RESULT_8.pack(index, error_code, base, append_time, log_start, 0, -1))
        else:
            parts.append(_RESULT_5.pack(index, error_code, base, append_time, log_start))
            parts.append(_why(message, False))


def _why(refusal: str | RecordsRefused, flexible: bool) -> bytes:
    """The same sentence for each record that is to blame, and for the batch."""
    message, places = (refusal, ()) if isinstance(refusal, str) else refusal
    said = encode_string(message, flexible)
    count = varint(len(places) + 1) if flexible else INT32.pack(len(places))
    end = said + b"\x00" if flexible else said
    return count + b"".join(INT32.pack(place) + end for place in places) + said
