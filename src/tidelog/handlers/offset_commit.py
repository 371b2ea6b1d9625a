"""OffsetCommit, API 8: keeps how far a group has come (A5).

Offsets of partitions that do not exist are refused one by one; from version 10 on topics are named
by id.
"""

from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from itertools import islice
from typing import Any, Final

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.groups.requests import Identity
from tidelog.groups.shard import GroupShard
from tidelog.handlers.api import Api, Node, Part, Request, write_entity
from tidelog.handlers.building import Values, id_bytes
from tidelog.handlers.offset_rows import (
    Keep,
    Row,
    answered_in_slices,
    are_many,
    keep_in_parts,
    keep_rows,
    refuse,
    rows_of,
    wanted,
)
from tidelog.handlers.rows import Answering, answer_in_slices
from tidelog.wire.offset_commit import write_offset_commit_response

_BY_ID_FROM: Final = 10
_MS: Final = timedelta(milliseconds=1)


def handle(node: Node, request: Request) -> list[Row] | None:
    if are_many(request):
        answer_in_slices(node, request, _answering(node, request))
        return None
    rows = list(_rows(node, request))
    try:
        shard = node.coordinators.groups.find(request.body.group_id)
    except KafkaError as error:
        refuse(rows, error.code)
        return rows
    keep_rows(wanted(rows), _keep(request, shard), partial(request.answer, rows))
    return None


def _answering(node: Node, request: Request) -> Answering:
    rows: list[Row] = []
    for row in _rows(node, request):
        rows.append(row)
        yield None
    try:
        shard = node.coordinators.groups.find(request.body.group_id)
    except KafkaError as error:
        refuse(rows, error.code)
    else:
        yield from keep_in_parts(node, wanted(rows), _keep(request, shard))
    topics = yield from answered_in_slices(request, rows, partial(_named, request))
    return {"topics": topics}


def _keep(request: Request, shard: GroupShard) -> Keep:
    body = request.body
    instance_id = getattr(body, "group_instance_id", None)
    epoch = body.generation_id_or_member_epoch
    return partial(
        shard.committing.commit,
        Identity(body.group_id, body.member_id, instance_id, epoch),
        version=request.version,
        retention_ms=_retention_ms(body),
    )


def _rows(node: Node, request: Request) -> Iterator[Row]:
    image = node.metadata.image
    is_by_id = request.version >= _BY_ID_FROM
    for topic in request.body.topics:
        name = image.topic_names.get(id_bytes(topic.topic_id)) if is_by_id else topic.name
        known = None if name is None else image.topics.get(name)
        unknown = ErrorCode.unknown_topic_or_partition
        if known is None and is_by_id:
            unknown = ErrorCode.unknown_topic_id
        yield from rows_of(known, topic, unknown)


def _retention_ms(body: Any) -> int:
    retention: timedelta | None = getattr(body, "retention_time", None)
    return -1 if retention is None or retention < timedelta(0) else retention // _MS


def _named(request: Request, topic: Any) -> Values:
    if request.version >= _BY_ID_FROM:
        return {"topic_id": id_bytes(topic.topic_id)}
    return {"name": topic.name}


def write(request: Request, response: Any) -> list[Part]:
    """Of rows, or of a response that was made in slices."""
    if not isinstance(response, list):
        return write_entity(request, response)
    outcomes, is_by_id = iter(response), request.version >= _BY_ID_FROM
    topics = [
        (
            id_bytes(topic.topic_id) if is_by_id else topic.name,
            [(row.partition, row.code) for row in islice(outcomes, len(topic.partitions))],
        )
        for topic in request.body.topics
    ]
    return [write_offset_commit_response(request.correlation_id, request.version, topics)]


API = Api(key=8, first=2, last=10, handle=handle, write=write)
