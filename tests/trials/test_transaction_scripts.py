"""What seldom happens to transactions by itself, scripted on brokers of the explorer: markers that
come late or twice, or while a batch is being verified (V14, X28, X30). Each script breaks without
its rule.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from support import transaction_mutants as transactions
from support.scripted_world import CALM, Scene
from tidelog.base.errors import ErrorCode
from tidelog.base.ids import TopicPartition
from tidelog.transactions.requests import Add, Begin, End
from tidelog.transactions.shard import TransactionShard
from tidelog.transactions.state import Producer
from tidelog.transactions.surroundings import Ending
from tidelog.trials.leading import TOPIC
from tidelog.trials.stamped_log import Stamp
from tidelog.trials.transacting import ProduceInTransaction, WriteMarkers
from tidelog.trials.transaction_oracle import TransactionOracle
from tidelog.verification import Question

OPTIONS = replace(
    CALM,
    replication_factor=3,
    min_isr=1,
    transactors=1,
    # Longer than what a script waits for: no fetch is answered for its time alone.
    fetch_wait_ms=800,
)
ALL = (TopicPartition(TOPIC, 0),)


class Transacting(Scene):
    """Partition 0 is led by broker 1, the journal of transactions by broker 2."""

    def __init__(self) -> None:
        super().__init__(OPTIONS)
        world = self.world
        self.leader, self.coordinator = world.processes[1], world.processes[2]
        self.oracle = TransactionOracle(
            world.oracles[:1], world.oracles[1], world.batches, world.stamps, world.counts
        )
        self.answers: list[Any] = []

    def write(self, value: int, producer: Producer, sequence: int = 0) -> None:
        """As if it had been verified; nobody will ask for its commit."""
        self.oracle.begin(producer).values.append(value)
        self.world.stamps.put(value, Stamp(producer, sequence))
        self.leader.transacting.partition(0).append(value)
        self.run()

    def mark(self, ending: Ending) -> ErrorCode:
        results: list[Any] = []
        self.leader.transacting.receive(WriteMarkers([(ending, ALL)]), results.append)
        self.run()
        code = results[0][ending.producer_id, ALL[0]]
        assert isinstance(code, ErrorCode)
        return code

    def shard(self) -> TransactionShard:
        shard = self.coordinator.coordinating.find(1)
        assert isinstance(shard, TransactionShard)
        return shard


def ending(
    producer: Producer, *, is_commit: bool, coordinator: int = 0, version: int = 0
) -> Ending:
    return Ending(
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        coordinator_epoch=coordinator,
        is_commit=is_commit,
        transaction_version=version,
        partitions=ALL,
    )


def marker_comes_again() -> None:
    """The next transaction, in the epoch that the marker gave, has begun when it does."""
    scene = Transacting()
    before, after = Producer(7, 0), Producer(7, 1)
    scene.write(11, before)
    marker = ending(after, is_commit=False, version=2)
    assert scene.mark(marker) is ErrorCode.none
    scene.write(12, after)
    assert scene.mark(marker) is ErrorCode.none
    assert scene.oracle.unended() is not None, "the marker is not of this transaction"


def marker_of_a_deposed_coordinator_comes_late() -> None:
    scene = Transacting()
    producer = Producer(7, 0)
    scene.write(11, producer)
    assert scene.mark(ending(producer, is_commit=False, coordinator=5)) is ErrorCode.none
    scene.write(12, producer, 1)
    scene.mark(ending(producer, is_commit=True, coordinator=4))
    assert scene.oracle.unended() is not None, "who is deposed ends nothing"


def marker_comes_while_a_batch_is_verified() -> None:
    """The coordinator's answer, that the transaction is open, arrives when it is over."""
    scene = Transacting()
    shard, answers = scene.shard(), scene.answers
    shard.begin(Begin(transactional_id="x", timeout_ms=60_000), answers.append)
    scene.run()
    producer = answers.pop()
    add = Add(transactional_id="x", producer=producer, partitions=ALL)
    shard.add_partitions(add, answers.append)
    scene.run()
    assert answers.pop() is None
    slow, journal = scene.world.network.slow, scene.coordinator.copies[1].log
    end = journal.log_end_offset
    scene.world.stamps.put(11, Stamp(producer, 0))
    question = Question(transactional_id="x", producer=producer, is_adding=False)
    scene.leader.transacting.receive(ProduceInTransaction(0, 11, question), answers.append)
    while journal.log_end_offset == end:
        scene.run(1)
    # Its followers have been sent it; what comes after that is the answer.
    slow[2, 1] = 300
    scene.run(50)
    slow.clear()
    shard.end(End(transactional_id="x", producer=producer, is_commit=True), lambda _answer: None)
    scene.run(1_000)
    assert scene.oracle.unended() is None, "what is late begins nothing"
    assert answers.pop().error == ErrorCode.transaction_abortable


@pytest.mark.parametrize(
    ("script", "mutant"),
    [
        pytest.param(marker_comes_again, transactions.mark_twice, id="X30-marker-again"),
        pytest.param(
            marker_of_a_deposed_coordinator_comes_late,
            transactions.take_markers_of_any_coordinator,
            id="X28-coordinator",
        ),
        pytest.param(
            marker_comes_while_a_batch_is_verified, transactions.leave_the_guards, id="X30-guard"
        ),
    ],
)
def test_script_breaks_without_its_rule_only(
    script: Callable[[], None],
    mutant: Callable[[pytest.MonkeyPatch], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    script()
    mutant(monkeypatch)
    with pytest.raises(AssertionError):
        script()
