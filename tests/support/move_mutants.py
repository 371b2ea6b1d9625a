"""Rules of moving replicas, each replaced by the mistake that somebody could make.

As with the mutants of the machine: one small production function is put in the place of another.
"""

from dataclasses import replace
from typing import Any

import pytest

from tidelog.cluster import reassignment, wishes
from tidelog.cluster.dispatch import Dispatch
from tidelog.cluster.fencing import Fencing
from tidelog.cluster.image import PartitionInfo
from tidelog.cluster.reconciling import Reconciler, Wish


def take_the_target_early(patch: pytest.MonkeyPatch) -> None:
    """The old replicas go as soon as one that stays is in sync."""
    patch.setattr(reassignment, "_is_ready", lambda _partition, _target, staying, _min_isr: staying)


def keep_who_goes_in_the_set(patch: pytest.MonkeyPatch) -> None:
    """The set stays as it is when replicas go."""
    step = reassignment.next_step

    def next_step(partition: PartitionInfo, situation: Any, min_isr: int, known: Any) -> Any:
        done = step(partition, situation, min_isr, known)
        return None if done is None else replace(done, isr=partition.isr, elr=partition.elr)

    patch.setattr("tidelog.cluster.reconciling.next_step", next_step)


def tell_nobody_to_go(patch: pytest.MonkeyPatch) -> None:
    """A replica that was removed is left lying where it was."""
    patch.setattr(Dispatch, "_drop", lambda *_arguments: None)


def cancel_in_vain(patch: pytest.MonkeyPatch) -> None:
    """A move goes on although it was cancelled."""
    patch.setattr(wishes, "cancelled", lambda partition, _controller_epoch: partition)


def grant_before_the_write(patch: pytest.MonkeyPatch) -> None:
    """A wish is granted when it is planned."""
    wish = Reconciler.wish

    def granted(self: Reconciler, name: Any, wished: Wish) -> None:
        wish(self, name, Wish(plan=wished.plan, done=lambda _error: None))
        wished.done(None)

    patch.setattr(Reconciler, "wish", granted)


def hear_what_comes_late(patch: pytest.MonkeyPatch) -> None:
    """What was said of a replica before it was removed is acted on after that."""
    patch.setattr(Fencing, "without_removed", lambda _self, request: request)


def forget_wishes_of_the_deposed(patch: pytest.MonkeyPatch) -> None:
    """Who is wished for something when the office is over says nothing."""
    wish = Reconciler.wish

    def unheard(self: Reconciler, name: Any, wished: Wish) -> None:
        if not self._realm.is_over:
            wish(self, name, wished)

    patch.setattr(Reconciler, "wish", unheard)
