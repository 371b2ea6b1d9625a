"""Answering a request when something is done, or when its client's patience is over.

Changes to the cluster are answered once they are durable. A request says how long its client
waits; after that it is told that the time is up, and the change goes on without it, as in
Kafka.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import Final

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.handlers.api import Node

TIMED_OUT: Final = KafkaError(
    ErrorCode.request_timed_out,
    "the change is not finished after the request's timeout; it goes on",
)


class Patience:
    """Does one thing or the other, once: what `end` is given, or `too_late` at the timeout."""

    __slots__ = ("_is_over", "_timer", "_too_late")

    def __init__(self, node: Node, timeout: timedelta, too_late: Callable[[], None]) -> None:
        self._is_over = False
        self._too_late = too_late
        timeout_ms = max(0, timeout // timedelta(milliseconds=1))
        self._timer = node.loop.call_at(node.clock.monotonic_ms() + timeout_ms, self._give_up)

    def end(self, answer: Callable[[], None]) -> None:
        if not self._is_over:
            self._is_over = True
            self._timer.cancel()
            answer()

    def _give_up(self) -> None:
        self.end(self._too_late)
