"""Batches of a transaction that is being verified: they are told in the order they came in (X30).

The partition's producers are real; the coordinator answers when the test says so.
"""

from collections.abc import Callable, Sequence
from functools import partial

import pytest

from support.brokers import SimNode
from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.base.ids import TopicPartition
from tidelog.log.producers import Producers
from tidelog.marker_appends import Marker, append_marker
from tidelog.records.batch import TRANSACTIONAL
from tidelog.records.control import EndTransaction
from tidelog.records.reference import Record, encode_batch
from tidelog.serving.guards import Guards
from tidelog.transactions.requests import Add
from tidelog.transactions.state import Producer
from tidelog.verification import RETRY_MS, Codes, Question, Verification
from tidelog.world.sim.loop import SimLoop

WHO = Producer(7, 3)


class Log:
    def __init__(self) -> None:
        self.producers = Producers()


class Partition:
    def __init__(self) -> None:
        self.name = TopicPartition("orders", 0)
        self.log = Log()
        self.guards = Guards()

    def append(self, sequence: int) -> None:
        self.log.producers.check(*WHO, sequence, 0, TRANSACTIONAL)
        self.log.producers.append(*WHO, sequence, (sequence, sequence), 0, TRANSACTIONAL)

    def mark(self) -> None:
        """As a marker does that comes while something is verified."""
        self.guards.marker_comes(WHO.producer_id)


class Coordinator:
    def __init__(self) -> None:
        self.asked: list[Callable[[Sequence[Codes] | KafkaError], None]] = []

    def coordinator_of(self, _transactional_id: str) -> int:
        return 1

    def ask(
        self,
        _broker_id: int,
        _asked: Sequence[tuple[Question, Add]],
        done: Callable[[Sequence[Codes] | KafkaError], None],
    ) -> None:
        self.asked.append(done)


class Scene:
    def __init__(self, *, is_adding: bool = True) -> None:
        self.question = Question(transactional_id="x", producer=WHO, is_adding=is_adding)
        self.loop = SimLoop()
        self.partition = Partition()
        self.coordinator = Coordinator()
        self.verification = Verification(self.loop, self.loop.clock, self.coordinator)
        self.told: list[tuple[int, ErrorCode]] = []
        self.when_told: Callable[[int], None] = lambda _sequence: None

    def send(self, sequence: int) -> None:
        self.verification.admit(self.partition, self.question, partial(self._verified, sequence))
        self.loop.run_for(1)

    def _verified(self, sequence: int, error: KafkaError | None) -> None:
        try:
            if error is None:
                self.partition.append(sequence)
        except KafkaError as refused:
            error = refused
        self.told.append((sequence, ErrorCode.none if error is None else error.code))
        self.when_told(sequence)

    def answer(self, code: ErrorCode = ErrorCode.none) -> None:
        self.coordinator.asked.pop(0)([{self.partition.name: code}])
        self.loop.run_for(1)


def test_batch_behind_a_marker_waits_for_those_before_it() -> None:
    """The first of them is asked about again, and the second came between marker and answer."""
    scene = Scene()
    scene.send(0)
    scene.partition.mark()
    scene.send(1)
    scene.answer()
    assert scene.told == [], "the transaction may have been over before the marker came"
    scene.send(2)
    scene.answer()
    assert scene.told == [(sequence, ErrorCode.none) for sequence in range(3)]
    assert not scene.coordinator.asked
    assert WHO.producer_id not in scene.partition.guards


def test_batch_behind_two_markers_waits_for_those_before_it() -> None:
    scene = Scene()
    for sequence in range(3):
        scene.send(sequence)
        scene.partition.mark()
    scene.answer()
    scene.partition.mark()
    scene.answer()
    scene.answer()
    assert scene.told == [(sequence, ErrorCode.none) for sequence in range(3)]


def test_batch_that_comes_while_others_are_told_is_behind_them() -> None:
    scene = Scene()
    scene.send(0)
    scene.send(1)
    scene.when_told = lambda sequence: scene.send(2) if sequence == 0 else None
    scene.answer()
    assert scene.told == [(sequence, ErrorCode.none) for sequence in range(3)]


def test_marker_that_comes_while_batches_are_told_has_the_rest_verified_again() -> None:
    scene = Scene()
    scene.send(0)
    scene.send(1)
    scene.when_told = lambda sequence: scene.partition.mark() if sequence == 0 else None
    scene.answer()
    assert scene.told == [(0, ErrorCode.none)]
    scene.answer(ErrorCode.transaction_abortable)
    assert scene.told == [(0, ErrorCode.none), (1, ErrorCode.transaction_abortable)]


@pytest.mark.parametrize("is_marked", [False, True])
def test_refusal_is_for_all_that_wait(is_marked: bool) -> None:
    scene = Scene()
    scene.send(0)
    if is_marked:
        scene.partition.mark()
    scene.send(1)
    scene.answer(ErrorCode.invalid_txn_state)
    assert scene.told == [(0, ErrorCode.invalid_txn_state), (1, ErrorCode.invalid_txn_state)]
    scene.when_told = lambda _sequence: None
    scene.send(2)
    assert scene.coordinator.asked, "what comes later is asked about anew"


def test_what_was_not_attempted_because_of_another_partition_is_asked_for_again() -> None:
    scene = Scene()
    scene.send(0)
    scene.answer(ErrorCode.operation_not_attempted)
    assert scene.told == []
    scene.loop.run_for(RETRY_MS)
    scene.answer()
    assert scene.told == [(0, ErrorCode.none)]


