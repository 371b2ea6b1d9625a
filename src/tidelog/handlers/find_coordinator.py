"""FindCoordinator, API 10: which broker looks after a group or a transactional id.

Groups are this broker's. Clients ask for it even if they never join one, and go on quietly once
they have it; one that does join finds that there is no JoinGroup here and says so. Transactions
are refused with the one error at which every client stops at once. Version 4 asks for many keys
in one request.
"""

from typing import Final

from tidelog.base.errors import ErrorCode
from tidelog.handlers.api import Api, Node, Request
from tidelog.handlers.building import NO_ERROR, Values
from tidelog.handlers.rows import Answering, Rows, answer_in_slices

GROUP: Final = 0
TRANSACTION: Final = 1
_MANY_KEYS_FROM: Final = 4
_NOWHERE: Final[Values] = {"node_id": -1, "host": "", "port": -1}


def handle(node: Node, request: Request) -> None:
    answer_in_slices(node, request, _answering(node, request))


def _answering(node: Node, request: Request) -> Answering:
    body = request.body
    found = _coordinator(node, request.listener, getattr(body, "key_type", GROUP))
    if request.version < _MANY_KEYS_FROM:
        return found
    coordinators = Rows(request, "coordinators")
    for key in body.coordinator_keys:
        coordinators.put({**found, "key": key})
        yield None
    return {"coordinators": coordinators}


def _coordinator(node: Node, listener: str, kind: int) -> Values:
    if kind == TRANSACTION:
        code = ErrorCode.transactional_id_authorization_failed
        return _refused(code, "this broker does not serve transactions")
    if kind != GROUP:
        return _refused(ErrorCode.invalid_request, f"no coordinators of type {kind} here")
    broker = node.metadata.image.brokers.get(node.broker_id)
    if broker is None or listener not in broker.endpoints:
        return _refused(ErrorCode.coordinator_not_available, "this broker is not registered")
    host, port = broker.endpoints[listener]
    return {**NO_ERROR, "node_id": node.broker_id, "host": host, "port": port}


def _refused(code: ErrorCode, why: str) -> Values:
    return {**_NOWHERE, "error_code": code, "error_message": why}


API = Api(key=10, first=0, last=6, handle=handle)
