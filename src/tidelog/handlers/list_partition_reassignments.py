"""ListPartitionReassignments, API 46: the partitions whose replicas are being moved (T3).

Of those that are asked for, or of all. What is not being moved, or does not exist, is not listed.
Only the controller knows.
"""

from collections import defaultdict
from functools import partial

from tidelog.base.errors import KafkaError
from tidelog.cluster.requests import OngoingReassignment
from tidelog.handlers.api import Api, Node, Request
from tidelog.handlers.building import NO_ERROR, Values, error_fields
from tidelog.handlers.rows import Answering, Rows, answer_in_slices


def handle(node: Node, request: Request) -> None:
    answer_in_slices(node, request, _answering(node, request))


def _answering(node: Node, request: Request) -> Answering:
    asked: dict[str, list[int]] | None = None
    if request.body.topics is not None:
        asked = {}
        for topic in request.body.topics:
            asked.setdefault(topic.name, []).extend(topic.partition_indexes)
            yield None
    try:
        under_way = node.metadata.list_reassignments(asked)
    except KafkaError as error:
        return {**error_fields(error), "topics": ()}
    found: dict[str, Rows] = defaultdict(partial(Rows, request, "topics", "partitions"))
    for moving in under_way:
        found[moving.topic].put(_partition(moving))
        yield None
    topics = Rows(request, "topics")
    for name, partitions in found.items():
        topics.put({"name": name, "partitions": partitions})
        yield None
    return {**NO_ERROR, "topics": topics}


def _partition(moving: OngoingReassignment) -> Values:
    return {
        "partition_index": moving.partition,
        "replicas": moving.replicas,
        "adding_replicas": moving.adding,
        "removing_replicas": moving.removing,
    }


API = Api(key=46, first=0, last=0, handle=handle)
