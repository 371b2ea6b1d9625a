"""What must hold of one partition in every state: checked after each step, for what it touched.

`committed` is what any leader ever held below its high watermark, in order: once there, a record
stays what it is, at every replica that says so too (V1, V8), at every candidate for leadership
(V3, V5) and at every leader (V2). Records are shared objects, so comparing whole logs is cheap.
"""

from collections.abc import Callable
from typing import Final, Protocol

from tidelog.cluster.image import NO_LEADER
from tidelog.cluster.znodes import Assignment, State
from tidelog.replication.isr import PendingExpand
from tidelog.replication.replica import Replica, Role
from tidelog.trials.exchange import Copy
from tidelog.trials.model_log import ModelLog, Record
from tidelog.trials.violation import Violation

NO_VERSION: Final = -1
LATEST: Final = 1 << 60
"""Of leader epochs."""


class Standings(Protocol):
    """Which brokers are registered, under which epoch, and run."""

    def live_epoch(self, broker_id: int) -> int | None:
        """None unless its process runs and is registered."""


class Seen:
    """What was last seen of a replica, to see what changed."""

    __slots__ = ("checked", "epoch", "high_watermark", "is_leading", "log_start_offset")

    def __init__(self) -> None:
        self.checked = 0
        self.high_watermark = 0
        self.epoch = -1
        self.is_leading = False
        self.log_start_offset = 0


