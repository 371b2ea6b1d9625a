"""Metadata, API 3: which brokers there are, which topics, and who leads their partitions.

Topics are asked for by name, from version 12 by id, or all of them; a topic that is not there
is made if client and settings allow it (T6), and the request waits until it is. A broker is
shown with the address of the listener that the request came through.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tidelog.base.errors import ErrorCode
from tidelog.base.ids import is_legal_topic
from tidelog.cluster.image import NO_LEADER, NO_TOPIC_ID, Image, PartitionInfo, TopicInfo
from tidelog.handlers.api import Api, Node, Request
from tidelog.handlers.building import Values, id_bytes, respond
from tidelog.handlers.creating import Failures, create
from tidelog.handlers.describing import (
    CLUSTER_OPERATIONS,
    NO_OPERATIONS_ASKED,
    TOPIC_OPERATIONS,
    controller,
    is_internal,
    nodes,
    partition_fields,
    reachable,
)

_BY_ID_FROM = 12
_LISTENER_NOT_FOUND_FROM = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """What a request asks for; names are None where it asks for every topic."""

    names: list[str] | None
    ids: list[bytes]


def handle(node: Node, request: Request) -> Any:
    if not _is_valid(request):
        return respond(request, _everything(node, request, _refused(request)))
    wanted = _wanted(request)
    missing = _to_create(node, request, wanted)
    if not missing:
        return _answer(node, request, wanted, {})

    def created(failures: Failures) -> None:
        request.answer(_answer(node, request, wanted, failures))

    create(node, missing, created)
    return None


def _is_valid(request: Request) -> bool:
    """The schema has ids since version 10, but they may be used from 12 on only."""
    by_id = request.version >= _BY_ID_FROM
    for topic in request.body.topics or ():
        has_id = getattr(topic, "topic_id", None) is not None
        if (topic.name is None and not has_id) or (has_id and not by_id):
            return False
    return True


def _refused(request: Request) -> list[Values]:
    return [
        _topic(ErrorCode.invalid_request, topic.name or "", id_bytes(topic.topic_id))
        for topic in request.body.topics
    ]


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


def _answer(node: Node, request: Request, wanted: _Wanted, failures: Failures) -> Any:
    image = node.metadata.image
    topics = [_by_id(image, topic_id, request) for topic_id in wanted.ids]
    names: Iterable[str] = sorted(image.topics) if wanted.names is None else wanted.names
    topics += [_by_name(image, name, request, failures) for name in names]
    return respond(request, _everything(node, request, topics))


def _everything(node: Node, request: Request, topics: list[Values]) -> Values:
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


def _by_id(image: Image, topic_id: bytes, request: Request) -> Values:
    name = image.topic_names.get(topic_id)
    if name is None:
        return _topic(ErrorCode.unknown_topic_id, None, topic_id)
    return _known(image, image.topics[name], request)


def _by_name(image: Image, name: str, request: Request, failures: Failures) -> Values:
    topic = image.topics.get(name)
    if topic is not None:
        return _known(image, topic, request)
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


def _known(image: Image, topic: TopicInfo, request: Request) -> Values:
    return {
        "error_code": ErrorCode.none,
        "name": topic.name,
        "topic_id": topic.topic_id,
        "is_internal": is_internal(topic.name),
        "partitions": [
            _partition(image, index, partition, request)
            for index, partition in enumerate(topic.partitions)
        ],
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
