"""A client that has a coordinator: it asks whom some broker takes for the leader of a journal."""

from collections.abc import Callable
from functools import partial
from typing import Any

from tidelog.trials.clients import RETRY_MS, Client
from tidelog.trials.coordinating import Look, ToCoordinator
from tidelog.trials.network import Reply

Call = Callable[[Any, Reply], None]
"""What to ask of a shard."""


class Coordinated(Client):
    """`index` is the journal of its coordinator."""

    def to_coordinator(self, call: Call, done: Any, look: Look | None = None) -> None:
        """Asks the coordinator, once it is known; `done` has None if no answer came."""
        if self.is_stopped:
            return
        coordinator = self.world.leader_known_to(self._any_broker(), self.index)
        if coordinator < 0:
            self.later(RETRY_MS, partial(self.to_coordinator, call, done, look))
        else:
            request = ToCoordinator(self.index, call, look or _nobody_looks)
            self.ask(coordinator, request, done)

    def _any_broker(self) -> int:
        numbers = self.world.numbers
        return numbers[int(self._random() * len(numbers))]


def _nobody_looks(_answer: Any, _epoch: int) -> None:
    """Not every answer is one that something is to be held against."""
