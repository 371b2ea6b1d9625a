"""OffsetCommit, API 8: keeps how far a group has come (A5).

Offsets of partitions that do not exist are refused one by one; from version 10 on topics are named
by id. A request with very many of them is written in parts.
"""

from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from itertools import islice
from typing import Any, Final

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.cluster.image import TopicInfo
from tidelog.groups.requests import Commit, Identity
from tidelog.groups.shard import GroupShard
from tidelog.handlers.api import Api, Node, Request
from tidelog.handlers.building import Values, id_bytes, respond
from tidelog.handlers.rows import Answering, Rows, answer_in_slices

_BY_ID_FROM: Final = 10
_FEW: Final = 50
_PART: Final = 500
_MS: Final = timedelta(milliseconds=1)


def handle(node: Node, request: Request) -> None:
    """Nearly all of them are small, and are dealt with at once."""
    if sum(len(topic.partitions) for topic in request.body.topics) > _FEW:
        answer_in_slices(node, request, _answering(node, request))
        return
    rows = list(_rows(node, request))
    answer = partial(_answer, request, rows)
    wanted = [row for row in rows if row.commit is not None]
    try:
        shard = node.coordinators.groups.find(request.body.group_id)
    except KafkaError as error:
        for row in rows:
            row.code = error.code
        answer()
    else:
        _commit_part(node, request, shard, wanted, answer)


def _answer(request: Request, rows: list["_Row"]) -> None:
    outcomes = iter(rows)
    topics = []
    for topic in request.body.topics:
        partitions = [
            {"partition_index": row.partition, "error_code": row.code}
            for row in islice(outcomes, len(topic.partitions))
        ]
        topics.append({**_named(request, topic), "partitions": partitions})
    request.answer(respond(request, {"topics": topics}))


def _answering(node: Node, request: Request) -> Answering:
    rows: list[_Row] = []
    for row in _rows(node, request):
        rows.append(row)
        yield None
    try:
        shard = node.coordinators.groups.find(request.body.group_id)
    except KafkaError as error:
        for row in rows:
            row.code = error.code
    else:
        wanted = [row for row in rows if row.commit is not None]
        for start in range(0, len(wanted), _PART):
            yield partial(_commit_part, node, request, shard, wanted[start : start + _PART])
    outcomes = iter(rows)
    topics = Rows(request, "topics")
    for topic in request.body.topics:
        partitions = Rows(request, "topics", "partitions")
        for _ in topic.partitions:
            row = next(outcomes)
            partitions.put({"partition_index": row.partition, "error_code": row.code})
            yield None
        topics.put({**_named(request, topic), "partitions": partitions})
    return {"topics": topics}


def _commit_part(
    node: Node, request: Request, shard: GroupShard, part: list["_Row"], then: Callable[[], None]
) -> None:
    def answered(codes: list[ErrorCode]) -> None:
        for row, code in zip(part, codes, strict=True):
            row.code = code
        if len(part) < _PART:
            then()
        else:
            node.loop.call_soon(then)

    body = request.body
    instance_id = getattr(body, "group_instance_id", None)
    epoch = body.generation_id_or_member_epoch
    try:
        shard.committing.commit(
            Identity(body.group_id, body.member_id, instance_id, epoch),
            [row.commit for row in part if row.commit is not None],
            answered,
            version=request.version,
            retention_ms=_retention_ms(body),
        )
    except KafkaError as error:
        answered([error.code] * len(part))


class _Row:
    """A partition of a request, what is to be kept for it, and what became of that."""

    __slots__ = ("code", "commit", "partition")

    def __init__(self, partition: int, code: ErrorCode) -> None:
        self.partition = partition
        self.code = code
        self.commit: Commit | None = None


def _rows(node: Node, request: Request) -> Iterator[_Row]:
    image = node.metadata.image
    is_by_id = request.version >= _BY_ID_FROM
    for topic in request.body.topics:
        name = image.topic_names.get(id_bytes(topic.topic_id)) if is_by_id else topic.name
        known = None if name is None else image.topics.get(name)
        unknown = ErrorCode.unknown_topic_or_partition
        if known is None and is_by_id:
            unknown = ErrorCode.unknown_topic_id
        for partition in topic.partitions:
            row = _Row(partition.partition_index, unknown)
            row.commit = _commit(known, partition)
            yield row


def _commit(topic: TopicInfo | None, partition: Any) -> Commit | None:
    index = partition.partition_index
    if topic is None or not 0 <= index < len(topic.partitions):
        return None
    return Commit(
        topic.name,
        topic.topic_id,
        index,
        partition.committed_offset,
        getattr(partition, "committed_leader_epoch", -1),
        partition.committed_metadata or "",
    )


def _retention_ms(body: Any) -> int:
    retention: timedelta | None = getattr(body, "retention_time", None)
    return -1 if retention is None or retention < timedelta(0) else retention // _MS


def _named(request: Request, topic: Any) -> Values:
    if request.version >= _BY_ID_FROM:
        return {"topic_id": id_bytes(topic.topic_id)}
    return {"name": topic.name}


API = Api(key=8, first=2, last=10, handle=handle)
