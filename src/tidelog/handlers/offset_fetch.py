"""OffsetFetch, API 9: how far groups have come. Nothing can be committed here, so nothing was.

It is served because a consumer that assigns partitions to itself asks for its offsets before it
reads, goes by `auto.offset.reset` when it learns that there are none, and cannot do without an
answer: librdkafka, which FindCoordinator has told that this broker looks after its group, ends
with a segmentation fault where a broker does not have this API.
"""

from collections.abc import Generator, Iterable
from typing import Any, Final

from tidelog.base.errors import ErrorCode
from tidelog.handlers.api import Api, Node, Request
from tidelog.handlers.building import Values, id_bytes
from tidelog.handlers.rows import Answering, Rows, answer_in_slices

NO_OFFSET: Final = -1
_MANY_GROUPS_FROM: Final = 8
_BY_ID_FROM: Final = 10


def handle(node: Node, request: Request) -> None:
    answer_in_slices(node, request, _answering(node, request))


def _answering(node: Node, request: Request) -> Answering:
    body = request.body
    if request.version < _MANY_GROUPS_FROM:
        topics = yield from _topics(node, request, (), body.topics)
        return {"topics": topics, "error_code": ErrorCode.none}
    groups = Rows(request, "groups")
    for group in body.groups:
        topics = yield from _topics(node, request, ("groups",), group.topics)
        shown = {"group_id": group.group_id, "topics": topics, "error_code": ErrorCode.none}
        groups.put(shown)
        yield None
    return {"groups": groups}


def _topics(
    node: Node, request: Request, path: tuple[str, ...], asked: Iterable[Any] | None
) -> Generator[None, None, Rows]:
    """Asking for all that was committed names no topic."""
    known = node.metadata.image.topic_names
    topics = Rows(request, *path, "topics")
    for topic in asked or ():
        code, named = ErrorCode.none, {}
        if request.version < _BY_ID_FROM:
            named["name"] = topic.name
        else:
            named["topic_id"] = topic_id = id_bytes(topic.topic_id)
            code = ErrorCode.none if topic_id in known else ErrorCode.unknown_topic_id
        partitions = Rows(request, *path, "topics", "partitions")
        for index in topic.partition_indexes:
            partitions.put(_partition(index, code))
            yield None
        topics.put({**named, "partitions": partitions})
        yield None
    return topics


def _partition(index: int, code: ErrorCode) -> Values:
    return {
        "partition_index": index,
        "committed_offset": NO_OFFSET,
        "metadata": "",
        "error_code": code,
    }


API = Api(key=9, first=1, last=10, handle=handle)
