"""ElectLeaders, API 43: makes the preferred replica lead, or any replica where none may (E3, E4).

An unclean election can lose records, so it is only done where nobody leads. Without partitions
all are meant, and those that need no election are not listed in the answer.
"""

from collections import defaultdict
from functools import partial
from typing import Any, Final

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.cluster.requests import Elected, ElectionKind
from tidelog.handlers.api import Api, Node, Request
from tidelog.handlers.building import NO_ERROR, error_fields
from tidelog.handlers.rows import Answering, Rows, answer_in_slices
from tidelog.handlers.waiting import TIMED_OUT, Patience

Partitions = list[tuple[str, int]] | None

_KINDS: Final[dict[int, ElectionKind]] = {0: "preferred", 1: "unclean"}
_NOT_CONTROLLER: Final = KafkaError(ErrorCode.not_controller, "this broker is not the controller")


def handle(node: Node, request: Request) -> None:
    body = request.body
    partitions = _partitions(body)
    refuse = partial(_refuse, node, request, partitions)
    kind = _KINDS.get(getattr(body, "election_type", 0))
    if kind is None:
        refuse(KafkaError(ErrorCode.invalid_request, f"no election type {body.election_type}"))
        return
    if node.metadata.controller_epoch is None:
        refuse(_NOT_CONTROLLER)
        return
    patience = Patience(node, body.timeout, partial(refuse, TIMED_OUT))

    def done(elected: Elected) -> None:
        if not elected and node.metadata.controller_epoch is None:
            patience.end(partial(refuse, _NOT_CONTROLLER))
        else:
            patience.end(partial(_answer, node, request, partitions, elected))

    node.metadata.elect_leaders(kind, partitions, done)


def _partitions(body: Any) -> Partitions:
    """Each once, in the order of the request."""
    if body.topic_partitions is None:
        return None
    asked = [(topic.topic, index) for topic in body.topic_partitions for index in topic.partitions]
    return list(dict.fromkeys(asked))


def _refuse(node: Node, request: Request, partitions: Partitions, error: KafkaError) -> None:
    """The error of the whole request, and of each partition: version 0 has only the latter."""
    rows = dict.fromkeys(partitions or (), error)
    answer_in_slices(node, request, _answering(request, error.code, rows))


def _answer(node: Node, request: Request, partitions: Partitions, elected: Elected) -> None:
    if partitions is None:
        shown: Elected = {
            key: error
            for key, error in sorted(elected.items(), key=lambda item: item[0])
            if error is None or error.code is not ErrorCode.election_not_needed
        }
    else:
        shown = {key: elected[key] for key in partitions}
    lost = any(error and error.code is ErrorCode.not_controller for error in shown.values())
    code = ErrorCode.not_controller if lost else ErrorCode.none
    answer_in_slices(node, request, _answering(request, code, shown))


def _answering(request: Request, code: ErrorCode, elected: Elected) -> Answering:
    path = ("replica_election_results", "partition_result")
    topics: dict[str, Rows] = defaultdict(partial(Rows, request, *path))
    for (topic, partition), error in elected.items():
        shown = NO_ERROR if error is None else error_fields(error)
        topics[topic].put({**shown, "partition_id": partition})
        yield None
    results = Rows(request, "replica_election_results")
    for name, rows in topics.items():
        results.put({"topic": name, "partition_result": rows})
        yield None
    return {"error_code": code, "replica_election_results": results}


API = Api(key=43, first=0, last=2, handle=handle)
