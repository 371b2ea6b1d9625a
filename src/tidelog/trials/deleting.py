"""Somebody who has old records deleted: up to an offset, or all that are committed.

Some of the offsets lie beyond what is committed, and must be refused. An answer says where the
partition begins now, at all replicas that live (S5).
"""

from functools import partial
from typing import TYPE_CHECKING, Final

from tidelog.trials.clients import Client
from tidelog.trials.leading import Produced
from tidelog.trials.log_starts import DeleteRecords
from tidelog.trials.violation import Violation

if TYPE_CHECKING:
    from tidelog.trials.world import World

ALL: Final = -1
BEYOND: Final = 3


class Deleter(Client):
    """One request at a time; it goes on when the network gives up on an answer."""

    def __init__(self, world: "World") -> None:
        super().__init__(world, 0)
        self._random = world.loop.choices.stream("deletions").random

    def start(self) -> None:
        self.later(self._gap_ms(), self._next)

    def _gap_ms(self) -> int:
        return 1 + int(self._random() * 2 * self.world.options.delete_gap_ms)

    def _next(self) -> None:
        if self.is_stopped:
            return
        index = int(self._random() * self.world.options.partitions)
        known = len(self.world.oracles[index].committed)
        before = ALL if self._random() < 0.2 else int(self._random() * (known + BEYOND))
        number = self.world.numbers[int(self._random() * len(self.world.numbers))]
        leader = self.world.leader_known_to(number, index)
        if leader < 0:
            self.start()
        else:
            self.ask(leader, DeleteRecords(index, before), partial(self._answered, index, before))

    def _answered(self, index: int, before: int, answer: Produced | None) -> None:
        if answer is not None and not answer.error and answer.offset < before:
            raise Violation(
                "V17", f"partition {index} begins at {answer.offset}, {before} was asked for"
            )
        self.start()
