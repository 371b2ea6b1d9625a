"""OffsetCommit, API 8: keeps how far a group has come (A5).

Offsets of partitions that do not exist are refused one by one; from version 10 on topics are named
by id. A request with very many of them is written in parts.
"""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any, Final

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.cluster.image import TopicInfo
from tidelog.groups.requests import Commit, Identity
from tidelog.groups.shard import GroupShard
from tidelog.handlers.api import Api, Node, Request
from tidelog.handlers.building import Values, id_bytes, respond

_BY_ID_FROM: Final = 10
_PART: Final = 500
_MS: Final = timedelta(milliseconds=1)


def handle(node: Node, request: Request) -> Any:
    try:
        shard = node.coordinators.groups.find(request.body.group_id)
    except KafkaError as error:
        return _respond(request, _refused(request, error.code))
    work = _Work(node, request, shard)
    work.go_on()
    return None


class _Work:
    """A request whose offsets are committed, part by part."""

    def __init__(self, node: Node, request: Request, shard: GroupShard) -> None:
        self._node = node
        self._request = request
        self._shard = shard
        body = request.body
        self._who = Identity(
            body.group_id,
            body.member_id,
            getattr(body, "group_instance_id", None),
            body.generation_id_or_member_epoch,
        )
        self._rows = list(_rows(node, request))
        self._at = 0
        self._wanted = [number for number, row in enumerate(self._rows) if row.commit is not None]

    def go_on(self) -> None:
        part = self._wanted[self._at : self._at + _PART]
        self._at += _PART
        if not part:
            self._request.answer(_respond(self._request, self._rows))
            return
        commits = [commit for n in part if (commit := self._rows[n].commit) is not None]

        def answered(codes: list[ErrorCode]) -> None:
            self._note(part, codes)
            if self._at < len(self._wanted):
                now_ms = self._node.clock.monotonic_ms()
                self._node.loop.call_at(now_ms, self.go_on)
            else:
                self.go_on()

        try:
            self._shard.committing.commit(
                self._who,
                commits,
                answered,
                version=self._request.version,
                retention_ms=_retention_ms(self._request.body),
            )
        except KafkaError as error:
            answered([error.code] * len(part))

    def _note(self, part: list[int], codes: list[ErrorCode]) -> None:
        for number, code in zip(part, codes, strict=True):
            self._rows[number].code = code


class _Row:
    """A partition of a request, what is to be kept for it, and what became of that."""

    __slots__ = ("code", "commit", "partition", "topic")

    def __init__(self, topic: Any, partition: int, code: ErrorCode) -> None:
        self.topic = topic
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
            row = _Row(topic, partition.partition_index, unknown)
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


def _refused(request: Request, code: ErrorCode) -> list[_Row]:
    return [
        _Row(topic, partition.partition_index, code)
        for topic in request.body.topics
        for partition in topic.partitions
    ]


def _retention_ms(body: Any) -> int:
    retention: timedelta | None = getattr(body, "retention_time", None)
    return -1 if retention is None or retention < timedelta(0) else retention // _MS


def _respond(request: Request, rows: list[_Row]) -> Any:
    """Topics in the order of the request, one that comes twice as often as it does."""
    outcomes = iter(rows)
    topics: list[Values] = []
    for topic in request.body.topics:
        partitions = [
            {"partition_index": row.partition, "error_code": row.code}
            for row, _ in zip(outcomes, topic.partitions, strict=False)
        ]
        topics.append({**_named(request, topic), "partitions": partitions})
    return respond(request, {"topics": topics})


def _named(request: Request, topic: Any) -> Values:
    if request.version >= _BY_ID_FROM:
        return {"topic_id": id_bytes(topic.topic_id)}
    return {"name": topic.name}


API = Api(key=8, first=2, last=10, handle=handle)
