"""OffsetForLeaderEpoch: where an epoch ended, so that a reader notices what was truncated (L2).

The answer is the largest epoch this log knows that is not above the one asked for, and the
offset behind its last record; for the current epoch that is the end of the log. Of an epoch that is
still to come nothing is known: who has it read another topic of that name.
"""

from typing import Any

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.handlers.api import Api, Node, Request
from tidelog.handlers.building import Values
from tidelog.handlers.local_partitions import find_local
from tidelog.handlers.rows import Answering, Rows, answer_in_slices

UNKNOWN = -1


def handle(node: Node, request: Request) -> None:
    answer_in_slices(node, request, _answering(node, request))


def _answering(node: Node, request: Request) -> Answering:
    topics = Rows(request, "topics")
    for topic in request.body.topics:
        partitions = Rows(request, "topics", "partitions")
        for asked in topic.partitions:
            partitions.put(_partition(node, topic.topic, asked))
            yield None
        topics.put({"topic": topic.topic, "partitions": partitions})
        yield None
    return {"topics": topics}


def _partition(node: Node, topic: str, asked: Any) -> Values:
    try:
        partition = find_local(node, topic, asked.partition)
        partition.check_epoch(asked.current_leader_epoch)
    except KafkaError as error:
        return _row(asked.partition, error.code, UNKNOWN, UNKNOWN)
    if asked.leader_epoch > partition.leader_epoch:
        return _row(asked.partition, ErrorCode.none, UNKNOWN, UNKNOWN)
    epoch, end = partition.replica.end_of(asked.leader_epoch)
    return _row(asked.partition, ErrorCode.none, epoch, end)


def _row(partition: int, code: ErrorCode, epoch: int, end_offset: int) -> Values:
    return {
        "partition": partition,
        "error_code": code,
        "leader_epoch": epoch,
        "end_offset": end_offset,
    }


API = Api(key=23, first=2, last=4, handle=handle)
