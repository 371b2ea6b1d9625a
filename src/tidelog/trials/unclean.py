"""What must hold of a partition that may be led by a replica that lacks something (E3).

Each unclean election begins another line of what is committed: what its leader has goes on in it,
and only there may acknowledged records be missing. Who has not heard of it yet, a deposed leader
and who follows that one, stays in the line before, where everything holds as ever; a replica
changes lines when its leader finds that their logs match.
"""

from collections.abc import Callable, Iterable
from typing import Final, Protocol

from tidelog.cluster.image import NO_LEADER
from tidelog.cluster.isr_change import effective_min_isr
from tidelog.cluster.znodes import State
from tidelog.replication.replica import Replica
from tidelog.trials.exchange import Copy
from tidelog.trials.model_log import ModelLog, Record
from tidelog.trials.oracle import LATEST, Oracle, Standings
from tidelog.trials.violation import Violation

FIRST: Final = -1


class Line:
    """What is committed by leaders from an epoch on, up to the next unclean election."""

    __slots__ = ("acknowledged", "committed", "since", "start")

    def __init__(self, since: int, committed: list[Record], acknowledged: dict[int, int]) -> None:
        self.since = since
        self.committed = committed
        self.acknowledged = acknowledged
        self.start = 0
        """Where any log in it started. What lies below is deleted there, and may differ: nothing is
        known of its epochs any more."""

    def has_value(self, offset: int, value: int) -> bool:
        return offset < len(self.committed) and self.committed[offset][1] == value

    def has(self, offset: int, records: list[Record]) -> bool:
        hidden = max(0, self.start - offset)
        end = offset + len(records)
        return self.committed[offset + hidden : end] == records[hidden:]


class Elections(Standings, Protocol):
    """What goes on around unclean elections."""

    def may_be_unclean(self) -> bool:
        """Whether somebody allows it, by a setting or in so many words."""

    def elected_uncleanly(self) -> None: ...

    def went_back(self, index: int, end: int) -> None:
        """Offsets of a partition are given again, from `end` on."""

    def gave_up(self, values: Iterable[int]) -> None:
        """They were acknowledged, and are lost."""


