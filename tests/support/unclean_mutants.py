"""Rules of unclean elections, each replaced by the mistake that somebody could make (E3).

As with the mutants of the machine: one small production function is put in the place of another.
"""

from dataclasses import replace
from typing import Any

import pytest

from tidelog.cluster import elections
from tidelog.cluster.elections import Decision, Known, Situation, TopicRules
from tidelog.cluster.image import PartitionInfo


def allow_it_everywhere(patch: pytest.MonkeyPatch) -> None:
    """Any replica leads, whatever the setting says."""
    recovery = elections._recovery

    def reckless(partition: Any, situation: Any, rules: TopicRules, known: Any) -> Decision:
        return recovery(partition, situation, replace(rules, unclean=True), known)

    patch.setattr(elections, "_recovery", reckless)


def do_not_wait_for_members_of_the_set(patch: pytest.MonkeyPatch) -> None:
    """Where the leader is gone any replica leads, also if others of the set are there."""
    wanted = elections.wanted_state

    def hasty(
        partition: PartitionInfo, situation: Situation, rules: TopicRules, known: Known
    ) -> Decision:
        is_led = elections.is_current(partition, partition.leader, situation)
        if rules.unclean and partition.leader >= 0 and not is_led:
            others = tuple(r for r in partition.replicas if r not in partition.isr)
            state = elections._unclean(replace(partition, replicas=others), situation, known)
            if state is not None:
                return Decision(state=replace(state, replicas=partition.replicas))
        return wanted(partition, situation, rules, known)

    patch.setattr("tidelog.cluster.reconciling.wanted_state", hasty)


def keep_the_others_in_the_set(patch: pytest.MonkeyPatch) -> None:
    """Whoever lives is in sync with a leader that was elected uncleanly."""
    unclean = elections._unclean

    def crowded(partition: PartitionInfo, situation: Situation, known: Known) -> Any:
        state = unclean(partition, situation, known)
        if state is None:
            return None
        alive = {m: situation.live[m] for m in partition.replicas if m in situation.live}
        isr = tuple(dict.fromkeys((state.leader, *alive)))
        return replace(state, isr=isr, broker_epochs={**state.broker_epochs, **alive})

    patch.setattr(elections, "_unclean", crowded)


def keep_the_others_eligible(patch: pytest.MonkeyPatch) -> None:
    """What the others have is not given up: they may lead after one that lacked it."""

    def eligible(partition: PartitionInfo, situation: Situation, known: Known) -> Any:
        alive = elections._alive(partition.replicas, situation, known)
        return elections._led_alone(partition, alive[0], situation, min_isr=2) if alive else None

    patch.setattr(elections, "_unclean", eligible)


def go_on_in_the_same_epoch(patch: pytest.MonkeyPatch) -> None:
    """An unclean leader writes in the epoch of the one before."""
    unclean = elections._unclean

    def unnoticed(partition: PartitionInfo, situation: Situation, known: Known) -> Any:
        state = unclean(partition, situation, known)
        return None if state is None else replace(state, leader_epoch=partition.leader_epoch)

    patch.setattr(elections, "_unclean", unnoticed)
