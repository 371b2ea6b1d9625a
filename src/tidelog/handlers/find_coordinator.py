"""FindCoordinator, API 10: which broker looks after a group or a transactional id.

It is the leader of the partition of `__consumer_offsets` or `__transaction_state` that the name
belongs to. The first one to ask has that topic made; until there is a leader whoever asks is told
to ask again. Version 4 asks for many keys in one request.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

from tidelog.base.errors import ErrorCode
from tidelog.cluster.image import Image
from tidelog.coordinators import Coordinator
from tidelog.handlers.api import Api, Node, Request
from tidelog.handlers.building import NO_ERROR, Values, respond
from tidelog.handlers.creating import Failures, create
from tidelog.handlers.rows import Answering, Rows, answer_in_slices
from tidelog.internal_topics import internal_topic

GROUP: Final = 0
TRANSACTION: Final = 1
_MANY_KEYS_FROM: Final = 4
_NOWHERE: Final[Values] = {"node_id": -1, "host": "", "port": -1}


def handle(node: Node, request: Request) -> Any:
    body = request.body
    kind = getattr(body, "key_type", GROUP)
    if kind not in (GROUP, TRANSACTION):
        what = f"no coordinators of type {kind} here"
        return _answer(node, request, lambda _key: _refused(ErrorCode.invalid_request, what))
    both = node.coordinators
    coordinator: Coordinator[Any] = both.groups if kind == GROUP else both.transactions
    if coordinator.topic in node.metadata.image.topics:
        return _answer(node, request, lambda key: _find(node, request, coordinator, key))

    def made(failures: Failures) -> None:
        code = failures.get(coordinator.topic)
        if code not in (None, ErrorCode.leader_not_available, ErrorCode.topic_already_exists):
            what = f"{coordinator.topic} cannot be made: {code.name}"
            _answer(node, request, lambda _key: _refused(_NOT_YET, what))
        else:
            _answer(node, request, lambda key: _find(node, request, coordinator, key))

    create(node, [internal_topic(coordinator.topic, node.settings)], made)
    return None


_NOT_YET: Final = ErrorCode.coordinator_not_available


def _answer(node: Node, request: Request, find: Callable[[str], Values]) -> None:
    if request.version < _MANY_KEYS_FROM:
        request.answer(respond(request, find(request.body.key)))
    else:
        answer_in_slices(node, request, _answering(request, request.body.coordinator_keys, find))


def _answering(request: Request, keys: Sequence[str], find: Callable[[str], Values]) -> Answering:
    coordinators = Rows(request, "coordinators")
    for key in keys:
        coordinators.put({**find(key), "key": key})
        yield None
    return {"coordinators": coordinators}


def _find(node: Node, request: Request, coordinator: Coordinator[Any], key: str) -> Values:
    index = coordinator.index_of(key)
    if index is None:
        return _refused(_NOT_YET, f"{coordinator.topic} is being made")
    image: Image = node.metadata.image
    leader = image.topics[coordinator.topic].partitions[index].leader
    broker = image.brokers.get(leader)
    if broker is None or request.listener not in broker.endpoints:
        return _refused(_NOT_YET, f"nobody leads {coordinator.topic}-{index} now")
    host, port = broker.endpoints[request.listener]
    return {**NO_ERROR, "node_id": leader, "host": host, "port": port}


def _refused(code: ErrorCode, why: str) -> Values:
    return {**_NOWHERE, "error_code": code, "error_message": why}


API = Api(key=10, first=0, last=6, handle=handle)
