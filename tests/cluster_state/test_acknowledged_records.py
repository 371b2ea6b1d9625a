"""Histories of a partition in which brokers crash, with and without losing what they had not
fsynced, and followers lag and catch up; the controller looks now and then.

As long as fewer brokers than the min ISR lose something, whoever leads has everything that was
committed. Every rule that this needs is broken once to see that it is noticed.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random

import pytest

from tidelog.cluster.elections import Known, Report, Situation, TopicRules, is_current, wanted_state
from tidelog.cluster.image import NO_LEADER, PartitionInfo
from tidelog.cluster.isr_change import expanded, shrunk

REPLICAS = (0, 1, 2)
STEPS = ("crash", "lose", "start", "start", "bounce", "catch_up", "catch_up", "lag", "commit")
Mutation = Callable[[PartitionInfo, PartitionInfo, Situation], PartitionInfo]
"""Before, after, and what the controller knew: what a broken controller would write."""


class Lost(Exception):
    """A leader without a record that was committed."""


@dataclass
class History:
    """Of each broker only how many records it has is played: a prefix of all of them."""

    random: Random
    min_isr: int
    breaks: Mutation | None
    partition: PartitionInfo = field(
        default_factory=lambda: PartitionInfo(
            replicas=REPLICAS,
            isr=REPLICAS,
            leader=0,
            leader_epoch=0,
            state_version=0,
            broker_epochs=dict(enumerate(REPLICAS)),
        )
    )
    live: dict[int, int] = field(default_factory=lambda: dict(enumerate(REPLICAS)))
    held: dict[int, int] = field(default_factory=lambda: dict.fromkeys(REPLICAS, 0))
    committed: int = 0
    incarnations: int = 100
    losers: set[int] = field(default_factory=set)
    recoveries: int = 0

    def play(self, steps: int) -> None:
        for _ in range(steps):
            broker_id = self.random.choice(REPLICAS)
            match self.random.choice(STEPS):
                case "crash":
                    self.live.pop(broker_id, None)
                case "lose":
                    self.lose(broker_id)
                case "start":
                    self.start(broker_id)
                case "bounce":
                    self.live.pop(broker_id, None)
                    self.start(broker_id)
                case "catch_up":
                    self.catch_up(broker_id)
                case "lag":
                    self.lag(broker_id)
                case _:
                    self.commit()
            if self.random.random() < 0.5:
                self.settle()

    def situation(self) -> Situation:
        return Situation(live=dict(self.live), controller_epoch=2)

    def settle(self) -> None:
        """The controller does all it can."""
        while True:
            situation = self.situation()
            reports = Known(reports={b: self.report(b, epoch) for b, epoch in self.live.items()})
            rules = TopicRules(min_isr=self.min_isr)
            before = self.partition
            after = wanted_state(before, situation, rules, reports).state
            if after is None:
                return
            self.partition = self.breaks(before, after, situation) if self.breaks else after
            if after.leader != NO_LEADER:
                self.recoveries += before.leader == NO_LEADER
                if self.held[after.leader] < self.committed:
                    raise Lost

    def report(self, broker_id: int, epoch: int) -> Report:
        return Report(
            leader_epoch=self.partition.leader_epoch,
            broker_epoch=epoch,
            last_epoch=0,
            log_end_offset=self.held[broker_id],
        )

    def leads(self) -> bool:
        """A leader that has restarted knows that it may not go on."""
        leader = self.partition.leader
        return leader != NO_LEADER and is_current(self.partition, leader, self.situation())

    def commit(self) -> None:
        """What the ISR has not all fetched is not committed."""
        isr = self.partition.isr
        there = all(is_current(self.partition, member, self.situation()) for member in isr)
        if self.leads() and there and len(isr) >= self.min_isr:
            self.committed += 1
            self.held.update(dict.fromkeys(isr, self.committed))

    def lose(self, broker_id: int) -> None:
        """A power failure may take everything that was not fsynced: at worst, all."""
        if len(self.losers | {broker_id}) < self.min_isr:
            self.live.pop(broker_id, None)
            self.losers.add(broker_id)
            self.held[broker_id] = 0

    def start(self, broker_id: int) -> None:
        self.incarnations += 1
        self.live.setdefault(broker_id, self.incarnations)

    def catch_up(self, broker_id: int) -> None:
        leader = self.partition.leader
        if self.leads() and broker_id != leader and broker_id in self.live:
            self.held[broker_id] = self.held[leader]
            epoch = self.live[broker_id]
            self.partition = expanded(self.partition, broker_id, epoch, self.min_isr)

    def lag(self, broker_id: int) -> None:
        if self.leads() and broker_id in self.partition.isr and broker_id != self.partition.leader:
            self.partition = shrunk(self.partition, [broker_id], self.min_isr)


@pytest.mark.parametrize("min_isr", [1, 2, 3])
def test_whoever_leads_has_everything_that_was_committed(min_isr: int) -> None:
    """D9, D10, X18-X21."""
    committed = recoveries = 0
    for seed in range(400):
        history = History(random=Random(seed), min_isr=min_isr, breaks=None)
        history.play(60)
        committed += history.committed
        recoveries += history.recoveries
    assert committed > 50
    assert recoveries > 50


def _keep_the_isr(
    before: PartitionInfo, after: PartitionInfo, situation: Situation
) -> PartitionInfo:
    """A recovery that takes all members that are back into the ISR."""
    if before.leader != NO_LEADER or after.leader == NO_LEADER:
        return after
    back = tuple(m for m in (*before.isr, *before.elr) if m in situation.live)
    return replace(after, isr=back, elr=(), broker_epochs={m: situation.live[m] for m in back})


def _no_eligible_leaders(_: PartitionInfo, after: PartitionInfo, __: Situation) -> PartitionInfo:
    return replace(after, elr=())


def _forget_who_restarted(
    before: PartitionInfo, after: PartitionInfo, situation: Situation
) -> PartitionInfo:
    """Only those who left without a restart become eligible."""
    epochs = before.broker_epochs
    restarted = {m for m in epochs if situation.live.get(m, epochs[m]) != epochs[m]}
    left = tuple(m for m in after.elr if m not in restarted or m in before.elr)
    return replace(after, elr=left) if before.leader != NO_LEADER else after


def _ignore_restarts(
    before: PartitionInfo, after: PartitionInfo, situation: Situation
) -> PartitionInfo:
    """A controller that looks only at who is registered."""
    back = tuple(member for member in before.isr if member in situation.live)
    if before.leader == NO_LEADER or not back:
        return after
    leader = before.leader if before.leader in back else back[0]
    epochs = {member: situation.live[member] for member in back}
    return replace(after, leader=leader, isr=back, elr=(), broker_epochs=epochs)


@pytest.mark.parametrize(
    "breaks", [_keep_the_isr, _no_eligible_leaders, _forget_who_restarted, _ignore_restarts]
)
def test_a_controller_without_one_of_its_rules_loses_something(breaks: Mutation) -> None:
    """D9, D10, X18-X21."""
    for seed in range(3000):
        history = History(random=Random(seed), min_isr=2, breaks=breaks)
        try:
            history.play(60)
            history.settle()
        except Lost:
            return
    pytest.fail("no history shows it")
