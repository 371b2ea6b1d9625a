"""Produce in versions 0 to 2, which are advertised but not served.

Old versions of librdkafka take a broker that does not offer them for one that cannot store
compressed records, and send them uncompressed without a word. So they are offered, as Apache
Kafka 4 does, and whoever uses one is told UNSUPPORTED_VERSION for each partition.

    request:  int16 acks | int32 timeout | [ string topic [ int32 partition, bytes records ] ]
    answer:   [ string topic [ int32 partition, int16 error, int64 offset, (2) int64 time ] ]
              (1, 2) int32 throttle time
"""

from struct import Struct, error
from typing import Final

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.wire.header import RequestHeader
from tidelog.wire.values import ITEMS_MAX

VERSIONS: Final = range(3)

_ACKS: Final = Struct(">hi")
_COUNT: Final = Struct(">i")
_SIZE: Final = Struct(">h")
_PARTITION: Final = Struct(">ii")
_REFUSED: Final = Struct(">ihq")
_NO_TIME: Final = Struct(">q").pack(-1)
_CODE: Final = int(ErrorCode.unsupported_version)
_MALFORMED: Final = "it is not a Produce request"


def refusal(header: RequestHeader, frame: memoryview, at: int) -> bytes:
    """The answer to such a request; none at all to one with acks=0."""
    try:
        acks, _ = _ACKS.unpack_from(frame, at)
        answer = _refuse_topics(frame, at + _ACKS.size, header.version)
    except error as short:
        raise KafkaError(ErrorCode.invalid_request, _MALFORMED) from short
    if acks == 0:
        return b""
    if header.version >= 1:
        answer += _COUNT.pack(0)
    answer = _COUNT.pack(header.correlation_id) + answer
    return _COUNT.pack(len(answer)) + answer


def _refuse_topics(frame: memoryview, at: int, version: int) -> bytes:
    (topics,) = _COUNT.unpack_from(frame, at)
    at += _COUNT.size
    answer = [_COUNT.pack(topics)]
    items_left = ITEMS_MAX
    for _ in range(topics):
        (size,) = _SIZE.unpack_from(frame, at)
        name_end = at + _SIZE.size + max(0, size)
        (partitions,) = _COUNT.unpack_from(frame, name_end)
        answer.append(bytes(frame[at : name_end + _COUNT.size]))
        at = name_end + _COUNT.size
        items_left -= 1 + max(0, partitions)
        if items_left < 0:
            raise KafkaError(ErrorCode.invalid_request, f"it names more than {ITEMS_MAX} things")
        for _ in range(partitions):
            index, size = _PARTITION.unpack_from(frame, at)
            at += _PARTITION.size + max(0, size)
            answer.append(_REFUSED.pack(index, _CODE, -1))
            if version == VERSIONS[-1]:
                answer.append(_NO_TIME)
    if at != len(frame):
        raise KafkaError(ErrorCode.invalid_request, _MALFORMED)
    return b"".join(answer)
