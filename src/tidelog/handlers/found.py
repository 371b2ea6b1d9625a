"""What a fetch finds at its positions, and what is to be known of that before it is sent."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from tidelog.base.errors import ErrorCode
from tidelog.handlers.api import Request
from tidelog.handlers.ranges import must_be_read
from tidelog.log.partition_log import Slice
from tidelog.partition import Partition
from tidelog.serving.fetch_sessions import Position
from tidelog.wire.fetch import FetchAnswer
from tidelog.wire.leader_tags import FetchTags, tag_fetch_response

COPIED_BYTES_MAX: Final = 96 * 1024
NO_PREFERRED_REPLICA: Final = -1
_GOOD: Final = int(ErrorCode.none)
_NOT_THERE: Final = int(ErrorCode.kafka_storage_error)


class Found(NamedTuple):
    """What there is at one position."""

    position: Position
    error: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: list[tuple[int, int]] | None
    records: Slice | bytes | None
    size: int
    diverging: tuple[int, int] | None = None
    """For a follower whose log is not a part of this one."""


class Answer(NamedTuple):
    session_id: int
    error: int
    found: Sequence[Found]


def row_of(found: Found) -> FetchAnswer:
    """As it is written."""
    position = found.position
    return (
        position.topic,
        position.index,
        found.error,
        found.high_watermark,
        found.last_stable_offset,
        found.log_start_offset,
        found.aborted,
        NO_PREFERRED_REPLICA,
        found.size,
    )


def tag_diverging(request: Request, texts: list[bytes], found: Sequence[Found]) -> None:
    """Puts into a written answer where logs of followers part from this one."""
    diverging = {
        row: FetchTags(diverging=here.diverging)
        for row, here in enumerate(found)
        if here.diverging is not None
    }
    if diverging:
        tag_fetch_response(texts, request.version, diverging)


def copied(found: Found) -> Found:
    """A small range as bytes: that is cheaper to send together with its answer."""
    records = found.records
    if not isinstance(records, Slice) or records.size > COPIED_BYTES_MAX:
        return found
    try:
        data = records.file.pread(records.size, records.position)
    except OSError as error:
        return failed(found, error)
    if len(data) < records.size:
        # The log was cut there meanwhile, or somebody has shortened the file.
        return found._replace(error=_NOT_THERE, records=None, size=0)
    return found._replace(records=data)


def failed(found: Found, error: Exception | None) -> Found:
    """What a consumer is told of a range that the disk did not give."""
    assert isinstance(found.position.partition, Partition)
    assert isinstance(error, OSError)
    code = found.position.partition.log.failed(error).code
    return found._replace(error=int(code), records=None, size=0)


def is_news(found: Found) -> bool:
    """Whether a consumer with a session has to be told."""
    position = found.position
    return (
        found.size > 0
        or found.error != _GOOD
        or found.diverging is not None
        or found.high_watermark != position.told_high_watermark
        or found.log_start_offset != position.told_log_start
    )


def is_cold(found: Found) -> bool:
    records, partition = found.records, found.position.partition
    if not isinstance(records, Slice) or not isinstance(partition, Partition):
        return False
    return must_be_read(partition.log, records)