class Oracle:
    is_exposed = False
    """Whether what is committed may be at one replica only, since an unclean election."""

    is_deleted = False
    """Whether its topic is, or will be."""

    def __init__(self, index: int, min_isr: int, standings: Standings) -> None:
        self.index = index
        self.min_isr = min_isr
        self.committed: list[Record] = []
        self.acknowledged: dict[int, int] = {}
        """Values by offset."""
        self.acknowledged_end = 0
        self.known_end = 0
        """Beyond the largest offset that any client was told of."""
        self.logs: dict[int, ModelLog] = {}
        """What is on each broker's disk, whether it runs or not."""
        self.copies: dict[int, Copy] = {}
        """What runs."""
        self.largest_start = 0
        """Where any log ever started."""
        self.assignment: Assignment | None = None
        """Where its replicas are, and on their way to."""
        self.settled: tuple[int, ...] = ()
        """Where they were last while none of them moved."""
        self.state: State | None = None
        self.version = NO_VERSION
        self.power_losses = 0
        self._standings = standings
        self._leaders: dict[int, object] = {}
        self._seen: dict[int, Seen] = {}

    # -- what happens

    def started(self, broker_id: int, copy: Copy) -> None:
        self.copies[broker_id] = copy
        self.logs[broker_id] = copy.log
        seen = self._seen[broker_id] = Seen()
        seen.high_watermark = copy.replica.high_watermark
        seen.log_start_offset = copy.log.log_start_offset

    def stopped(self, broker_id: int) -> None:
        self.copies.pop(broker_id, None)

    def assigned(self, assignment: Assignment) -> None:
        """The topic's node has changed. Where there are fewer replicas than the min ISR asks for,
        all of them are enough."""
        self.assignment = assignment
        self.min_isr = min(self.min_isr, len(assignment.replicas))
        if not assignment.adding and not assignment.removing:
            self.settled = assignment.replicas

    def removed(self, broker_id: int) -> None:
        """A replica is gone for good: without it enough others have all that is committed."""
        self.copies.pop(broker_id, None)
        self._seen.pop(broker_id, None)
        del self.logs[broker_id]
        if self.is_deleted or self.is_exposed:
            return
        holders = sum(1 for log in self.logs.values() if self._has_all(log))
        if holders + self.power_losses < self.min_isr:
            raise Violation("V11", f"{self} {broker_id} was removed, {holders} have all that was")

    def leads(self, broker_id: int) -> None:
        """A broker was told to lead, in a new epoch or again."""
        replica = self.copies[broker_id].replica
        epoch = replica.leader_epoch
        incarnation = self._leaders.setdefault(epoch, replica)
        if incarnation is not replica:
            raise Violation("V9", f"{self} two replicas lead in epoch {epoch}")
        if self.state is not None and self.state.leader_epoch == epoch:
            self._require(self.logs[broker_id], broker_id, "V2")
        self.touched(broker_id)

    def touched(self, broker_id: int) -> None:
        """Something happened to a replica that runs."""
        copy = self.copies[broker_id]
        replica, log, seen = copy.replica, copy.log, self._seen[broker_id]
        high_watermark = replica.high_watermark
        if high_watermark > log.log_end_offset:
            raise Violation("V7", f"{self} HW {high_watermark} of {broker_id} is beyond its log")
        if log.log_start_offset != seen.log_start_offset:
            self._look_at_start(broker_id, copy, seen)
        if log.log_start_offset < log.log_end_offset and log.records[-1][0] != log.epochs.latest:
            raise Violation(
                "V6", f"{self} {broker_id} ends with {log.records[-1]}: {log.epochs.entries}"
            )
        if replica.role is Role.leader:
            self._look_at_leader(broker_id, replica, seen)
        if high_watermark > seen.checked:
            self._compare(broker_id, log, seen.checked, high_watermark)
            seen.checked = high_watermark
        seen.high_watermark = high_watermark
        seen.epoch = replica.leader_epoch
        seen.is_leading = replica.role is Role.leader

    def matched(self, broker_id: int) -> None:
        """A leader found that a follower's log is a part of its own."""
        self.touched(broker_id)

    def cut(self, broker_id: int, to: int) -> None:
        """A replica's log was cut; its epochs must fit what is left."""
        seen = self._seen[broker_id]
        seen.checked = min(seen.checked, to)
        seen.high_watermark = min(seen.high_watermark, to)
        if self.state is not None and broker_id not in (*self.state.isr, *self.state.elr):
            # Who had nothing, and need not have anything, begins where its leader does.
            seen.log_start_offset = min(
                seen.log_start_offset, self.logs[broker_id].log_start_offset
            )
        self.look_at_epochs(broker_id)
        if self.state is not None and to < len(self.committed) and self._is_candidate(broker_id):
            raise Violation(
                "V3", f"{self} {broker_id} may lead and dropped what is committed, from {to} on"
            )
        self.touched(broker_id)

    def look_at_epochs(self, broker_id: int) -> None:
        log = self.logs[broker_id]
        before = (-1, -1)
        for entry in log.epochs.entries:
            if entry[0] <= before[0] or entry[1] <= before[1]:
                raise Violation("V6", f"{self} {broker_id} has epochs {log.epochs.entries}")
            before = entry
            if entry[1] == log.log_start_offset == log.log_end_offset:
                continue
            if entry[1] >= log.log_end_offset or log.at(entry[1])[0] != entry[0]:
                raise Violation("V6", f"{self} {broker_id}: no record of epoch {entry}")

    def state_written(self, state: State, version: int) -> None:
        """The state node has changed."""
        before = self.state
        if version <= self.version or (before and state.leader_epoch < before.leader_epoch):
            raise Violation("V9", f"{self} {state} after {before}")
        if not state.isr or (state.leader != NO_LEADER and state.leader not in state.isr):
            raise Violation("V10", f"{self} leader {state.leader} in ISR {state.isr}")
        self.state, self.version = state, version
        self.look_at_members()
        if state.leader != NO_LEADER:
            for member in state.isr:
                if self._is_candidate(member):
                    self._require(self.logs[member], member, "V3")
        for broker_id in sorted(self.copies):
            self.look_at_set(broker_id)

    def look_at_members(self) -> None:
        """V10: who counts is a replica."""
        state, assignment = self.state, self.assignment
        if state is not None and assignment is not None:
            strange = {*state.isr, *state.elr}.difference(assignment.replicas)
            if strange:
                raise Violation(
                    "V10", f"{self} {strange} is none of the replicas {assignment.replicas}"
                )

    def look_at_set(self, broker_id: int) -> None:
        """V4: a leader that is not deposed counts all who are in the set."""
        replica = self.copies[broker_id].replica
        state = self.state
        if state is None or replica.role is not Role.leader:
            return
        if state.leader == broker_id and state.leader_epoch == replica.leader_epoch:
            missing = [member for member in state.isr if member not in replica.isr.maximal]
            if missing:
                raise Violation("V4", f"{self} leader {broker_id} does not count {missing}")

    def proposed(self, broker_id: int, live_epoch: Callable[[int], int | None]) -> None:
        """V10: who is to be added has all that was committed, in this epoch, and is the
        incarnation that the leader knows to be registered."""
        replica = self.copies[broker_id].replica
        if isinstance(replica.isr, PendingExpand):
            remote = replica.remotes[replica.isr.added]
            enough = max(replica.high_watermark, replica.epoch_start)
            if not remote.has_fetched or remote.log_end_offset < enough:
                raise Violation("V10", f"{self} {replica.isr.added} is proposed too early")
            if replica.isr.added_epoch != live_epoch(replica.isr.added):
                raise Violation("V10", f"{self} {replica.isr.added} has restarted since")

    def acked(self, offset: int, value: int, known_end: int, _leader_epoch: int = LATEST) -> None:
        """acks=all was answered, by a leader of that epoch; `known_end` is what was known when it
        was asked for."""
        holders = sum(1 for log in self.logs.values() if log.offset_of.get(value) == offset)
        if offset >= self.largest_start and holders + self.power_losses < self.min_isr:
            raise Violation("V11", f"{self} m{value} is acknowledged on {holders} replicas")
        if offset >= len(self.committed) or self.committed[offset][1] != value:
            raise Violation("V2", f"{self} m{value} is acknowledged at {offset}, uncommitted")
        if self.acknowledged.get(offset, value) != value:
            raise Violation("V12", f"{self} two values are acknowledged at {offset}")
        self.ordered(offset, value, known_end)
        self.acknowledged[offset] = value
        self.acknowledged_end = max(self.acknowledged_end, offset + 1)

    def ordered(self, offset: int, value: int, known_end: int) -> None:
        """V12: what was sent after others were told of has a later offset."""
        if offset < known_end:
            raise Violation("V12", f"{self} m{value} is at {offset}, {known_end} was known before")
        self.known_end = max(self.known_end, offset + 1)

    def read(self, offset: int, records: list[Record]) -> None:
        """A reader was served: it must never be otherwise (V8)."""
        end = offset + len(records)
        if self.committed[offset:end] != records:
            raise Violation("V8", f"{self} a reader saw {records} at {offset}")
        self.known_end = max(self.known_end, end)

    def deleted(self, leader: Replica, start: int, live_epoch: Callable[[int], int | None]) -> None:
        """S5: who answers that records are deleted knows it of all replicas that live, as far as it
        has heard. One that has restarted may have forgotten since, and one that was taken away and
        made anew has nothing in it."""
        if leader.role is not Role.leader:
            raise Violation("S5", f"{self} is said to start at {start} by who leads no more")
        for broker_id, remote in leader.remotes.items():
            copy, epoch = self.copies.get(broker_id), self._standings.live_epoch(broker_id)
            if copy is not None and epoch == remote.broker_epoch == live_epoch(broker_id):
                found = copy.log.log_start_offset
                if found < start and found < copy.log.log_end_offset:
                    what = f"is said to start at {start}, and starts at {found} on {broker_id}"
                    raise Violation("S5", f"{self} {what}")

    # -- inside

    def _look_at_start(self, broker_id: int, copy: Copy, seen: Seen) -> None:
        """V17."""
        start = copy.log.log_start_offset
        if start < seen.log_start_offset:
            raise Violation("V17", f"{self} {broker_id} starts at {start} again")
        if start > copy.replica.high_watermark:
            raise Violation(
                "V17", f"{self} {broker_id} starts at {start}, HW {copy.replica.high_watermark}"
            )
        seen.log_start_offset = start
        self.largest_start = max(self.largest_start, start)

    def _look_at_leader(self, broker_id: int, replica: Replica, seen: Seen) -> None:
        high_watermark = replica.high_watermark
        goes_on = seen.is_leading and seen.epoch == replica.leader_epoch
        if goes_on and high_watermark < seen.high_watermark:
            raise Violation("V7", f"{self} HW of the leader {broker_id} fell to {high_watermark}")
        if high_watermark > seen.high_watermark:
            self._look_at_advance(broker_id, replica)
        if self.known_end > high_watermark >= replica.settled_at and self._is_in_office(replica):
            raise Violation(
                "I5", f"{self} leader {broker_id} tells HW {high_watermark} after {self.known_end}"
            )
        committed = self.committed
        if high_watermark > len(committed):
            start = len(committed)
            committed += self.logs[broker_id].between(start, high_watermark)
            if self.state is not None:
                for member in self.state.isr:
                    if self._is_candidate(member):
                        self._require(self.logs[member], member, "V5")

    def _is_in_office(self, replica: Replica) -> bool:
        return self.state is not None and self.state.leader_epoch == replica.leader_epoch

    def _look_at_advance(self, broker_id: int, replica: Replica) -> None:
        high_watermark = replica.high_watermark
        if len(replica.isr.isr) < replica.min_isr:
            raise Violation("V7", f"{self} HW {high_watermark} moved below the min ISR")
        for member in replica.isr.maximal:
            if member != broker_id:
                remote = replica.remotes[member]
                if not remote.has_fetched or remote.log_end_offset < high_watermark:
                    raise Violation("V7", f"{self} HW {high_watermark} is beyond {member}")

    def _compare(self, broker_id: int, log: ModelLog, start: int, end: int) -> None:
        start = max(start, self.compared_from(log))
        found, committed = log.between(start, end), self.committed[start:end]
        if found != committed:
            raise Violation(
                "V1", f"{self} {broker_id} has {found} below its HW at {start}, others {committed}"
            )

    def _is_candidate(self, broker_id: int) -> bool:
        """Whether an ordinary election may take it."""
        state = self.state
        if state is None or broker_id not in state.isr or broker_id not in self.logs:
            return False
        epoch = self._standings.live_epoch(broker_id)
        return epoch is not None and state.broker_epochs.get(broker_id) == epoch

    def _require(self, log: ModelLog, broker_id: int, invariant: str) -> None:
        """All that is committed must be in a log."""
        if not self._has_all(log):
            raise Violation(
                invariant,
                f"{self} {broker_id} lacks committed records: it ends at {log.log_end_offset}, "
                f"{len(self.committed)} are committed",
            )

    def _has_all(self, log: ModelLog) -> bool:
        count = len(self.committed)
        if log.log_end_offset < count:
            return False
        first = self.compared_from(log)
        return log.between(first, count) == (self.committed[first:] if first else self.committed)

    def compared_from(self, log: ModelLog) -> int:
        """From where on a log must have what is committed."""
        return log.first

    def __str__(self) -> str:
        return f"partition {self.index}:"
