"""Somebody who moves replicas: adds, replaces and removes them, and changes their mind.

Wishes go to the controller, one request at a time. What was granted stands in the topic's node in
that moment, and must be so at the end; what became of a wish that was not granted is not known:
its controller may have died, or been deposed, over the write.
"""

from functools import partial
from typing import Final

from tidelog.base.errors import KafkaError
from tidelog.cluster.requests import Reassignment
from tidelog.trials.leading import TOPIC
from tidelog.trials.oracle import Oracle
from tidelog.trials.process import Process
from tidelog.trials.violation import Violation
from tidelog.trials.world import World

CANCELS: Final = 0.3

Place = tuple[int, ...] | frozenset[int]
"""Where replicas shall be: in that order, or in any, where they go back to what was before."""


class _Wish:
    __slots__ = ("index", "place", "replicas")

    def __init__(self, oracle: Oracle, replicas: tuple[int, ...] | None) -> None:
        self.index = oracle.index
        self.replicas = replicas
        self.place: Place = frozenset(oracle.settled) if replicas is None else replicas


class Mover:
    def __init__(self, world: World) -> None:
        self._world = world
        self._random = world.loop.choices.stream("moves").random
        self._is_over = False
        self._asked: Process | None = None
        """Who has not answered yet."""
        self._places: dict[int, list[Place]] = {}
        """Of each partition that somebody wished to move: where it may be at the end."""

    def start(self) -> None:
        if self._world.options.move_gap_ms:
            self._world.loop.after(self._gap_ms(), self._next)

    def end(self) -> None:
        self._is_over = True

    def is_waiting(self) -> bool:
        """Whether somebody who lives owes an answer."""
        asked = self._asked
        return asked is not None and self._world.processes.get(asked.number) is asked

    def look_at_end(self) -> None:
        """T3: replicas are where they were last wished to be."""
        for index, places in self._places.items():
            oracle = self._world.oracles[index]
            if not any(_is_at(oracle, place) for place in places):
                raise Violation("T3", f"{oracle} {oracle.assignment} at the end, not {places}")

    # -- wishes

    def _next(self) -> None:
        if self._is_over:
            return
        controller = self._world.controller()
        if controller is not None and not self.is_waiting():
            self._ask(controller, [self._wish(oracle) for oracle in self._chosen()])
        self._world.loop.after(self._gap_ms(), self._next)

    def _ask(self, controller: Process, wishes: list[_Wish]) -> None:
        self._asked = controller
        for wish in wishes:
            oracle = self._world.oracles[wish.index]
            self._places.setdefault(wish.index, [oracle.settled]).append(wish.place)
            if self._world.tracing is not None:
                what = "cancelled" if wish.replicas is None else f"moved to {wish.replicas}"
                self._world.tracing(f"partition {wish.index} is to be {what}")
        wanted = [
            Reassignment(topic=TOPIC, partition=wish.index, replicas=wish.replicas)
            for wish in wishes
        ]
        answered = partial(self._answered, controller, wishes)
        controller.metadata.alter_reassignments(wanted, answered)

    def _answered(
        self, controller: Process, wishes: list[_Wish], results: list[KafkaError | None]
    ) -> None:
        if self._asked is controller:
            self._asked = None
        for wish, error in zip(wishes, results, strict=True):
            if self._world.tracing is not None:
                self._world.tracing(f"the move of partition {wish.index}: {error or 'granted'}")
            if error is None:
                self._granted(wish)

    def _granted(self, wish: _Wish) -> None:
        oracle = self._world.oracles[wish.index]
        self._places[wish.index] = [wish.place]
        if not _is_at(oracle, wish.place):
            raise Violation("T3", f"{oracle} {wish.place} is granted, {oracle.assignment} stands")

    # -- draws

    def _below(self, bound: int) -> int:
        return int(self._random() * bound)

    def _gap_ms(self) -> int:
        return 1 + self._below(2 * self._world.options.move_gap_ms)

    def _chosen(self) -> list[Oracle]:
        oracles = self._world.oracles
        chosen = [oracle for oracle in oracles if self._random() < 0.3]
        return chosen or [oracles[self._below(len(oracles))]]

    def _wish(self, oracle: Oracle) -> _Wish:
        """One more replica or one less, or as many: whichever, in any order."""
        assert oracle.assignment is not None
        moves = oracle.assignment.adding or oracle.assignment.removing
        if moves and self._random() < CANCELS:
            return _Wish(oracle, None)
        numbers = self._world.numbers
        count = self._world.options.replication_factor + self._below(4) // 2 - self._below(3) // 2
        # What one replica lost while there were more is lost if it is the only one that stays,
        # and nobody has noticed yet: with so few replicas nothing else is promised.
        count = max(count, 1 + oracle.power_losses)
        shuffled = sorted(numbers, key=lambda _: self._random())
        target = tuple(shuffled[: min(count, len(numbers))])
        oracle.min_isr = min(oracle.min_isr, len(target))
        return _Wish(oracle, target)


def _is_at(oracle: Oracle, place: Place) -> bool:
    """Whether replicas are there, or on their way."""
    assert oracle.assignment is not None
    target = tuple(
        replica
        for replica in oracle.assignment.replicas
        if replica not in oracle.assignment.removing
    )
    return target == place or frozenset(target) == place
