"""ListOffsets: where a partition begins and ends, and where it was at a time.

Special timestamps stand for the end (-1), the start (-2), the record with the largest
timestamp (-3), the local start (-4) and, with tiered storage, what is stored elsewhere (-5, -6),
of which there is nothing here. A consumer that reads committed transactions only is given the
last stable offset as the end.
"""

from typing import Any, Final

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.base.ids import NO_TIMESTAMP
from tidelog.handlers.api import Api, Node, Request
from tidelog.handlers.building import Values
from tidelog.handlers.local_partitions import find_local
from tidelog.handlers.rows import Answering, Rows, answer_in_slices
from tidelog.handlers.time_search import Waiting, find_in_steps, largest_in_steps
from tidelog.partition import Partition
from tidelog.records.time_lookup import Place

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
EARLIEST_PENDING_UPLOAD: Final = -6
_SINCE: Final = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
_NOT_AVAILABLE_FROM: Final = 5
READ_COMMITTED: Final = 1
NO_OFFSET: Final = -1


def handle(node: Node, request: Request) -> None:
    answer_in_slices(node, request, _answering(node, request))


def _answering(node: Node, request: Request) -> Answering:
    """To find a time, batches are read: that takes long, with many partitions or large batches."""
    topics = Rows(request, "topics")
    for topic in request.body.topics:
        partitions = Rows(request, "topics", "partitions")
        for asked in topic.partitions:
            partitions.put((yield from _partition(node, request, topic.name, asked)))
            yield None
        topics.put({"name": topic.name, "partitions": partitions})
        yield None
    return {"topics": topics}


def _partition(node: Node, request: Request, topic: str, asked: Any) -> Waiting[Values]:
    try:
        partition = find_local(node, topic, asked.partition_index)
        partition.check_epoch(getattr(asked, "current_leader_epoch", -1))
        committed_only = getattr(request.body, "isolation_level", 0) == READ_COMMITTED
        wanted = _wanted(request, asked)
        offset, timestamp = yield from _find(node, partition, wanted, committed_only)
    except KafkaError as error:
        return _row(asked, _code_for(error, request.version), (NO_OFFSET, NO_TIMESTAMP), -1)
    epoch = partition.leader_epoch
    if offset != NO_OFFSET and offset < partition.log.log_end_offset:
        epoch = partition.log.epochs.at(offset)
    return _row(asked, ErrorCode.none, (offset, timestamp), epoch if offset != NO_OFFSET else -1)


def _code_for(error: KafkaError, version: int) -> ErrorCode:
    """Who asks in an older version does not know that code, and would not come again (KIP-207)."""
    if error.code is ErrorCode.offset_not_available and version < _NOT_AVAILABLE_FROM:
        return ErrorCode.leader_not_available
    return error.code


def _wanted(request: Request, asked: Any) -> int:
    timestamp: int = asked.timestamp
    if request.version < _SINCE.get(timestamp, 0):
        raise KafkaError(
            ErrorCode.unsupported_version, f"timestamp {timestamp} in version {request.version}"
        )
    return timestamp


def _row(asked: Any, code: ErrorCode, place: Place, leader_epoch: int) -> Values:
    return {
        "partition_index": asked.partition_index,
        "error_code": code,
        "offset": place[0],
        "timestamp": place[1],
        "leader_epoch": leader_epoch,
    }


def _find(node: Node, partition: Partition, timestamp: int, committed_only: bool) -> Waiting[Place]:
    """The offset for a time or one of the special timestamps; (-1, -1) if there is none."""
    log = partition.log
    log.check_online()
    if timestamp == LATEST:
        partition.replica.check_settled()
        return _end(partition, committed_only), NO_TIMESTAMP
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return log.log_start_offset, NO_TIMESTAMP
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return NO_OFFSET, NO_TIMESTAMP
    if timestamp == MAX_TIMESTAMP:
        timestamp = yield from largest_in_steps(node, partition)
        if timestamp < 0:
            return NO_OFFSET, NO_TIMESTAMP
    elif timestamp < 0:
        raise KafkaError(ErrorCode.unsupported_version, f"timestamp {timestamp} means nothing")
    found = yield from find_in_steps(node, partition, timestamp)
    if found is None or found[0] >= _end(partition, committed_only):
        # It may lie between here and what readers have seen before the leader changed.
        partition.replica.check_settled()
        return NO_OFFSET, NO_TIMESTAMP
    return found


def _end(partition: Partition, committed_only: bool) -> int:
    return partition.last_stable_offset if committed_only else partition.high_watermark


API = Api(key=2, first=1, last=11, handle=handle)