class UncleanOracle(Oracle):
    def __init__(self, index: int, min_isr: int, elections: Elections) -> None:
        super().__init__(index, min_isr, elections)
        self._elections = elections
        self._min_isr_asked = min_isr
        self._line = Line(FIRST, self.committed, self.acknowledged)
        """The one that is looked at."""
        self._lines = [self._line]
        """In the order of their epochs."""
        self._awaited: list[int] = []
        """Epochs of unclean elections whose leaders have not begun to lead."""
        self._at: dict[int, Line] = {}
        """Which line each replica is in."""
        self._asks_candidates = True

    # -- elections

    def state_written(self, state: State, version: int) -> None:
        if self._is_unclean(state):
            self._look_at_unclean(state)
            self._awaited.append(state.leader_epoch)
            self.is_exposed = True
        super().state_written(state, version)
        if not self._is_undecided() and len(state.isr) >= self.min_isr:
            self.is_exposed = False

    def _is_unclean(self, state: State) -> bool:
        """Whether who leads now may lack something: it is none of those who had all of it, or it
        is one of several and the others count no more, although one alone may have lost some."""
        before = self.state
        if before is None or state.leader_epoch == before.leader_epoch:
            return False
        members = {*before.isr, *before.elr}
        if state.leader not in members:
            return state.leader != NO_LEADER
        assert self.assignment is not None
        min_isr = effective_min_isr(self._min_isr_asked, self.assignment.replicas)
        return min_isr > 1 and len(members) > 1 == len(state.isr) and not state.elr

    def _look_at_unclean(self, state: State) -> None:
        """E3: it is allowed, and nobody else could lead."""
        before = self.state
        assert before is not None
        if not self._elections.may_be_unclean():
            raise Violation("E3", f"{self} {state.leader} is elected uncleanly: {before}")
        if before.leader != NO_LEADER:
            for member in before.isr:
                if super()._is_candidate(member):
                    raise Violation("E3", f"{self} {state.leader} is elected instead of {member}")
        self._elections.elected_uncleanly()

    def leads(self, broker_id: int) -> None:
        epoch = self.copies[broker_id].replica.leader_epoch
        awaited = [since for since in self._awaited if since <= epoch]
        if awaited and awaited[-1] > self._line_of(epoch).since:
            self._begin(awaited[-1], broker_id)
        self._change(broker_id, self._line_of(epoch))
        super().leads(broker_id)

    def _begin(self, since: int, broker_id: int) -> None:
        """What the leader has stays, whatever it is: nobody counts who does not have all of that.
        The rest is lost."""
        before, log = self._line_of(since), self.logs[broker_id]
        # It may have begun anew where a leader's log started whose line it was not in yet.
        lines = (self._at[broker_id], *reversed(self._lines))
        hidden = next(
            line.committed[: log.first] for line in lines if len(line.committed) >= log.first
        )
        committed = hidden + log.between(log.first, log.log_end_offset)
        line = Line(since, committed, {})
        kept = {
            offset: value
            for offset, value in before.acknowledged.items()
            if line.has_value(offset, value)
        }
        line.acknowledged = kept
        if since > self._lines[-1].since:
            lost = [value for offset, value in before.acknowledged.items() if offset not in kept]
            common = _common(before.committed, committed)
            self._line, self.committed, self.acknowledged = line, committed, kept
            self.known_end = min(self.known_end, common)
            self._elections.went_back(self.index, common)
            self._elections.gave_up(lost)
        self._lines.append(line)
        self._lines.sort(key=lambda each: each.since)

    # -- lines

    def _line_of(self, epoch: int) -> Line:
        return next(line for line in reversed(self._lines) if line.since <= epoch)

    def _is_undecided(self) -> bool:
        """Whether what is committed is known only when the leader begins to lead."""
        return bool(self._awaited) and self._awaited[-1] > self._lines[-1].since

    def _is_behind(self, line: Line) -> bool:
        return line is not self._lines[-1] or self._is_undecided()

    def _change(self, broker_id: int, line: Line) -> None:
        if self._at.get(broker_id) is not line:
            self._at[broker_id] = line
            self._seen[broker_id].checked = 0

    def started(self, broker_id: int, copy: Copy) -> None:
        super().started(broker_id, copy)
        self._at.setdefault(broker_id, self._lines[-1])

    def removed(self, broker_id: int) -> None:
        self._at.pop(broker_id, None)
        super().removed(broker_id)

    def matched(self, broker_id: int) -> None:
        self._change(broker_id, self._line_of(self.copies[broker_id].replica.leader_epoch))
        super().matched(broker_id)

    # -- the checks, each in its line

    def touched(self, broker_id: int) -> None:
        line = self._at[broker_id]
        line.start = max(line.start, self.logs[broker_id].log_start_offset)
        if not self._is_behind(line):
            super().touched(broker_id)
            return
        current = self._line
        self._line, self.committed = line, line.committed
        self._asks_candidates = False
        super().touched(broker_id)
        self._line, self.committed = current, current.committed
        self._asks_candidates = True

    def compared_from(self, log: ModelLog) -> int:
        return max(log.first, log.log_start_offset, self._line.start)

    def cut(self, broker_id: int, to: int) -> None:
        copy = self.copies[broker_id]
        if self._at[broker_id] is not self._line_of(copy.replica.leader_epoch):
            # It may begin anew below where it started in the line before.
            self._seen[broker_id].log_start_offset = copy.log.log_start_offset
        super().cut(broker_id, to)

    def _is_candidate(self, broker_id: int) -> bool:
        return (
            self._asks_candidates and not self._is_undecided() and super()._is_candidate(broker_id)
        )

    def acked(self, offset: int, value: int, known_end: int, leader_epoch: int = LATEST) -> None:
        line = self._line_of(leader_epoch)
        if line is self._lines[-1]:
            super().acked(offset, value, known_end)
        elif not line.has_value(offset, value):
            raise Violation("V2", f"{self} m{value} is acknowledged at {offset}, uncommitted")
        elif not self._line.has_value(offset, value):
            self._elections.gave_up([value])

    def read(self, offset: int, records: list[Record]) -> None:
        if self._line.has(offset, records):
            self.known_end = max(self.known_end, offset + len(records))
        elif not any(line.has(offset, records) for line in self._lines):
            super().read(offset, records)

    def deleted(self, leader: Replica, start: int, live_epoch: Callable[[int], int | None]) -> None:
        if not self._is_behind(self._line_of(leader.leader_epoch)):
            super().deleted(leader, start, live_epoch)


def _common(one: list[Record], other: list[Record]) -> int:
    """How many records two logs begin with alike."""
    for offset, (left, right) in enumerate(zip(one, other, strict=False)):
        if left != right:
            return offset
    return min(len(one), len(other))
