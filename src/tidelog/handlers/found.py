"""What a fetch finds at its positions, and what is to be known of that before it is sent."""

from collections.abc import Sequence
from typing import Final

from tidelog.base.errors import ErrorCode
from tidelog.handlers.api import Request
from tidelog.handlers.ranges import must_be_read
from tidelog.log.partition_log import Slice
from tidelog.partition import Partition
from tidelog.serving.fetch_sessions import Position
from tidelog.wire.fetch import STORAGE_ERRORS, FetchAnswer
from tidelog.wire.leader_tags import FetchTags, tag_fetch_response

COPIED_BYTES_MAX: Final = 96 * 1024
NO_PREFERRED_REPLICA: Final = -1
UNKNOWN: Final = -1
_GOOD: Final = int(ErrorCode.none)
_FAILED: Final = int(ErrorCode.kafka_storage_error)
_LED_ELSEWHERE: Final = int(ErrorCode.not_leader_or_follower)


class Found:
    """What there is at one position."""

    __slots__ = (
        "aborted",
        "diverging",
        "error",
        "high_watermark",
        "last_stable_offset",
        "log_start_offset",
        "partition",
        "position",
        "records",
        "size",
    )

    def __init__(self, position: Position, error: int = _GOOD) -> None:
        self.position = position
        self.partition: Partition | None = None
        """Where that was found: the position may be led elsewhere before it is sent."""
        self.error = error
        self.high_watermark = UNKNOWN
        self.last_stable_offset = UNKNOWN
        self.log_start_offset = UNKNOWN
        self.aborted: list[tuple[int, int]] | None = None
        self.records: Slice | bytes | None = None
        self.size = 0
        self.diverging: tuple[int, int] | None = None
        """For a follower whose log is not a part of this one."""

    def refuse(self, error: int) -> "Found":
        self.error = error
        self.records = None
        self.size = 0
        return self


class Answer:
    __slots__ = ("error", "found", "session_id")

    def __init__(self, session_id: int, error: int, found: Sequence[Found]) -> None:
        self.session_id = session_id
        self.error = error
        self.found = found


def found_at(position: Position, partition: Partition, records: Slice | None) -> Found:
    found = Found(position)
    found.partition = partition
    found.high_watermark = partition.high_watermark
    found.last_stable_offset = partition.last_stable_offset
    found.log_start_offset = partition.log.log_start_offset
    if records is not None:
        found.records, found.size = records, records.size
    return found


def row_of(found: Found, version: int) -> FetchAnswer:
    """As it is written. Who asks in an older version would not look for another leader when told
    of a disk that has failed."""
    position, error = found.position, found.error
    if error == _FAILED and version < STORAGE_ERRORS:
        error = _LED_ELSEWHERE
    return (
        position.topic,
        position.index,
        error,
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
        return found.refuse(_FAILED)
    found.records = data
    return found


def failed(found: Found, error: Exception | None) -> Found:
    """What a consumer is told of a range that the disk did not give."""
    assert found.partition is not None
    assert isinstance(error, OSError)
    code = found.partition.log.failed(error).code
    return found.refuse(int(code))


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
    records, partition = found.records, found.partition
    if not isinstance(records, Slice) or partition is None:
        return False
    try:
        return must_be_read(partition.log, records)
    except OSError:
        return True  # Whoever reads it finds out what is wrong.
