"""Metadata, API 3: which brokers there are, which topics, and who leads their partitions.

Topics are asked for by name, from version 12 by id, or all of them; a topic that is not there
is made if client and settings allow it (T6), and the request waits until it is. A broker is
shown with the address of the listener that the request came through.
"""

from dataclasses import dataclass
from typing import Any

from tidelog.base.errors import ErrorCode
from tidelog.base.ids import is_internal, is_legal_topic
from tidelog.cluster.image import NO_LEADER, NO_TOPIC_ID, Image, PartitionInfo, TopicInfo
from tidelog.cluster.requests import NewTopic
from tidelog.handlers.api import Api, Node, Request
from tidelog.handlers.building import Values, id_bytes
from tidelog.handlers.creating import Failures, create
from tidelog.handlers.describing import (
    CLUSTER_OPERATIONS,
    NO_OPERATIONS_ASKED,
    TOPIC_OPERATIONS,
    controller,
    nodes,
    partition_fields,
    reachable,
)
from tidelog.handlers.rows import Answering, Rows, answer_in_slices

_BY_ID_FROM = 12
_LISTENER_NOT_FOUND_FROM = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """What a request asks for; names are None where it asks for every topic."""

    names: list[str] | None
    ids: list[bytes]


def handle(node: Node, request: Request) -> None:
    if not _is_valid(request):
        answer_in_slices(node, request, _refusing(node, request))
        return
    wanted = _wanted(request)
    missing = _to_create(node, request, wanted)

    def created(failures: Failures) -> None:
        answer_in_slices(node, request, _answering(node, request, wanted, failures))

    if missing:
        create(node, [NewTopic(name=name) for name in missing], created)
    else:
        created({})


def _is_valid(request: Request) -> bool:
    """The schema has ids since version 10, but they may be used from 12 on only."""
    by_id = request.version >= _BY_ID_FROM
    for topic in request.body.topics or ():
        has_id = getattr(topic, "topic_id", None) is not None
        if (topic.name is None and not has_id) or (has_id and not by_id):
            return False
    return True


def _refusing(node: Node, request: Request) -> Answering:
    topics = Rows(request, "topics")
    for topic in request.body.topics:
        name, topic_id = topic.name or "", id_bytes(topic.topic_id)
        topics.put(_topic(ErrorCode.invalid_request, name, topic_id))
        yield None
    return _everything(node, request, topics)


def _wanted(request: Request) -> _Wanted:
    topics = request.body.topics
    if topics is None or (request.version == 0 and not topics):
        return _Wanted(names=None, ids=[])
    ids = [topic.topic_id.bytes for topic in topics if getattr(topic, "topic_id", None) is not None]
    names = [topic.name for topic in topics if topic.name is not None]
    # A client asks by name or by id; where both come, the ids count, as in Kafka.
    return _Wanted(names=[] if ids else list(dict.fromkeys(names)), ids=list(dict.fromkeys(ids)))


def _to_create(node: Node, request: Request, wanted: _Wanted) -> list[str]:
    """Internal topics are made by those who use them, with settings of their own."""
    if not getattr(request.body, "allow_auto_topic_creation", True):
        return []
    if not node.settings.flag("auto.create.topics.enable"):
        return []
    known = node.metadata.image.topics
    return [
        name
        for name in wanted.names or ()
        if name not in known and is_legal_topic(name) and not is_internal(name)
    ]


def _answering(node: Node, request: Request, wanted: _Wanted, failures: Failures) -> Answering:
    image = node.metadata.image
    topics = Rows(request, "topics")
    for topic_id in wanted.ids:
        name = image.topic_names.get(topic_id)
        if name is None:
            topics.put(_topic(ErrorCode.unknown_topic_id, None, topic_id))
        else:
            topics.put((yield from _known(image, image.topics[name], request)))
        yield None
    for name in sorted(image.topics) if wanted.names is None else wanted.names:
        topic = image.topics.get(name)
        if topic is not None:
            topics.put((yield from _known(image, topic, request)))
        elif wanted.names is not None:
            topics.put(_unknown(name, request, failures))
        yield None
    return _everything(node, request, topics)


def _everything(node: Node, request: Request, topics: Rows) -> Values:
    image = node.metadata.image
    asked = getattr(request.body, "include_cluster_authorized_operations", False)
    return {
        "brokers": [
            {"node_id": broker_id, "host": host, "port": port, "rack": rack}
            for broker_id, host, port, rack in nodes(image, request.listener)
        ],
        "cluster_id": node.cluster_id,
        "controller_id": controller(image, request.listener),
        "topics": topics,
        "cluster_authorized_operations": CLUSTER_OPERATIONS if asked else NO_OPERATIONS_ASKED,
        "error_code": ErrorCode.none,
    }


def _unknown(name: str, request: Request, failures: Failures) -> Values:
    code = failures.get(name, ErrorCode.unknown_topic_or_partition)
    if not is_legal_topic(name):
        code = ErrorCode.invalid_topic_exception
    operations = {"topic_authorized_operations": _operations(request)}
    return {**_topic(code, name, NO_TOPIC_ID), **operations}


def _topic(code: ErrorCode, name: str | None, topic_id: bytes) -> Values:
    """A topic of which no more can be said."""
    return {
        "error_code": code,
        "name": name,
        "topic_id": topic_id,
        "is_internal": name is not None and is_internal(name),
        "partitions": (),
    }


def _known(image: Image, topic: TopicInfo, request: Request) -> Answering:
    partitions = Rows(request, "topics", "partitions")
    for index, partition in enumerate(topic.partitions):
        partitions.put(_partition(image, index, partition, request))
        yield None
    return {
        "error_code": ErrorCode.none,
        "name": topic.name,
        "topic_id": topic.topic_id,
        "is_internal": is_internal(topic.name),
        "partitions": partitions,
        "topic_authorized_operations": _operations(request),
    }


def _operations(request: Request) -> int:
    asked = getattr(request.body, "include_topic_authorized_operations", False)
    return TOPIC_OPERATIONS if asked else NO_OPERATIONS_ASKED


def _partition(image: Image, index: int, partition: PartitionInfo, request: Request) -> Values:
    shown = dict(partition_fields(image, index, partition, request.listener))
    if shown["leader_id"] == NO_LEADER:
        shown["error_code"] = _why_no_leader(image, partition, request.version)
    if request.version == 0:
        _hide_unreachable(image, partition, request.listener, shown)
    return shown


def _why_no_leader(image: Image, partition: PartitionInfo, version: int) -> ErrorCode:
    if partition.leader in image.brokers and version >= _LISTENER_NOT_FOUND_FROM:
        return ErrorCode.listener_not_found
    return ErrorCode.leader_not_available


def _hide_unreachable(
    image: Image, partition: PartitionInfo, listener: str, shown: dict[str, Any]
) -> None:
    """Version 0 has no list of offline replicas: it leaves them out, and says so."""
    shown["replica_nodes"] = reachable(image, partition.replicas, listener)
    shown["isr_nodes"] = reachable(image, partition.isr, listener)
    all_there = (partition.replicas, partition.isr) == (shown["replica_nodes"], shown["isr_nodes"])
    if shown["error_code"] is ErrorCode.none and not all_there:
        shown["error_code"] = ErrorCode.replica_not_available


API = Api(key=3, first=0, last=13, handle=handle)
