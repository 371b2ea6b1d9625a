"""Rules of the machine, each replaced by the mistake that somebody has made.

A mutant is a function of pytest's monkeypatch: it puts one small method of the production code
in the place of another. Tests show that the scenario which the rule is for then goes wrong.
"""

from typing import Any

import pytest

from tidelog.log.epochs import LeaderEpochs
from tidelog.replication.isr import PendingExpand, PendingShrink
from tidelog.replication.remote import Remote
from tidelog.replication.replica import NO_EPOCH, Divergence, Replica
from tidelog.replication.verdicts import Verdict


def cut_to_watermark(patch: pytest.MonkeyPatch) -> None:
    """D1, X1: a follower drops what it does not know to be committed."""
    follow = Replica.become_follower

    def become_follower(self: Replica, leader_id: int, epochs: tuple[int, int]) -> None:
        follow(self, leader_id, epochs)
        log: Any = self.log
        log.truncate_suffix(max(self.high_watermark, log.log_start_offset))

    patch.setattr(Replica, "become_follower", become_follower)


def compare_lengths_only(patch: pytest.MonkeyPatch) -> None:
    """D1, X2, X10: a log that is not longer than the leader's is taken for a part of it."""

    def divergence(self: Replica, offset: int, _last_epoch: int) -> Divergence | None:
        end = self.log.log_end_offset
        return (self.leader_epoch, end) if offset > end else None

    patch.setattr(Replica, "divergence", divergence)


def compare_deleted_epochs(patch: pytest.MonkeyPatch) -> None:
    """X23: a log is taken to agree with what was deleted, of which nothing is known."""
    patch.setattr(LeaderEpochs, "earliest", -1)


def answer_with_the_next_epoch(patch: pytest.MonkeyPatch) -> None:
    """X5: the end of an epoch nobody knows is said to be the start of the next one."""

    def end_of(self: LeaderEpochs, epoch: int, log_end_offset: int) -> Divergence:
        later = [start for known, start in self.entries if known > epoch]
        return epoch, later[0] if later else log_end_offset

    patch.setattr(LeaderEpochs, "end_of", end_of)


def serve_any_epoch(patch: pytest.MonkeyPatch) -> None:
    """D2, X7: a request is not asked in which epoch it believes to be."""
    check = Replica.check_leads
    patch.setattr(Replica, "check_leads", lambda self, _epoch: check(self, NO_EPOCH))


def take_answers_of_any_epoch(patch: pytest.MonkeyPatch) -> None:
    """D2: an answer is taken although the leader has changed since it was asked for."""
    answered = Replica.answered

    def take(self: Replica, asked_epoch: int, *rest: Any) -> Verdict:
        return answered(self, asked_epoch and self.leader_epoch, *rest)

    patch.setattr(Replica, "answered", take)


def count_fetches_of_any_epoch(patch: pytest.MonkeyPatch) -> None:
    """D3: a member that has not fetched in this epoch is taken to have everything."""

    def reached(self: Replica, remote: Remote) -> int:
        return remote.log_end_offset if remote.has_fetched else self.log.log_end_offset

    patch.setattr(Replica, "reached", reached)


def expand_at_the_watermark(patch: pytest.MonkeyPatch) -> None:
    """D4, X6: the start of the epoch is not looked at."""

    def may_expand(self: Replica, follower: int, remote: Remote) -> bool:
        return (
            remote.log_end_offset >= self.high_watermark
            and remote.broker_epoch == self._live_epoch(follower)
        )

    patch.setattr(Replica, "may_expand", may_expand)


def expand_for_any_incarnation(patch: pytest.MonkeyPatch) -> None:
    """D4, X19: whether a follower has restarted since is not looked at."""

    def may_expand(self: Replica, _follower: int, remote: Remote) -> bool:
        end = remote.log_end_offset
        return remote.has_fetched and end >= max(self.high_watermark, self.epoch_start)

    patch.setattr(Replica, "may_expand", may_expand)


def remember_other_incarnations(patch: pytest.MonkeyPatch) -> None:
    """D4, X29: what is known of a follower outlives its restart."""

    def restart(self: Remote, broker_epoch: int) -> None:
        self.broker_epoch = broker_epoch

    patch.setattr(Remote, "restart", restart)


def expand_after_the_write(patch: pytest.MonkeyPatch) -> None:
    """D5, X13: a member to be added does not count before the write is known."""
    patch.setattr(PendingExpand, "maximal", property(lambda self: self.isr))


def shrink_before_the_write(patch: pytest.MonkeyPatch) -> None:
    """D5, X14: a member to be removed counts no more."""

    def maximal(self: PendingShrink) -> tuple[int, ...]:
        return tuple(member for member in self.isr if member not in self.removed)

    patch.setattr(PendingShrink, "maximal", property(maximal))


def keep_empty_epochs(patch: pytest.MonkeyPatch) -> None:
    """D7, X11: an epoch that was begun in vain stays, and hides the records of older ones."""
    lead, assign = Replica.become_leader, LeaderEpochs.assign

    def become_leader(self: Replica, epochs: tuple[int, int], *rest: Any) -> None:
        lead(self, epochs, *rest)
        self.log.epochs.assign(epochs[0], self.log.log_end_offset)

    def only_later(self: LeaderEpochs, epoch: int, start: int) -> None:
        if epoch > self.latest:
            assign(self, epoch, start)

    def fetch_position(self: Replica) -> tuple[int, int, int]:
        end = self.log.log_end_offset
        return end, self.log.epochs.at(end - 1), self.log.log_start_offset

    patch.setattr(Replica, "become_leader", become_leader)
    patch.setattr(Replica, "fetch_position", fetch_position)
    patch.setattr(LeaderEpochs, "assign", only_later)


def commit_below_min_isr(patch: pytest.MonkeyPatch) -> None:
    """D8, X20: the high watermark moves however small the set is."""
    patch.setattr(Replica, "is_frozen", lambda _self: False)


def count_diverging_fetches(patch: pytest.MonkeyPatch) -> None:
    """X8: a fetch beyond what both have in common counts as having that much."""
    fetched = Replica.fetched

    def counted(
        self: Replica, follower: int, broker_epoch: int, position: tuple[int, int, int], now_ms: int
    ) -> Divergence | None:
        diverging = fetched(self, follower, broker_epoch, position, now_ms)
        if diverging is not None:
            remote = self.remotes[follower]
            remote.fetched(position[0], position[2], self.log.log_end_offset, now_ms)
            self.advance()
        return diverging

    patch.setattr(Replica, "fetched", counted)


def keep_watermark_after_a_cut(patch: pytest.MonkeyPatch) -> None:
    """X9: what was cut off is still said to be committed."""
    patch.setattr(Replica, "was_cut", lambda _self: None)


def tell_the_watermark_at_once(patch: pytest.MonkeyPatch) -> None:
    """I5: a new leader tells its high watermark before that has reached its epoch's start."""
    lead = Replica.become_leader

    def become_leader(self: Replica, *arguments: Any) -> None:
        lead(self, *arguments)
        self.settled_at = 0

    patch.setattr(Replica, "become_leader", become_leader)
