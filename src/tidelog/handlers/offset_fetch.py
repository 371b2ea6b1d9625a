"""OffsetFetch, API 9: how far groups have come. Nothing can be committed here, so nothing was.

It is served because a consumer that assigns partitions to itself asks for its offsets before it
reads, goes by `auto.offset.reset` when it learns that there are none, and cannot do without an
answer: librdkafka, which FindCoordinator has told that this broker looks after its group, ends
with a segmentation fault where a broker does not have this API.
"""

from collections.abc import Iterable
from typing import Any, Final

from tidelog.base.errors import ErrorCode
from tidelog.handlers.api import Api, Node, Request
from tidelog.handlers.building import Values, id_bytes, respond

NO_OFFSET: Final = -1
_MANY_GROUPS_FROM: Final = 8
_BY_ID_FROM: Final = 10


def handle(node: Node, request: Request) -> Any:
    body = request.body
    if request.version < _MANY_GROUPS_FROM:
        topics = _topics(node, request, body.topics)
        return respond(request, {"topics": topics, "error_code": ErrorCode.none})
    groups = [
        {
            "group_id": group.group_id,
            "topics": _topics(node, request, group.topics),
            "error_code": ErrorCode.none,
        }
        for group in body.groups
    ]
    return respond(request, {"groups": groups})


def _topics(node: Node, request: Request, asked: Iterable[Any] | None) -> list[Values]:
    """Asking for all that was committed names no topic."""
    if request.version < _BY_ID_FROM:
        return [_topic(topic, ErrorCode.none, name=topic.name) for topic in asked or ()]
    known = node.metadata.image.topic_names
    shown = []
    for topic in asked or ():
        topic_id = id_bytes(topic.topic_id)
        code = ErrorCode.none if topic_id in known else ErrorCode.unknown_topic_id
        shown.append(_topic(topic, code, topic_id=topic_id))
    return shown


def _topic(topic: Any, code: ErrorCode, **named: str | bytes) -> Values:
    partitions = [
        {
            "partition_index": index,
            "committed_offset": NO_OFFSET,
            "metadata": "",
            "error_code": code,
        }
        for index in topic.partition_indexes
    ]
    return {**named, "partitions": partitions}


API = Api(key=9, first=1, last=10, handle=handle)
