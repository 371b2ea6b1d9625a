"""Rules of sessions, each replaced by the mistake that somebody has made (X22).

As with the mutants of the machine: one small production function is put in the place of another.
"""

from typing import Any

import pytest

from tidelog.cluster.membership import Membership
from tidelog.cluster.registration import Registration


def register_once(patch: pytest.MonkeyPatch) -> None:
    """A broker whose session expired is not in the cluster any more."""
    register = Membership._register

    def registering(self: Membership) -> None:
        if not self._sessions:
            register(self)

    patch.setattr(Membership, "_register", registering)


def stay_in_office(patch: pytest.MonkeyPatch) -> None:
    """A controller whose session expired goes on, beside the one that was elected since."""
    end = Membership._end_session

    def ended(self: Membership) -> None:
        self._is_in_office = False
        end(self)

    patch.setattr(Membership, "_end_session", ended)


def leave_the_watch_behind(patch: pytest.MonkeyPatch) -> None:
    """The office is watched in the first session; in the next ones nobody hears of a vacancy."""
    look = Membership._look

    def looked(self: Membership) -> None:
        if len(self._sessions) == 1:
            look(self)

    patch.setattr(Membership, "_look", looked)


def take_any_registration_away(patch: pytest.MonkeyPatch) -> None:
    """Whoever has this number makes room (KAFKA-14845)."""
    looked = Registration._looked

    def greedy(self: Registration, node: Any) -> None:
        owner = getattr(getattr(node, "stat", None), "ephemeral_owner", None)
        if owner is not None and owner != self._coordination.session_id:
            self._delete(node)
        else:
            looked(self, node)

    patch.setattr(Registration, "_looked", greedy)


def wait_for_own_registrations(patch: pytest.MonkeyPatch) -> None:
    """What is left of this process's last session is waited for as if it were another's
    (KAFKA-7165): it may be there for as long as nobody ends that."""
    start = Registration.start
    patch.setattr(
        Registration,
        "start",
        lambda self, cluster_id, _past, done: start(self, cluster_id, frozenset(), done),
    )
