"""DeleteGroups, API 42: forgets groups without members, and their offsets (A5)."""

from collections.abc import Callable

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.handlers.api import Api, Node, Request
from tidelog.handlers.rows import Answering, Rows, answer_in_slices


def handle(node: Node, request: Request) -> None:
    answer_in_slices(node, request, _answering(node, request))


def _answering(node: Node, request: Request) -> Answering:
    """All are begun before any of them is waited for. One that is named twice is deleted once."""
    deleting = _Deleting(node)
    for group_id in dict.fromkeys(request.body.groups_names):
        deleting.begin(group_id)
        yield None
    if deleting.open:
        yield deleting.wait
    results = Rows(request, "results")
    for group_id in dict.fromkeys(request.body.groups_names):
        results.put({"group_id": group_id, "error_code": deleting.codes[group_id]})
        yield None
    return {"results": results}


class _Deleting:
    def __init__(self, node: Node) -> None:
        self._node = node
        self._then: Callable[[], None] | None = None
        self.open = 0
        self.codes: dict[str, ErrorCode] = {}

    def begin(self, group_id: str) -> None:
        self.open += 1

        def done(code: ErrorCode) -> None:
            self.codes[group_id] = code
            self.open -= 1
            if not self.open and self._then is not None:
                self._then()

        try:
            self._node.coordinators.groups.find(group_id).delete(group_id, done)
        except KafkaError as error:
            done(error.code)

    def wait(self, then: Callable[[], None]) -> None:
        self._then = then


API = Api(key=42, first=0, last=2, handle=handle)