@pytest.mark.parametrize("is_adding", [False, True])
def test_unknown_producer_whose_transaction_is_new_begins_at_sequence_0(is_adding: bool) -> None:
    """Else a batch whose predecessor was refused would be taken for the first. Where transactions
    do not raise the epoch, sequences go on from one to the next, and nobody knows them."""
    scene = Scene(is_adding=is_adding)
    scene.send(0)
    scene.answer(ErrorCode.not_coordinator)
    scene.send(1)
    scene.answer()
    wanted = ErrorCode.out_of_order_sequence_number if is_adding else ErrorCode.none
    assert scene.told == [(0, ErrorCode.not_coordinator), (1, wanted)]
    scene.send(0)
    if is_adding:
        scene.answer()
        scene.send(1)
        assert scene.told[2:] == [(0, ErrorCode.none), (1, ErrorCode.none)]


def test_partition_that_was_led_elsewhere_meanwhile_has_its_batches_verified_again() -> None:
    """The transaction may have ended there, by a marker that came here as to any follower."""
    node = SimNode()
    node.client().create("orders")
    partition = node.broker.partitions.find("orders", 0)
    coordinator = Coordinator()
    verification = Verification(node.loop, node.clock, coordinator)
    told: list[KafkaError | None] = []
    question = Question(transactional_id="x", producer=WHO, is_adding=False)
    verification.admit(partition, question, told.append)
    node.loop.run_for(1)
    state = partition.state
    assert state is not None
    partition.resign()
    partition.lead(state, node.clock.monotonic_ms())
    for code in (ErrorCode.none, ErrorCode.invalid_txn_state):
        assert told == []
        coordinator.asked.pop(0)([{partition.name: code}])
        node.loop.run_for(1)
    assert [error.code for error in told if error is not None] == [ErrorCode.invalid_txn_state]
    assert WHO.producer_id not in partition.guards


class Busy:
    """A partition with an open transaction, whose marker waits behind a slow append."""

    def __init__(self) -> None:
        self.node = node = SimNode()
        node.client().create("orders", cleanup_policy="compact")
        self.partition = node.broker.partitions.find("orders", 0)
        record = Record(offset=0, timestamp=node.clock.now_ms(), key=b"k", value=b"v")
        first = encode_batch(
            [record], producer_id=7, producer_epoch=3, base_sequence=0, transactional=True
        )
        self.partition.append(bytearray(first), node.clock.now_ms())
        self.partition.append_slowly(
            bytearray(encode_batch([record])), lambda _offset, _time_ms: None
        )
        self.ended: list[KafkaError | None] = []
        self.mark()
        self.coordinator = Coordinator()
        self.told: list[KafkaError | None] = []
        self.question = Question(transactional_id="x", producer=WHO, is_adding=False)

    def mark(self) -> None:
        end = EndTransaction(producer_id=7, producer_epoch=3, committed=False, coordinator_epoch=0)
        marker = Marker(end=end, transaction_version=0, on_append=lambda: None)
        append_marker(self.partition, marker, self.node.clock.now_ms(), self.ended.append)
        assert self.has_open(), "it is not there yet"

    def has_open(self) -> bool:
        return self.partition.log.producers.has_open(*WHO)

    def answer(self, code: ErrorCode) -> None:
        self.coordinator.asked.pop(0)([{self.partition.name: code}])

    def codes(self) -> list[ErrorCode]:
        return [error.code for error in self.told if error is not None]


def test_batch_behind_a_marker_that_waits_for_its_turn_is_verified() -> None:
    """In the older protocol it has the epoch of the transaction that ends, and would begin one
    that nobody ends (X30)."""
    busy = Busy()
    loop = busy.node.loop
    verification = Verification(loop, loop.clock, busy.coordinator)
    verification.admit(busy.partition, busy.question, busy.told.append)
    assert busy.told == []
    assert loop.run_until(lambda: bool(busy.ended and busy.coordinator.asked))
    assert not busy.has_open()
    busy.answer(ErrorCode.invalid_txn_state)
    assert busy.codes() == [ErrorCode.invalid_txn_state]
    assert WHO.producer_id not in busy.partition.guards


@pytest.mark.parametrize("markers", [1, 2])
def test_batch_behind_a_marker_that_still_waits_is_verified_though_one_was_refused(
    markers: int,
) -> None:
    """X30: whoever could not be verified comes again, and so may what is behind it."""
    busy = Busy()
    for _ in range(markers - 1):
        busy.mark()
    loop = SimLoop()
    verification = Verification(loop, loop.clock, busy.coordinator)
    for count in range(1, 3):
        verification.admit(busy.partition, busy.question, busy.told.append)
        loop.run_for(1)
        assert busy.coordinator.asked, f"about batch {count}"
        busy.answer(ErrorCode.not_coordinator)
        assert busy.codes() == [ErrorCode.not_coordinator] * count
    assert busy.has_open()
    verification.admit(busy.partition, busy.question, busy.told.append)
    loop.run_for(1)
    assert busy.node.loop.run_until(lambda: len(busy.ended) == markers)
    assert not busy.has_open()
    busy.answer(ErrorCode.invalid_txn_state)
    assert busy.codes()[2:] == [ErrorCode.invalid_txn_state]
    assert WHO.producer_id not in busy.partition.guards
