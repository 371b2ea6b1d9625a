"""A Produce request of very many partitions, served in slices so that others come in between.

Its batches are appended some at a time, in their order; what came behind it on its connection waits
for that. Whoever wants them committed waits from when the last of them is appended. The answer is
packed in slices too.
"""

from collections.abc import Callable, Sequence
from typing import Final

from tidelog.handlers.api import Node, Request
from tidelog.handlers.producing import Producing, Result, Undone
from tidelog.handlers.rows import work_in_slices
from tidelog.slices import Sliced
from tidelog.wire.produce import ProducePartition, ProduceRequest
from tidelog.wire.produce_answer import write_in_steps

ROWS_MAX: Final = 1_000
"""A request of more partitions is not served in one go."""
STEP_ROWS: Final = 20
_MORE: Final = -1
"""Stands for the rows that are still to come."""

AppendRows = Callable[[Node, Request, Sequence[ProducePartition], list[Result]], Undone | None]


def producing_in_slices(node: Node, request: Request, append: AppendRows) -> Sliced:
    produce: ProduceRequest = request.body
    rows = produce.partitions
    first = next((batch for _, _, batch in rows if batch is not None), None)
    if first is not None and node.buffers.lasting(first) is not first:
        # What the network receives next goes where this small frame still is.
        lasting = node.buffers.lasting
        produce.partitions = rows = [
            (topic, index, None if batch is None else lasting(batch))
            for topic, index, batch in rows
        ]
    results: list[Result] = []
    producing = WideProducing(node, request, results)
    for at in range(0, len(rows), STEP_ROWS):
        undone = append(node, request, rows[at : at + STEP_ROWS], results)
        if undone is not None:
            producing.take_up(undone)
        yield None
    producing.has_all()


class WideProducing(Producing):
    __slots__ = ()

    def __init__(self, node: Node, request: Request, results: list[Result]) -> None:
        super().__init__(node, request, results)
        self._undone.add(_MORE)

    def take_up(self, undone: Undone) -> None:
        """At once: a partition may be led elsewhere before the next slice."""
        self._take_up(undone)

    def has_all(self) -> None:
        self._begin_timer()
        self._done(_MORE)

    def _answer(self) -> None:
        if self._request.body.acks:
            work_in_slices(self._node, self._request, self._packing())
        else:
            super()._answer()

    def _packing(self) -> Sliced:
        request = self._request
        answer = yield from write_in_steps(
            request.correlation_id, request.version, request.body, self._results, STEP_ROWS
        )
        request.answer_packed([answer])
