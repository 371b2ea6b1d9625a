"""DescribeTopicPartitions, API 75: topics in the order of their names, a page at a time.

A page has at most as many partitions as client and settings allow; its cursor says where the
next one begins. Unlike Metadata it makes no topics and names no brokers.
"""

from collections.abc import Mapping
from typing import Any

from tidelog.base.errors import ErrorCode
from tidelog.base.ids import is_internal, is_legal_topic
from tidelog.cluster.image import NO_TOPIC_ID, Image
from tidelog.handlers.api import Api, Node, Request
from tidelog.handlers.building import Values
from tidelog.handlers.describing import TOPIC_OPERATIONS, partition_fields
from tidelog.handlers.rows import Answering, Rows, answer_in_slices


def handle(node: Node, request: Request) -> None:
    answer_in_slices(node, request, _answering(node, request))


def _answering(node: Node, request: Request) -> Answering:
    body = request.body
    if not _is_valid(body):
        topics = Rows(request, "topics")
        for topic in body.topics:
            topics.put(_topic_only(topic.name, ErrorCode.invalid_request))
            yield None
        return {"topics": topics, "next_cursor": None}
    image = node.metadata.image
    names = [topic.name for topic in body.topics] or list(image.topics)
    first = body.cursor.topic_name if body.cursor is not None else ""
    wanted = sorted({name for name in names if name >= first})
    limit = node.settings.whole("max.request.partition.size.limit")
    room = max(1, min(limit, body.response_partition_limit))
    return (yield from _page(image, request, wanted, room))


def _is_valid(body: Any) -> bool:
    if body.cursor is None:
        return True
    named = {topic.name for topic in body.topics}
    is_named = not named or body.cursor.topic_name in named
    return is_named and body.cursor.partition_index >= 0


def _page(image: Image, request: Request, names: list[str], room: int) -> Answering:
    cursor = request.body.cursor
    topics = Rows(request, "topics")
    for name in names:
        if room == 0:
            return {"topics": topics, "next_cursor": _cursor(name, 0)}
        begins_here = cursor is not None and cursor.topic_name == name
        start = cursor.partition_index if begins_here else 0
        shown = _topic(image, request.listener, name, slice(start, start + room))
        topics.put(shown)
        yield None
        room -= len(shown["partitions"])
        end = start + len(shown["partitions"])
        if name in image.topics and end < len(image.topics[name].partitions):
            return {"topics": topics, "next_cursor": _cursor(name, end)}
    return {"topics": topics, "next_cursor": None}


def _cursor(name: str, partition: int) -> Mapping[str, Any]:
    return {"topic_name": name, "partition_index": partition}


def _topic_only(name: str, code: ErrorCode) -> Values:
    return {
        "error_code": code,
        "name": name,
        "topic_id": NO_TOPIC_ID,
        "is_internal": is_internal(name),
        "partitions": (),
    }


def _topic(image: Image, listener: str, name: str, page: slice) -> Values:
    topic = image.topics.get(name)
    if topic is None:
        legal = is_legal_topic(name)
        unknown, invalid = ErrorCode.unknown_topic_or_partition, ErrorCode.invalid_topic_exception
        shown = _topic_only(name, unknown if legal else invalid)
        return {**shown, "topic_authorized_operations": TOPIC_OPERATIONS}
    partitions = list(enumerate(topic.partitions))[page]
    return {
        **_topic_only(name, ErrorCode.none),
        "topic_authorized_operations": TOPIC_OPERATIONS,
        "topic_id": topic.topic_id,
        "partitions": [
            {
                **partition_fields(image, index, partition, listener),
                "eligible_leader_replicas": (),
                "last_known_elr": (),
            }
            for index, partition in partitions
        ],
    }


API = Api(key=75, first=0, last=0, handle=handle)
