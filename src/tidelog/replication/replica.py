"""One replica of one partition: who leads it, how far it is, and what is committed.

The machine does no I/O. It reads where its log ends and which epochs it has; whoever holds it
feeds it what happened (an append, a fetch, an answer, a change of leader) and does what it
says: write an ISR, cut the log, append. The hot events are plain methods with plain arguments.

    nobody    told nothing yet, or nobody leads: it only keeps what it has
    follower  asks its leader from its log end on; drops what the leader does not have (L2)
    leader    knows its followers by their fetches; what the in-sync set has is committed (R2)

A stale answer carries the leader epoch it was asked under and is dropped.
"""

from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Final, Protocol

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.log.epochs import LeaderEpochs
from tidelog.replication.isr import Committed, Isr, PendingExpand, PendingShrink
from tidelog.replication.remote import NEVER, Remote
from tidelog.replication.verdicts import APPEND, BACK_OFF, DROP, RESTART, TRUNCATE, Verdict

NOBODY: Final = -1
NO_EPOCH: Final = -1
NO_CHECK: Final = -1
NOWHERE: Final = 1 << 60
Divergence = tuple[int, int]
"""The largest epoch the leader knows that is not above the one asked about, and its end."""


class ReplicaLog(Protocol):
    """What the machine sees of its log; it never changes it."""

    @property
    def log_start_offset(self) -> int: ...

    @property
    def log_end_offset(self) -> int: ...

    @property
    def epochs(self) -> LeaderEpochs: ...


class Role(IntEnum):
    nobody = 0
    follower = 1
    leader = 2


# Looking a member up in its class takes longer than the rest of an append's bookkeeping.
NO_ROLE: Final = Role.nobody
FOLLOWER: Final = Role.follower
LEADER: Final = Role.leader


