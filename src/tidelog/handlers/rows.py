"""Answers with very many rows, made in slices so that others come in between.

A handler that is asked about thousands of things is a generator: it yields between them, and
returns what `respond` takes. Its rows are written as they are made, so that nothing is left to be
done for all of them at once. A request of a few things is answered at once.
"""

from collections.abc import Generator
from functools import partial
from typing import Any

from tidelog.handlers.api import Node, Request
from tidelog.handlers.building import Values, build, item_type, respond
from tidelog.slices import Ask, Sliced
from tidelog.wire import codec
from tidelog.wire.entity_writer import Written

Answering = Generator[Ask | None, None, Values]
"""Yields wherever it may be interrupted; what it returns is the response."""


class Rows(Written):
    """An array of a response, by the names of the fields that lead to it."""

    __slots__ = ("_kind",)

    def __init__(self, request: Request, *path: str) -> None:
        super().__init__()
        kind: Any = codec.entity_type(request.api_key, request.version, "response")
        for name in path:
            kind = item_type(kind, name)
        self._kind = kind

    def put(self, values: Values) -> None:
        self.add(build(self._kind, values))


def answer_in_slices(node: Node, request: Request, work: Answering) -> None:
    """Answers when the work is done, at once or later."""

    def answering() -> Sliced:
        values = yield from work
        request.answer(respond(request, values))

    work_in_slices(node, request, answering())


def work_in_slices(node: Node, request: Request, work: Sliced) -> None:
    """For work that answers by itself. If it fails, that is a bug, and the connection ends."""
    failed = partial(request.connection.close, "the broker failed to answer it")
    node.slices.run(work, failed)
    request.is_long = request.parts is None
