"""DescribeLogDirs, API 35: the log dirs of this broker, their room, and what lies in them.

A dir that is offline is named with an error and nothing else; the others go on (S10).
"""

from collections import defaultdict
from functools import partial
from typing import Final

from tidelog.base.errors import ErrorCode
from tidelog.base.ids import TopicPartition
from tidelog.handlers.api import Api, Node, Request
from tidelog.handlers.building import Values
from tidelog.handlers.rows import Answering, Rows, answer_in_slices
from tidelog.log.log_dir import LogDir
from tidelog.log.partition_log import PartitionLog

NO_LAG: Final = -1


def handle(node: Node, request: Request) -> None:
    answer_in_slices(node, request, _answering(node, request))


def _answering(node: Node, request: Request) -> Answering:
    asked = request.body.topics
    wanted = None
    if asked is not None:
        wanted = {(topic.topic, index) for topic in asked for index in topic.partitions}
    results = Rows(request, "results")
    for log_dir in node.logs.dirs:
        results.put((yield from _dir(node, request, log_dir, wanted)))
    return {"error_code": ErrorCode.none, "results": results}


def _dir(
    node: Node, request: Request, log_dir: LogDir, wanted: set[tuple[str, int]] | None
) -> Answering:
    if log_dir.failure is not None:
        return _offline(log_dir)
    try:
        total_bytes, usable_bytes = node.disk.usage(log_dir.path)
    except OSError:
        return _offline(log_dir)
    found: dict[str, Rows] = defaultdict(partial(Rows, request, "results", "topics", "partitions"))
    for name, log in sorted(log_dir.logs.items()):
        if wanted is None or (name.topic, name.partition) in wanted:
            found[name.topic].put(_partition(node, name, log))
        yield None
    topics = Rows(request, "results", "topics")
    for topic, partitions in found.items():
        topics.put({"name": topic, "partitions": partitions})
        yield None
    return {
        "error_code": ErrorCode.none,
        "log_dir": log_dir.path,
        "topics": topics,
        "total_bytes": total_bytes,
        "usable_bytes": usable_bytes,
        "is_cordoned": False,
    }


def _offline(log_dir: LogDir) -> Values:
    return {
        "error_code": ErrorCode.kafka_storage_error,
        "log_dir": log_dir.path,
        "topics": (),
    }


def _partition(node: Node, name: TopicPartition, log: PartitionLog) -> Values:
    """The lag is how far the log is behind what is known to be committed."""
    partition = node.partitions.held(name.topic, name.partition)
    lag = NO_LAG if partition is None else max(0, partition.high_watermark - log.log_end_offset)
    return {
        "partition_index": name.partition,
        "partition_size": log.segments.size,
        "offset_lag": lag,
        "is_future_key": False,
    }


API = Api(key=35, first=1, last=5, handle=handle)