class Replica:
    __slots__ = (
        "_counted",
        "_isr",
        "_live_epoch",
        "broker_id",
        "cut_offset",
        "elr",
        "epoch_start",
        "flushing_from",
        "high_watermark",
        "lag_ms_max",
        "leader_epoch",
        "leader_id",
        "log",
        "min_isr",
        "partition_epoch",
        "remotes",
        "replicas",
        "role",
        "settled_at",
    )

    def __init__(
        self,
        broker_id: int,
        log: ReplicaLog,
        high_watermark: int,
        live_epoch: Callable[[int], int | None],
    ) -> None:
        """`live_epoch` tells under which broker epoch another broker is registered."""
        self.broker_id = broker_id
        self.log = log
        self.high_watermark = min(max(high_watermark, log.log_start_offset), log.log_end_offset)
        self._live_epoch = live_epoch
        self.min_isr = 1
        self.elr: tuple[int, ...] = ()
        """Who fell out of too small a set: they have all that is committed."""
        self.lag_ms_max = 30_000
        self.role = NO_ROLE
        self.leader_id = NOBODY
        self.leader_epoch = NO_EPOCH
        self.partition_epoch = NO_EPOCH
        self.epoch_start = 0
        """Where the log ended when this leader's epoch began."""
        self.settled_at = 0
        """What the high watermark must have reached before it can be told: a leader that took
        over from another may know of less than that one had committed."""
        self.flushing_from: int = NOWHERE
        """What lies there in its own log does not count before it is durable."""
        self.replicas: tuple[int, ...] = ()
        self.remotes: dict[int, Remote] = {}
        self.isr = Committed(())
        self.cut_offset = 0

    @property
    def isr(self) -> Isr:
        return self._isr

    @isr.setter
    def isr(self, isr: Isr) -> None:
        """Notes with it whose log ends the high watermark depends on: every append asks."""
        self._isr = isr
        self._counted = [self.remotes[m] for m in isr.maximal if m != self.broker_id]

    # -- who leads

    def become_leader(
        self,
        epochs: tuple[int, int],
        replicas: Sequence[int],
        isr: Sequence[int],
        now_ms: int,
    ) -> None:
        """`epochs` are the leader epoch and the partition epoch. News of its own epoch that are
        not newer change nothing: what it has proposed since may still be written."""
        leader_epoch = epochs[0]
        assert leader_epoch >= self.leader_epoch, "a leader epoch fell"
        assert self.broker_id in isr, "a leader is in its in-sync set"
        assert set(isr) <= set(replicas), "the in-sync set is part of the replicas"
        goes_on = self.role is LEADER and leader_epoch == self.leader_epoch
        if goes_on and epochs[1] <= self.partition_epoch:
            return
        known = self.remotes if goes_on else {}
        if not goes_on:
            self.epoch_start = self.log.log_end_offset
            if self.role is not LEADER or leader_epoch > self.leader_epoch + 1:
                self.settled_at = self.epoch_start
        self._set(LEADER, self.broker_id, epochs)
        self.replicas = tuple(replicas)
        self.remotes = {
            other: known.get(other) or Remote(now_ms if other in isr else NEVER)
            for other in replicas
            if other != self.broker_id
        }
        self.isr = Committed(tuple(isr))
        self.advance()

    def become_follower(self, leader_id: int, epochs: tuple[int, int]) -> None:
        """With NOBODY as leader there is nobody to follow, but the epoch is known."""
        assert epochs[0] >= self.leader_epoch, "a leader epoch fell"
        self._set(NO_ROLE if leader_id == NOBODY else FOLLOWER, leader_id, epochs)
        self._forget_leadership()

    def resign(self) -> None:
        """Leads and follows nothing until it is told again."""
        self.role = NO_ROLE
        self.leader_id = NOBODY
        self._forget_leadership()

    def _set(self, role: Role, leader_id: int, epochs: tuple[int, int]) -> None:
        self.role = role
        self.leader_id = leader_id
        self.leader_epoch, self.partition_epoch = epochs

    def _forget_leadership(self) -> None:
        self.isr = Committed(())
        self.remotes = {}

    # -- leading

    def check_leads(self, leader_epoch: int) -> None:
        """Refuses what is not asked of a leader, or of one in another epoch (L6)."""
        if self.role is not LEADER:
            raise KafkaError(ErrorCode.not_leader_or_follower, "this broker does not lead it")
        if leader_epoch not in (NO_CHECK, self.leader_epoch):
            older = leader_epoch < self.leader_epoch
            raise KafkaError(
                ErrorCode.fenced_leader_epoch if older else ErrorCode.unknown_leader_epoch,
                f"leader epoch {leader_epoch} in the request, {self.leader_epoch} here",
            )

    def check_settled(self) -> None:
        """Until its high watermark has reached what the leaders before it had, a new leader does
        not say where the end is: it would go back for a reader (I5)."""
        if self.high_watermark < self.settled_at:
            raise KafkaError(
                ErrorCode.offset_not_available, "the leader has just changed; ask again"
            )

    def fetched(
        self,
        follower: int,
        broker_epoch: int,
        position: tuple[int, int, int],
        now_ms: int,
    ) -> Divergence | None:
        """A follower asks from its log end on. `position` is that offset, the epoch of the record
        before it, and its log start. Nothing is noted of one whose log is not a part of this
        one, but that it has restarted: it is told up to where it may be, and asks again."""
        offset, last_epoch, log_start_offset = position
        remote = self.remotes.get(follower)
        if remote is None:
            wrong = f"broker {follower} is not one of the replicas"
            raise KafkaError(ErrorCode.not_leader_or_follower, wrong)
        if broker_epoch < remote.broker_epoch:
            raise KafkaError(ErrorCode.stale_broker_epoch, f"broker {follower} has restarted since")
        if broker_epoch > remote.broker_epoch:
            remote.restart(broker_epoch)
        diverging = self.divergence(offset, last_epoch)
        if last_epoch == NO_EPOCH and not (follower in self.isr.maximal or follower in self.elr):
            # What it has deleted may be other records than these, since an unclean election.
            start = self.log.log_start_offset
            diverging = (NO_EPOCH, start) if offset > start else None
        if diverging is not None:
            return diverging
        remote.fetched(offset, log_start_offset, self._told_end(), now_ms)
        if follower not in self.isr.maximal:
            self._consider(follower, remote)
        self.advance()
        return None

    def was_caught_up(self, follower: int, asked_ms: int) -> None:
        """A follower that has everything need not say so again and again: it asked last at
        `asked_ms`, and nothing had been appended until now."""
        remote = self.remotes.get(follower)
        if remote is not None and remote.has_fetched:
            remote.last_caught_up_ms = max(remote.last_caught_up_ms, asked_ms)

    def divergence(self, offset: int, last_epoch: int) -> Divergence | None:
        """Where a follower's log leaves this one, if it does (X5, X23). Nothing is known here of
        epochs whose records were deleted: a log that ends in one of these, at the start or below,
        has nothing that could be compared, and begins anew."""
        start = self.log.log_start_offset
        if last_epoch == NO_EPOCH:
            return (NO_EPOCH, start) if offset > self.log.log_end_offset else None
        if offset <= start and last_epoch < self.log.epochs.earliest:
            return NO_EPOCH, start
        epoch, end = self.end_of(last_epoch)
        return (epoch, end) if epoch < last_epoch or end < offset else None

    def end_of(self, epoch: int) -> Divergence:
        """The largest known epoch not above `epoch`, and its end (L2). The epoch that this leader
        began is known from its start, record or not (L1)."""
        end = self.log.log_end_offset
        if self.role is LEADER and epoch >= self.leader_epoch:
            return self.leader_epoch, end
        known, known_end = self.log.epochs.end_of(epoch, end)
        if known == NO_EPOCH and epoch != NO_EPOCH and self.role is LEADER:
            # No record is left of any epoch: all before its own ended where that began.
            return epoch, self.epoch_start
        return known, known_end

    def _consider(self, follower: int, remote: Remote) -> None:
        if isinstance(self.isr, Committed) and self.may_expand(follower, remote):
            self.isr = PendingExpand(self.isr.isr, follower, remote.broker_epoch)

    def may_expand(self, follower: int, remote: Remote) -> bool:
        """Whether a follower has all that is committed, also by the leaders before this one
        (I3, X6), and nothing that was deleted while it was away (S5), in the incarnation that is
        registered (X19)."""
        return (
            remote.has_fetched
            and remote.log_end_offset >= self.high_watermark
            and remote.log_end_offset >= self.epoch_start
            and remote.log_start_offset >= self.log.log_start_offset
            and remote.broker_epoch == self._live_epoch(follower)
        )

    def expire(self, now_ms: int) -> None:
        """Proposes to take out of the set who was not caught up for too long (I2); or the same
        set again, where a smaller one is enough now and nobody need be remembered any more."""
        if self.role is not LEADER or not isinstance(self.isr, Committed):
            return
        end = self._told_end()
        slow = tuple(
            member
            for member in self.isr.isr
            if member != self.broker_id
            and not self.remotes[member].is_in_sync(end, now_ms, self.lag_ms_max)
        )
        if slow or (self.elr and len(self.isr.isr) >= self.min_isr):
            self.isr = PendingShrink(self.isr.isr, slow)

    def reconsider(self, now_ms: int) -> None:
        """Proposes who is in sync and not in the set: when it asked last, another change was being
        written, or its incarnation was not known here yet; and it may not ask again for long."""
        if self.role is not LEADER:
            return
        end = self._told_end()
        for other, remote in self.remotes.items():
            if other not in self.isr.maximal and remote.is_in_sync(end, now_ms, self.lag_ms_max):
                self._consider(other, remote)

    def _told_end(self) -> int:
        """Where followers are caught up: nobody has been told of what is still being flushed."""
        return min(self.log.log_end_offset, self.flushing_from)

    def isr_written(self, isr: Sequence[int], partition_epoch: int) -> None:
        """What was proposed stands in the coordinator, or something else of this epoch does.
        What the controller has said since is newer."""
        assert self.role is LEADER, "only a leader writes the in-sync set"
        if partition_epoch < self.partition_epoch:
            return
        self.isr = Committed(tuple(isr))
        self.partition_epoch = partition_epoch
        self.advance()

    def advance(self) -> bool:
        """Lifts the high watermark to what all in the maximal in-sync set have (R2, I5)."""
        if self.role is not LEADER or self.is_frozen():
            return False
        committed = min(self.log.log_end_offset, self.flushing_from)
        for remote in self._counted:
            reached = self.reached(remote)
            if reached < committed:
                committed = reached
        if committed <= self.high_watermark:
            return False
        self.high_watermark = committed
        return True

    def is_frozen(self) -> bool:
        """Nothing is committed that those who fell out of too small a set would miss (D8)."""
        return bool(self.elr) or len(self._isr.isr) < self.min_isr

    def reached(self, remote: Remote) -> int:
        """How far a member counts: not at all before its first fetch in this epoch (D3)."""
        return remote.log_end_offset if remote.has_fetched else -1

    def low_watermark(self) -> int:
        """The smallest log start of the replicas that are registered (S5)."""
        live = [r for other, r in self.remotes.items() if self._live_epoch(other) is not None]
        return min([self.log.log_start_offset, *[remote.log_start_offset for remote in live]])

    # -- following

    def fetch_position(self) -> tuple[int, int, int]:
        """Where to fetch from, the epoch of the record before it, and the log start."""
        log = self.log
        return log.log_end_offset, log.epochs.latest, log.log_start_offset

    def answered(
        self,
        asked_epoch: int,
        error: int,
        diverging: Divergence | None,
        leader_start: int,
    ) -> Verdict:
        """What to do with the answer to a fetch that was sent under `asked_epoch`."""
        if self.role is not FOLLOWER or asked_epoch != self.leader_epoch:
            return DROP
        if diverging is not None:
            self.cut_offset = self.common_end(diverging)
            is_inside = self.cut_offset >= self.log.log_start_offset
            return TRUNCATE if is_inside and diverging[0] != NO_EPOCH else RESTART
        if error == ErrorCode.offset_out_of_range:
            if leader_start > self.log.log_end_offset:
                self.cut_offset = leader_start
                return RESTART
            return BACK_OFF
        return BACK_OFF if error else APPEND

    def common_end(self, diverging: Divergence) -> int:
        """Up to where this log may still be the leader's: the end of that epoch in both."""
        epoch, leader_end = diverging
        own_epoch, own_end = self.log.epochs.end_of(epoch, self.log.log_end_offset)
        if own_epoch == NO_EPOCH:
            return leader_end
        return min(own_end, leader_end)

    def was_cut(self) -> None:
        """The log was truncated or begun anew: what is beyond its end cannot be committed."""
        self.high_watermark = min(self.high_watermark, self.log.log_end_offset)
        self.high_watermark = max(self.high_watermark, self.log.log_start_offset)

    def followed(self, leader_high_watermark: int) -> bool:
        """The records of an answer were appended; whether the high watermark moved."""
        reached = min(leader_high_watermark, self.log.log_end_offset)
        if reached <= self.high_watermark:
            return False
        self.high_watermark = reached
        return True
