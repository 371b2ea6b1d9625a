"""OffsetFetch, API 9: how far groups have come; from version 8 on of several groups at once (A5).

Everything that was committed is asked for by naming no topic. From version 7 on a client can ask
not to be told of an offset that an open transaction is about to replace, and from version 10 on
topics are named by id. Before version 2 there is no place for an error but in every partition.
"""

from collections.abc import Generator, Iterable
from functools import partial
from typing import Any, Final

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.groups.records import NO_TOPIC_ID, OffsetKey, OffsetValue
from tidelog.groups.shard import GroupShard
from tidelog.handlers.api import Api, Node, Request
from tidelog.handlers.building import Values, id_bytes
from tidelog.handlers.group_requests import waited_for
from tidelog.handlers.rows import Answering, Rows, answer_in_slices
from tidelog.slices import Ask

NO_OFFSET: Final = -1
_ERRORS_OF_GROUPS_FROM: Final = 2
_MANY_GROUPS_FROM: Final = 8
_BY_ID_FROM: Final = 10
_LOOK_ELSEWHERE: Final = (
    ErrorCode.unknown_topic_or_partition,
    ErrorCode.not_enough_replicas,
    ErrorCode.not_enough_replicas_after_append,
    ErrorCode.request_timed_out,
    ErrorCode.not_leader_or_follower,
    ErrorCode.kafka_storage_error,
)
"""What may mean that another broker has taken over: clients ask there at not_coordinator."""

_Topics = Generator[Ask | None, None, tuple[Rows, ErrorCode]]
_Found = OffsetValue | ErrorCode | None


def handle(node: Node, request: Request) -> None:
    answer_in_slices(node, request, _answering(node, request))


def _answering(node: Node, request: Request) -> Answering:
    body = request.body
    if request.version < _MANY_GROUPS_FROM:
        topics, code = yield from _of_group(node, request, (), body)
        return {"topics": topics, "error_code": code}
    groups = Rows(request, "groups")
    for group in body.groups:
        topics, code = yield from _of_group(node, request, ("groups",), group)
        groups.put({"group_id": group.group_id, "topics": topics, "error_code": code})
        yield None
    return {"groups": groups}


def _of_group(node: Node, request: Request, path: tuple[str, ...], group: Any) -> _Topics:
    """What is told has been committed when it is told. Who asks for what is stable reads from there
    on in transactions: it is not told by a broker that another one may have replaced."""
    try:
        shard = node.coordinators.groups.find(group.group_id)
        shard.committing.check_fetch(
            group.group_id, getattr(group, "member_id", None), getattr(group, "member_epoch", -1)
        )
    except KafkaError as error:
        return (yield from _refused(request, path, group, error.code))
    topics = Rows(request, *path, "topics")
    if group.topics is None:
        yield from _all(node, request, shard, group.group_id, topics)
    else:
        for topic in group.topics:
            yield from _asked(node, request, shard, (group.group_id, topic), topics)
    is_certain = partial(shard.confirm, group.group_id)
    failure = yield from waited_for(is_certain if _is_stable(request) else shard.settle)
    if failure is not None:
        code = ErrorCode.not_coordinator if failure.code in _LOOK_ELSEWHERE else failure.code
        return (yield from _refused(request, path, group, code))
    return topics, ErrorCode.none


def _asked(
    node: Node, request: Request, shard: GroupShard, asked: tuple[str, Any], topics: Rows
) -> Generator[None, None, None]:
    group_id, topic = asked
    image = node.metadata.image
    topic_id, name = NO_TOPIC_ID, None
    if request.version >= _BY_ID_FROM:
        topic_id = id_bytes(topic.topic_id)
        name = image.topic_names.get(topic_id)
    else:
        name = topic.name
        known = image.topics.get(name)
        topic_id = NO_TOPIC_ID if known is None else known.topic_id
    path = ("topics",) if request.version < _MANY_GROUPS_FROM else ("groups", "topics")
    partitions = Rows(request, *path, "partitions")
    for index in topic.partition_indexes:
        found: _Found = ErrorCode.unknown_topic_id
        if name is not None:
            key = OffsetKey(group_id, name, index)
            found = shard.committing.look_up(key, topic_id, is_stable=_is_stable(request))
        partitions.put(_partition(index, found))
        yield None
    topics.put({"name": name, "topic_id": topic_id, "partitions": partitions})
    yield None


def _all(
    node: Node, request: Request, shard: GroupShard, group_id: str, topics: Rows
) -> Generator[None, None, None]:
    """Of topics that are asked for by id those are left out that there are no more. Who asks for
    what is stable is told also where a first offset may be about to be committed."""
    path = ("topics",) if request.version < _MANY_GROUPS_FROM else ("groups", "topics")
    pending = shard.offsets.pending_of_group(group_id) if _is_stable(request) else {}
    for name in dict.fromkeys([*shard.offsets.of_group(group_id), *pending]):
        known = node.metadata.image.topics.get(name)
        topic_id = NO_TOPIC_ID if known is None else known.topic_id
        if known is None and request.version >= _BY_ID_FROM:
            continue
        partitions = Rows(request, *path, "partitions")
        committed = shard.offsets.of_group(group_id).get(name, ())
        for index in dict.fromkeys([*committed, *pending.get(name, ())]):
            key = OffsetKey(group_id, name, index)
            found = shard.committing.look_up(key, topic_id, is_stable=_is_stable(request))
            if found is not None:
                partitions.put(_partition(index, found))
            yield None
        topics.put({"name": name, "topic_id": topic_id, "partitions": partitions})
        yield None


def _is_stable(request: Request) -> bool:
    return bool(getattr(request.body, "require_stable", False))


def _refused(request: Request, path: tuple[str, ...], group: Any, code: ErrorCode) -> _Topics:
    topics = Rows(request, *path, "topics")
    if request.version < _ERRORS_OF_GROUPS_FROM:
        for topic in group.topics:
            partitions = _refused_partitions(request, topic.partition_indexes, code)
            topics.put({"name": topic.name, "partitions": partitions})
            yield None
    return topics, code


def _refused_partitions(request: Request, indexes: Iterable[int], code: ErrorCode) -> Rows:
    partitions = Rows(request, "topics", "partitions")
    for index in indexes:
        partitions.put(_partition(index, code))
    return partitions


def _partition(index: int, found: _Found) -> Values:
    is_there = isinstance(found, OffsetValue)
    value = found if isinstance(found, OffsetValue) else OffsetValue(NO_OFFSET)
    return {
        "partition_index": index,
        "committed_offset": value.offset,
        "committed_leader_epoch": value.leader_epoch,
        "metadata": value.metadata,
        "error_code": ErrorCode.none if is_there or found is None else found,
    }


API = Api(key=9, first=1, last=10, handle=handle)
