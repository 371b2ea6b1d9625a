"""The ensemble of the explorer: what is written in it is looked at, before anybody is told.

It keeps who is registered under which broker epoch, tells the oracles of every change of a
partition's state, and counts elections, changes of ISRs and recoveries.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from tidelog.base.coordination import Create, Delete, Operation, SetData, Stat, Written
from tidelog.base.ports import Clock
from tidelog.cluster import paths
from tidelog.cluster.image import NO_LEADER
from tidelog.cluster.znodes import (
    Assignment,
    State,
    decode_controller_epoch,
    decode_state,
    decode_topic,
)
from tidelog.trials.counts import Counts
from tidelog.trials.leading import TOPIC
from tidelog.trials.oracle import Oracle
from tidelog.trials.violation import Violation
from tidelog.world.sim.ensemble import SimEnsemble


class Topics(Protocol):
    """The topics of one name, one after the other."""

    def topic_made(self, topic_id: bytes) -> list[Oracle]:
        """Who looks at the partitions of the new one."""

    def topic_doomed(self) -> None:
        """It is to be deleted."""


class WatchedEnsemble(SimEnsemble):
    def __init__(self, clock: Clock, topics: Topics, counts: Counts) -> None:
        super().__init__(clock)
        self.registered: dict[int, int] = {}
        self.tracing: Callable[[str], None] | None = None
        self._topics = topics
        self._oracles: list[Oracle] = []
        self._counts = counts
        self._states: dict[str, Oracle] = {}
        self._topic = paths.topic(TOPIC)
        self._doom = paths.delete_topic(TOPIC)
        self._ids = {paths.broker(number): number for number in range(20)}

    def write(self, session_id: int, operations: Sequence[Operation]) -> list[Written]:
        answers = super().write(session_id, operations)
        for operation, answer in zip(operations, answers, strict=True):
            path = operation.path
            if path in self._states and isinstance(operation, SetData | Create):
                version = answer.version if isinstance(answer, Stat) else 0
                self._state_written(self._states[path], decode_state(operation.data), version)
            elif path in self._ids:
                self._registration(self._ids[path], operation)
            elif path == self._topic and isinstance(operation, SetData | Create):
                self._topic_written(operation.data, is_new=isinstance(operation, Create))
            elif path == self._doom and isinstance(operation, Create):
                self._trace("the topic is to be deleted")
                self._topics.topic_doomed()
        return answers

    def _topic_written(self, data: bytes, *, is_new: bool) -> None:
        """It stands before the states that are written with it."""
        topic_id, assignments = decode_topic(data)
        if is_new:
            assert topic_id is not None
            self._oracles = self._topics.topic_made(topic_id)
            self._states = {paths.state(TOPIC, each.index): each for each in self._oracles}
        for oracle, assignment in zip(self._oracles, assignments, strict=True):
            if assignment != oracle.assignment:
                self._trace("the replicas of partition %d are: %s", oracle.index, assignment)
                self._count_move(oracle, assignment)
                oracle.assigned(assignment)

    def _count_move(self, oracle: Oracle, after: Assignment) -> None:
        before = oracle.assignment
        if before is None or after.adding or after.removing:
            return
        if before.adding or before.removing:
            if set(after.replicas) == set(oracle.settled):
                self._counts.reassignments_cancelled += 1
            else:
                self._counts.reassignments_finished += 1

    def _registration(self, number: int, operation: Operation) -> None:
        if isinstance(operation, Create):
            self.registered[number] = self.tree.get(operation.path).stat.created_zxid
            self._trace("broker %d is registered as %d", number, self.registered[number])
        elif isinstance(operation, Delete):
            self.registered.pop(number, None)
            self._trace("the registration of broker %d is gone", number)

    def _state_written(self, oracle: Oracle, state: State, version: int) -> None:
        before = oracle.state
        self._trace(
            "the state of partition %d is: leader %d, epoch %d, ISR %s, ELR %s, version %d",
            *(oracle.index, state.leader, state.leader_epoch, state.isr, state.elr, version),
        )
        self._count(before, state)
        oracle.state_written(state, version)
        if before is None or before.leader_epoch != state.leader_epoch:
            epoch = decode_controller_epoch(self.tree.get(paths.CONTROLLER_EPOCH).data)
            if state.controller_epoch != epoch:
                raise Violation("V20", f"a controller of epoch {state.controller_epoch} wrote")

    def _count(self, before: State | None, state: State) -> None:
        counts = self._counts
        if before is None:
            return
        if before.leader_epoch != state.leader_epoch:
            if state.leader != NO_LEADER:
                counts.elections += 1
                counts.recoveries += before.leader == NO_LEADER
        else:
            counts.shrinks += len(state.isr) < len(before.isr)
            counts.expands += len(state.isr) > len(before.isr)

    def _trace(self, text: str, *details: object) -> None:
        if self.tracing is not None:
            self.tracing(text % details)
