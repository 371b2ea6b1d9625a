"""OffsetDelete, API 47: forgets offsets of a group for topics that no member of it reads (A5)."""

from collections.abc import Callable
from functools import partial
from typing import Any

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.groups.records import OffsetKey
from tidelog.groups.shard import GroupShard
from tidelog.handlers.api import Api, Node, Request
from tidelog.handlers.group_requests import find_group
from tidelog.handlers.rows import Answering, Rows, answer_in_slices


def handle(node: Node, request: Request) -> None:
    answer_in_slices(node, request, _answering(node, request))


def _answering(node: Node, request: Request) -> Answering:
    body = request.body
    refusal: list[KafkaError] = []
    known: dict[OffsetKey, ErrorCode] = {}
    for topic in body.topics:
        info = node.metadata.image.topics.get(topic.name)
        count = 0 if info is None else len(info.partitions)
        for partition in topic.partitions:
            if 0 <= partition.partition_index < count:
                key = OffsetKey(body.group_id, topic.name, partition.partition_index)
                known[key] = ErrorCode.none
            yield None
    try:
        shard = find_group(node, body.group_id)
        yield partial(_delete, shard, body.group_id, known, refusal)
    except KafkaError as error:
        refusal.append(error)
    if refusal:
        return {"error_code": refusal[0].code, "topics": ()}
    topics = Rows(request, "topics")
    for topic in body.topics:
        partitions = Rows(request, "topics", "partitions")
        for partition in topic.partitions:
            partitions.put(_partition(body.group_id, topic.name, partition, known))
            yield None
        topics.put({"name": topic.name, "partitions": partitions})
        yield None
    return {"error_code": ErrorCode.none, "topics": topics}


def _partition(
    group_id: str, topic: str, partition: Any, known: dict[OffsetKey, ErrorCode]
) -> dict[str, Any]:
    index = partition.partition_index
    unknown = ErrorCode.unknown_topic_or_partition
    code = known.get(OffsetKey(group_id, topic, index), unknown)
    return {"partition_index": index, "error_code": code}


def _delete(
    shard: GroupShard,
    group_id: str,
    known: dict[OffsetKey, ErrorCode],
    refusal: list[KafkaError],
    then: Callable[[], None],
) -> None:
    keys = list(known)

    def deleted(codes: list[ErrorCode]) -> None:
        known.update(zip(keys, codes, strict=True))
        then()

    try:
        shard.committing.delete_offsets(group_id, keys, deleted)
    except KafkaError as error:
        refusal.append(error)
        then()


API = Api(key=47, first=0, last=0, handle=handle)
