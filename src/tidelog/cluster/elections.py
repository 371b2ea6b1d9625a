"""Who shall lead a partition, and with which ISR: pure decisions of the controller.

`wanted_state` compares how a partition stands with how it should: it may be called at any time,
for any reason, and gives nothing to write when all is as it should be. A member of the ISR counts
only while it is *current*: registered under the broker epoch that is on record for it. One that
has restarted may have lost what it had not fsynced, so it must catch up before it counts again.

When no current member is left the partition has no leader, and its ISR and ELR stay on record
as they are. From then on it is led again only
- by recovery: enough of the members are back, say how far they are, and the one that is furthest
  leads (`strict`); or the first ISR member that is back leads (`first-isr`);
- by an unclean election, if that is allowed: by any replica that is alive.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from tidelog.cluster.image import NO_LEADER, NO_STATE, PartitionInfo
from tidelog.cluster.isr_change import effective_min_isr, with_isr

RecoveryStrategy = Literal["strict", "first-isr"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """What the controller knows of the brokers."""

    live: Mapping[int, int]
    """The brokers that are registered, with their epochs."""
    controller_epoch: int
    shutting_down: frozenset[int] = frozenset()
    strategy: RecoveryStrategy = "strict"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRules:
    min_isr: int
    """The topic's `min.insync.replicas`, which may be more than it has replicas."""
    unclean: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """How far a replica of a leaderless partition is. It counts under the leader epoch it was
    asked under, while the broker that answered has not restarted."""

    leader_epoch: int
    broker_epoch: int
    last_epoch: int
    log_end_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What the controller knows of one partition beside its state."""

    offline: frozenset[int] = frozenset()
    """Replicas that lie on log dirs that have failed."""
    reports: Mapping[int, Report | None] = field(default_factory=dict)
    """None: it was asked and did not answer."""


NOTHING_KNOWN = Known()


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """At most one of the two is there."""

    state: PartitionInfo | None = None
    """What is to be written; its `state_version` is that which the node must have now."""
    ask: tuple[int, ...] = ()
    """Who must say how far it is before the partition can be led. Who is named although it was
    asked already did not answer, and without it there are too few."""


def is_current(partition: PartitionInfo, member: int, situation: Situation) -> bool:
    epoch = partition.broker_epochs.get(member)
    return epoch is not None and situation.live.get(member) == epoch


def wanted_state(
    partition: PartitionInfo,
    situation: Situation,
    rules: TopicRules,
    known: Known = NOTHING_KNOWN,
) -> Decision:
    if partition.state_version == NO_STATE:
        return Decision(state=_first_state(partition, situation, known))
    if partition.leader == NO_LEADER:
        return _recovery(partition, situation, rules, known)
    usable = usable_isr(partition, situation, known)
    if usable:
        return Decision(state=_kept_led(partition, usable, situation, rules))
    leaderless = next_epoch(replace(partition, leader=NO_LEADER), situation.controller_epoch)
    # Nobody has been asked in the epoch that begins now.
    at_once = _recovery(leaderless, situation, rules, replace(known, reports={})).state
    if at_once is None:
        return Decision(state=leaderless)
    return Decision(state=replace(at_once, leader_epoch=leaderless.leader_epoch))


def preferred_leader(
    partition: PartitionInfo, situation: Situation, known: Known = NOTHING_KNOWN
) -> PartitionInfo | None:
    """With the first replica as leader; None if it leads, or cannot."""
    preferred = partition.replicas[0]
    is_led = partition.leader not in (preferred, NO_LEADER)
    can_lead = preferred in usable_isr(partition, situation, known)
    if not is_led or not can_lead or preferred in situation.shutting_down:
        return None
    return next_epoch(replace(partition, leader=preferred), situation.controller_epoch)


def unclean_leader(
    partition: PartitionInfo, situation: Situation, known: Known = NOTHING_KNOWN
) -> PartitionInfo | None:
    """Led by some replica that is alive, whatever it has; None if there is none, or if no such
    election is needed."""
    is_led = partition.leader != NO_LEADER and usable_isr(partition, situation, known)
    if partition.state_version == NO_STATE or is_led:
        return None
    return _unclean(partition, situation, known)


def choose_leader(
    partition: PartitionInfo, candidates: tuple[int, ...], situation: Situation
) -> int:
    """The leader as it is if it may stay, else the first candidate in the replicas' order."""
    steady = _unless_shutting_down(candidates, situation)
    if partition.leader in steady:
        return partition.leader
    return next(replica for replica in partition.replicas if replica in steady)


def next_epoch(partition: PartitionInfo, controller_epoch: int) -> PartitionInfo:
    """Every write of the controller begins a new leader epoch, so that nobody can take what
    was told before for what is told now."""
    return replace(
        partition, leader_epoch=partition.leader_epoch + 1, controller_epoch=controller_epoch
    )


def usable_isr(partition: PartitionInfo, situation: Situation, known: Known) -> tuple[int, ...]:
    return tuple(
        member
        for member in partition.isr
        if is_current(partition, member, situation)
        and member in partition.replicas
        and member not in known.offline
    )


def _unless_shutting_down(members: tuple[int, ...], situation: Situation) -> tuple[int, ...]:
    """A broker that is about to stop serves only while there is no other."""
    staying = tuple(member for member in members if member not in situation.shutting_down)
    return staying or members


