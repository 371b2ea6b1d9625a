"""ElectLeaders, API 43: makes the preferred replica lead, or any replica where none may (E3, E4).

An unclean election can lose records, so it is only done where nobody leads. Without partitions
all are meant, and those that need no election are not listed in the answer.
"""

from functools import partial
from typing import Any, Final

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.cluster.requests import Elected, ElectionKind
from tidelog.handlers.api import Api, Node, Request
from tidelog.handlers.building import NO_ERROR, Values, error_fields, respond
from tidelog.handlers.waiting import TIMED_OUT, Patience

Partitions = list[tuple[str, int]] | None

_KINDS: Final[dict[int, ElectionKind]] = {0: "preferred", 1: "unclean"}
_NOT_CONTROLLER: Final = KafkaError(ErrorCode.not_controller, "this broker is not the controller")


def handle(node: Node, request: Request) -> Any:
    body = request.body
    partitions = _partitions(body)
    kind = _KINDS.get(getattr(body, "election_type", 0))
    if kind is None:
        error = KafkaError(ErrorCode.invalid_request, f"no election type {body.election_type}")
        return _refuse(request, partitions, error)
    if node.metadata.controller_epoch is None:
        return _refuse(request, partitions, _NOT_CONTROLLER)
    too_late = partial(_refuse, request, partitions, TIMED_OUT)
    patience = Patience(node, request, body.timeout, too_late)

    def done(elected: Elected) -> None:
        if not elected and node.metadata.controller_epoch is None:
            patience.answer(_refuse(request, partitions, _NOT_CONTROLLER))
        else:
            patience.answer(_respond(request, partitions, elected))

    node.metadata.elect_leaders(kind, partitions, done)
    return None


def _partitions(body: Any) -> Partitions:
    """Each once, in the order of the request."""
    if body.topic_partitions is None:
        return None
    asked = [(topic.topic, index) for topic in body.topic_partitions for index in topic.partitions]
    return list(dict.fromkeys(asked))


def _refuse(request: Request, partitions: Partitions, error: KafkaError) -> Any:
    """The error of the whole request, and of each partition: version 0 has only the latter."""
    rows = _rows(dict.fromkeys(partitions or (), error))
    return respond(request, {"error_code": error.code, "replica_election_results": rows})


def _respond(request: Request, partitions: Partitions, elected: Elected) -> Any:
    if partitions is None:
        shown: Elected = {
            key: error
            for key, error in sorted(elected.items(), key=lambda item: item[0])
            if error is None or error.code is not ErrorCode.election_not_needed
        }
    else:
        shown = {key: elected[key] for key in partitions}
    lost = [error for error in shown.values() if error and error.code is ErrorCode.not_controller]
    code = ErrorCode.not_controller if lost else ErrorCode.none
    return respond(request, {"error_code": code, "replica_election_results": _rows(shown)})


def _rows(elected: Elected) -> list[Values]:
    topics: dict[str, list[Values]] = {}
    for (topic, partition), error in elected.items():
        shown = NO_ERROR if error is None else error_fields(error)
        topics.setdefault(topic, []).append({**shown, "partition_id": partition})
    return [{"topic": name, "partition_result": rows} for name, rows in topics.items()]


API = Api(key=43, first=0, last=2, handle=handle)
