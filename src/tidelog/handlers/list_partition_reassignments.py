"""ListPartitionReassignments, API 46: the partitions whose replicas are being moved (T3).

Of those that are asked for, or of all. What is not being moved, or does not exist, is not listed.
Only the controller knows.
"""

from typing import Any

from tidelog.base.errors import KafkaError
from tidelog.cluster.requests import OngoingReassignment
from tidelog.handlers.api import Api, Node, Request
from tidelog.handlers.building import NO_ERROR, Values, error_fields, respond


def handle(node: Node, request: Request) -> Any:
    asked: dict[str, list[int]] | None = None
    if request.body.topics is not None:
        asked = {}
        for topic in request.body.topics:
            asked.setdefault(topic.name, []).extend(topic.partition_indexes)
    try:
        under_way = node.metadata.list_reassignments(asked)
    except KafkaError as error:
        return respond(request, {**error_fields(error), "topics": ()})
    topics: dict[str, list[Values]] = {}
    for found in under_way:
        topics.setdefault(found.topic, []).append(_partition(found))
    listed = [{"name": name, "partitions": rows} for name, rows in topics.items()]
    return respond(request, {**NO_ERROR, "topics": listed})


def _partition(found: OngoingReassignment) -> Values:
    return {
        "partition_index": found.partition,
        "replicas": found.replicas,
        "adding_replicas": found.adding,
        "removing_replicas": found.removing,
    }


API = Api(key=46, first=0, last=0, handle=handle)
