"""Rules of controller and membership, each replaced by the mistake that somebody has made.

As with the mutants of the machine: one small production function is put in the place of another.
"""

from dataclasses import replace
from typing import Any

import pytest

from tidelog.base.coordination import Check, SetData
from tidelog.cluster import elections, isr_change, isr_writes, paths, topic_nodes
from tidelog.cluster.elections import Known, Situation, TopicRules
from tidelog.cluster.fencing import Fencing
from tidelog.cluster.image import PartitionInfo
from tidelog.cluster.state_writing import StateWriter


def trust_any_incarnation(patch: pytest.MonkeyPatch) -> None:
    """D9, X18: a broker that is registered is taken for the one that was in the set."""

    def is_current(_partition: PartitionInfo, member: int, situation: Situation) -> bool:
        return member in situation.live

    patch.setattr(elections, "is_current", is_current)


def first_back_leads(patch: pytest.MonkeyPatch) -> None:
    """D10, X21: nobody is asked how far it is."""

    def furthest(
        partition: PartitionInfo, situation: Situation, _rules: TopicRules, known: Known
    ) -> tuple[int | None, tuple[int, ...]]:
        return elections._first_of_isr(partition, situation, known), ()

    patch.setattr(elections, "_furthest", furthest)


def recovered_keeps_its_set(patch: pytest.MonkeyPatch) -> None:
    """D10: those who were in the set before are in it again, whatever they lost."""
    alone = elections._led_alone

    def led(partition: PartitionInfo, winner: int, situation: Situation, min_isr: int) -> Any:
        members = {m: situation.live[m] for m in partition.isr if m in situation.live}
        isr = tuple(dict.fromkeys((winner, *members)))
        led_alone = alone(partition, winner, situation, min_isr)
        epochs = {**led_alone.broker_epochs, **members}
        return replace(led_alone, isr=isr, elr=(), broker_epochs=epochs)

    patch.setattr(elections, "_led_alone", led)


def forget_eligible_leaders(patch: pytest.MonkeyPatch) -> None:
    """D10, X20: who leaves too small a set is forgotten."""
    with_isr = isr_change.with_isr

    def without(partition: PartitionInfo, isr: tuple[int, ...], min_isr: int) -> PartitionInfo:
        return replace(with_isr(partition, isr, min_isr), elr=())

    patch.setattr(isr_change, "with_isr", without)
    patch.setattr(elections, "with_isr", without)


def write_without_the_fence(patch: pytest.MonkeyPatch) -> None:
    """D11, X16: a controller that was deposed writes all the same."""
    make: Any = StateWriter.__init__

    def unfenced(self: StateWriter, *arguments: Any) -> None:
        always = Check(path=paths.BROKER_IDS, version=0)
        make(self, *(always if isinstance(each, Check) else each for each in arguments))

    patch.setattr(StateWriter, "__init__", unfenced)


def write_isr_unconditionally(patch: pytest.MonkeyPatch) -> None:
    """I4, X15: a leader writes its set whatever stands there by now."""

    def changed_state(topic: str, number: int, partition: PartitionInfo) -> list[Any]:
        found = topic_nodes.changed_state(topic, number, partition)
        return [SetData(path=each.path, data=each.data) for each in found]  # type: ignore[union-attr]

    patch.setattr(isr_writes, "changed_state", changed_state)


def obey_any_controller(patch: pytest.MonkeyPatch) -> None:
    """X16, X17: requests of deposed controllers, and those for a broker's predecessor."""
    patch.setattr(Fencing, "refusal", lambda _self, _request: None)