def _first_state(
    partition: PartitionInfo, situation: Situation, known: Known
) -> PartitionInfo | None:
    """Nothing was written to it yet, so all that are alive are in sync."""
    isr = _unless_shutting_down(_alive(partition.replicas, situation, known), situation)
    if not isr:
        return None
    led = replace(
        partition,
        leader=isr[0],
        isr=isr,
        elr=(),
        broker_epochs={member: situation.live[member] for member in isr},
    )
    return next_epoch(led, situation.controller_epoch)


def _kept_led(
    partition: PartitionInfo, usable: tuple[int, ...], situation: Situation, rules: TopicRules
) -> PartitionInfo | None:
    """None if leader, ISR and ELR are as they should be."""
    isr = _unless_shutting_down(usable, situation)
    leader = choose_leader(partition, isr, situation)
    wanted = replace(with_isr(partition, isr, rules.min_isr), leader=leader)
    before = (partition.leader, partition.isr, partition.elr)
    if (wanted.leader, wanted.isr, wanted.elr) == before:
        return None
    return next_epoch(wanted, situation.controller_epoch)


def _recovery(
    partition: PartitionInfo, situation: Situation, rules: TopicRules, known: Known
) -> Decision:
    if situation.strategy == "first-isr":
        winner = _first_of_isr(partition, situation, known)
        ask: tuple[int, ...] = ()
    else:
        winner, ask = _furthest(partition, situation, rules, known)
    if winner is not None:
        return Decision(state=_led_alone(partition, winner, situation, rules.min_isr))
    if rules.unclean and all(_is_silent(member, known) for member in ask):
        state = _unclean(partition, situation, known)
        if state is not None:
            return Decision(state=state)
    return Decision(ask=ask)


def _first_of_isr(partition: PartitionInfo, situation: Situation, known: Known) -> int | None:
    isr = tuple(replica for replica in partition.replicas if replica in partition.isr)
    back = _unless_shutting_down(_alive(isr, situation, known), situation)
    return back[0] if back else None


def _furthest(
    partition: PartitionInfo, situation: Situation, rules: TopicRules, known: Known
) -> tuple[int | None, tuple[int, ...]]:
    """Who leads, or who must be asked before that is known; neither while too few are back.

    All members had everything that was committed. Of as many as the min ISR at least one still
    has it if fewer brokers than that lost something, and it is the one that is furthest."""
    members = _members(partition)
    needed = min(effective_min_isr(rules.min_isr, partition.replicas), len(members))
    back = _alive(members, situation, known)
    if not back or len(back) < needed:
        return None, ()
    if len(back) == 1:
        return back[0], ()
    reports = _valid_reports(partition, back, situation, known)
    silent = tuple(member for member in back if member not in reports)
    unasked = tuple(member for member in silent if not _is_silent(member, known))
    if unasked:
        return None, unasked
    if len(reports) < needed:
        return None, silent
    return _best(partition, back, reports, situation), ()


def _members(partition: PartitionInfo) -> tuple[int, ...]:
    """ISR and ELR, in the order of the replicas."""
    members = (*partition.isr, *partition.elr)
    return tuple(replica for replica in partition.replicas if replica in members)


def _alive(members: tuple[int, ...], situation: Situation, known: Known) -> tuple[int, ...]:
    return tuple(m for m in members if m in situation.live and m not in known.offline)


def _valid_reports(
    partition: PartitionInfo, members: tuple[int, ...], situation: Situation, known: Known
) -> dict[int, Report]:
    found = {member: known.reports.get(member) for member in members}
    return {
        member: report
        for member, report in found.items()
        if report is not None
        and report.leader_epoch == partition.leader_epoch
        and report.broker_epoch == situation.live[member]
    }


def _is_silent(member: int, known: Known) -> bool:
    return member in known.reports and known.reports[member] is None


def _best(
    partition: PartitionInfo,
    candidates: tuple[int, ...],
    reports: Mapping[int, Report],
    situation: Situation,
) -> int:
    """The one that is furthest; of equals one that is in the ISR, in the ELR, stays, comes first
    in the replicas. Who has not reported is behind all that have.

    A log from which everything was deleted knows no epoch. What was deleted was committed, so
    whoever ends below it has lost something, whatever its epoch is."""
    deleted = max((r.log_end_offset for r in reports.values() if r.last_epoch < 0), default=0)

    def rank(member: int) -> tuple[bool, tuple[int, int], bool, bool, bool]:
        report = reports.get(member)
        far = (-2, -1) if report is None else (report.last_epoch, report.log_end_offset)
        stays = member not in situation.shutting_down
        return far[1] >= deleted, far, member in partition.isr, member in partition.elr, stays

    return max(candidates, key=rank)


def _unclean(partition: PartitionInfo, situation: Situation, known: Known) -> PartitionInfo | None:
    alive = _alive(partition.replicas, situation, known)
    if not alive:
        return None
    reports = _valid_reports(partition, alive, situation, known)
    winner = _best(partition, alive, reports, situation)
    # What the others have is given up, so that no later recovery waits for them: a min ISR of
    # one leaves no ELR.
    return _led_alone(partition, winner, situation, min_isr=1)


def _led_alone(
    partition: PartitionInfo, winner: int, situation: Situation, min_isr: int
) -> PartitionInfo:
    """The others may have other records: they must match theirs with the leader's first."""
    recorded = {**partition.broker_epochs, winner: situation.live[winner]}
    alone = with_isr(replace(partition, broker_epochs=recorded), (winner,), min_isr)
    return next_epoch(replace(alone, leader=winner), situation.controller_epoch)
