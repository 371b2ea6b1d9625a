"""Writing a leader's change of its ISR: compare-and-set on the partition's state node.

The answer is never a guess. When the connection was lost over a write, or the node has another
version than expected, it is read back. A read may show an older state than the one that counts,
so before a leader is told what became of its change, the version that was read is confirmed by a
write that changes nothing, which the coordinator puts in order with all others. A topic that was
deleted and made again has nodes of the same names and versions, so each write also checks that
the topic is still the one with that id.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from tidelog.base.coordination import (
    Check,
    Coordination,
    CoordinationError,
    Node,
    Trouble,
    Written,
)
from tidelog.base.errors import BadValue
from tidelog.base.ids import TopicIdPartition
from tidelog.cluster import paths
from tidelog.cluster.image import PartitionInfo
from tidelog.cluster.topic_nodes import changed_state, is_incarnation, with_state, written
from tidelog.cluster.writing import insist
from tidelog.cluster.znodes import decode_state


@dataclass(frozen=True, slots=True, kw_only=True)
class Wrote:
    """It stands there."""

    state: PartitionInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """It does not and will not stand there; the leader still leads in the same epoch, and goes on
    from this state."""

    state: PartitionInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class Gone:
    """It cannot be written any more: another leader or epoch stands there, or (None) the node or
    the session is gone."""

    state: PartitionInfo | None


Outcome = Wrote | Refused | Gone


@dataclass(frozen=True, slots=True, kw_only=True)
class _Attempt:
    name: TopicIdPartition
    before: PartitionInfo
    after: PartitionInfo
    session_id: int
    done: Callable[[Outcome], None]

    @property
    def path(self) -> str:
        return paths.state(self.name.topic, self.name.partition)

    @property
    def same_topic(self) -> Check:
        return is_incarnation(self.name.topic, self.name.topic_id)


class IsrWriter:
    def __init__(self, coordination: Coordination) -> None:
        self._coordination = coordination
        self._under_way: set[TopicIdPartition] = set()

    def is_writing(self, name: TopicIdPartition) -> bool:
        return name in self._under_way

    def write(
        self,
        name: TopicIdPartition,
        before: PartitionInfo,
        after: PartitionInfo,
        done: Callable[[Outcome], None],
    ) -> None:
        """`before` is what the leader goes by; `after` differs from it in ISR, ELR and recorded
        epochs. There is one write at a time for a partition."""
        assert name not in self._under_way, f"the ISR of {name} is being written already"
        fenced = (before.leader, before.leader_epoch, before.state_version)
        assert (after.leader, after.leader_epoch, after.state_version) == fenced
        self._under_way.add(name)
        attempt = _Attempt(
            name=name,
            before=before,
            after=after,
            session_id=self._coordination.session_id,
            done=done,
        )
        change = changed_state(name.topic, name.partition, after)
        self._coordination.write([attempt.same_topic, *change], partial(self._wrote, attempt))

    def _wrote(self, attempt: _Attempt, result: list[Written] | CoordinationError) -> None:
        if not isinstance(result, CoordinationError):
            self._end(attempt, Wrote(state=written(attempt.after)))
        elif result.trouble in (Trouble.session_expired, Trouble.no_node):
            self._end(attempt, Gone(state=None))
        else:
            self._read_back(attempt)

    def _read_back(self, attempt: _Attempt) -> None:
        insist(partial(self._coordination.get, attempt.path), partial(self._read, attempt))

    def _read(self, attempt: _Attempt, node: Node | CoordinationError) -> None:
        if isinstance(node, CoordinationError):
            self._end(attempt, Gone(state=None))
            return
        try:
            state = decode_state(node.data)
        except BadValue:
            # Whoever wrote that, it was not this leader: what it knows no longer stands there.
            self._end(attempt, Gone(state=None))
            return
        found = with_state(attempt.before, state, node.stat.version)
        if not _is_led_alike(found, attempt.before):
            self._end(attempt, Gone(state=found))
        elif self._coordination.session_id != attempt.session_id:
            # It leads as the broker it was in that session, and no longer is.
            self._end(attempt, Gone(state=None))
        else:
            self._decide(attempt, found)

    def _decide(self, attempt: _Attempt, found: PartitionInfo) -> None:
        same_state = Check(path=attempt.path, version=found.state_version)
        confirmed = partial(self._confirmed, attempt, found)
        self._coordination.write([attempt.same_topic, same_state], confirmed)

    def _confirmed(
        self, attempt: _Attempt, found: PartitionInfo, result: list[Written] | CoordinationError
    ) -> None:
        trouble = result.trouble if isinstance(result, CoordinationError) else None
        if trouble in (Trouble.bad_version, Trouble.connection_loss):
            self._read_back(attempt)
        elif trouble in (Trouble.session_expired, Trouble.no_node):
            self._end(attempt, Gone(state=None))
        else:
            # A journal that cannot be written is this process's own: what it reads is what counts.
            assert trouble in (None, Trouble.storage), f"{attempt.path}: {trouble}"
            stands = _has_content(found, attempt.after) and not _has_content(found, attempt.before)
            self._end(attempt, Wrote(state=found) if stands else Refused(state=found))

    def _end(self, attempt: _Attempt, outcome: Outcome) -> None:
        self._under_way.remove(attempt.name)
        attempt.done(outcome)


def _is_led_alike(found: PartitionInfo, before: PartitionInfo) -> bool:
    return (found.leader, found.leader_epoch) == (before.leader, before.leader_epoch)


def _has_content(found: PartitionInfo, wanted: PartitionInfo) -> bool:
    return (found.isr, found.elr, dict(found.broker_epochs), found.controller_epoch) == (
        wanted.isr,
        wanted.elr,
        dict(wanted.broker_epochs),
        wanted.controller_epoch,
    )
