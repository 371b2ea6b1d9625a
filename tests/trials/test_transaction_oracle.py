"""The oracle of transactions by hand: what readers, clients and journals may say, kept and broken
(V14, H8).
"""

import pytest

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.base.ids import TopicPartition
from tidelog.base.journal import Entry
from tidelog.records.control import EndTransaction
from tidelog.transactions.records import encode_key, encode_value
from tidelog.transactions.state import Producer, Status, Transaction
from tidelog.trials.counts import Counts
from tidelog.trials.journals import Batch, Batches
from tidelog.trials.oracle import Oracle
from tidelog.trials.stamped_log import Stamp, StampedLog, Stamps
from tidelog.trials.transaction_oracle import TransactionOracle
from tidelog.trials.violation import Violation

ONE = Producer(1, 0)
ANOTHER = Producer(2, 0)


class Nobody:
    def live_epoch(self, _broker_id: int) -> int | None:
        return None


class Stage:
    """Two partitions and a journal, in which everything is committed at once."""

    def __init__(self) -> None:
        self.partitions = [Oracle(index, 1, Nobody()) for index in range(2)]
        self.journal = Oracle(2, 1, Nobody())
        self.batches, self.stamps, self.counts = Batches(), Stamps(), Counts()
        self.oracle = TransactionOracle(
            self.partitions, self.journal, self.batches, self.stamps, self.counts
        )
        self.sequence = 0

    def write(self, index: int, value: int, producer: Producer | None = None) -> None:
        if producer is not None:
            self.stamps.put(value, Stamp(producer, self.sequence))
            self.sequence += 1
        self.partitions[index].committed.append((0, value))

    def mark(self, index: int, producer: Producer, *, is_commit: bool) -> None:
        marker = EndTransaction(
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            committed=is_commit,
            coordinator_epoch=0,
        )
        self.partitions[index].committed.append((0, self.stamps.add_marker(marker)))

    def keep(self, status: Status, producer: Producer = ONE, *, lasted_ms: int = 0) -> None:
        """What the journal says of an id."""
        transaction = Transaction(
            transactional_id="x",
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            timeout_ms=1_000,
            status=status,
            started_ms=0,
            updated_ms=lasted_ms,
            partitions=(TopicPartition("t", 0),) if status is Status.Ongoing else (),
        )
        entry = Entry(encode_key("x"), encode_value(transaction))
        self.journal.committed.append((0, self.batches.add(Batch((entry,), 0))))


def violated(invariant: str) -> "pytest.RaisesExc[Violation]":
    return pytest.raises(Violation, match=rf"^{invariant}:")


def test_reader_sees_committed_records_and_those_of_no_transaction() -> None:
    stage = Stage()
    stage.write(0, 11, ONE)
    stage.write(0, 12)
    stage.write(0, 21, ANOTHER)
    stage.mark(0, ONE, is_commit=True)
    stage.mark(0, ANOTHER, is_commit=False)
    stage.oracle.read(0, 0, 5, 5, [11, 12])
    with violated("V14"):
        stage.oracle.read(0, 0, 5, 5, [11, 12, 21])
    with violated("V14"):
        stage.oracle.read(0, 0, 5, 5, [12])


def test_reader_that_is_served_beyond_an_open_transaction_is_noticed() -> None:
    """Also where the marker is there, and not known to be committed by who serves."""
    stage = Stage()
    stage.write(0, 10)
    stage.write(0, 11, ONE)
    stage.oracle.read(0, 0, 1, 2, [10])
    with violated("V14"):
        stage.oracle.read(0, 0, 2, 2, [10, 11])
    stage.mark(0, ONE, is_commit=True)
    with violated("V14"):
        stage.oracle.read(0, 0, 2, 2, [10, 11])
    stage.oracle.read(0, 0, 2, 3, [10, 11])


def test_transaction_of_which_a_part_is_missing_is_noticed() -> None:
    stage = Stage()
    written = stage.oracle.begin(ONE)
    written.values += [11, 12]
    written.is_asked = True
    for index, value in enumerate(written.values):
        stage.write(index, value, ONE)
    stage.mark(0, ONE, is_commit=True)
    stage.mark(1, ONE, is_commit=False)
    with violated("V14"):
        stage.oracle.look_at_end()


def test_transaction_whose_end_nobody_was_told_is_there_or_not() -> None:
    for is_commit in (True, False):
        stage = Stage()
        written = stage.oracle.begin(ONE)
        written.values.append(11)
        written.is_asked = True
        stage.write(0, 11, ONE)
        stage.mark(0, ONE, is_commit=is_commit)
        stage.oracle.look_at_end()
        stage.oracle.ended(written, is_commit=not is_commit)
        with violated("V14"):
            stage.oracle.look_at_end()


def test_record_of_a_client_that_asked_for_no_commit_is_never_to_be_read() -> None:
    stage = Stage()
    written = stage.oracle.begin(ONE)
    written.strays.append(11)
    stage.write(0, 11, ONE)
    stage.mark(0, ONE, is_commit=True)
    with violated("V14"):
        stage.oracle.look_at_end()


def test_two_clients_under_one_epoch_are_noticed() -> None:
    stage = Stage()
    stage.oracle.given(ONE)
    stage.oracle.given(Producer(ONE.producer_id, 1))
    with violated("V14"):
        stage.oracle.given(ONE)


def test_end_that_is_told_before_it_is_in_the_journal_is_noticed() -> None:
    stage = Stage()
    stage.oracle.end_answered(ONE, True, KafkaError(ErrorCode.not_coordinator, "no"), 0)
    with violated("V14"):
        stage.oracle.end_answered(ONE, True, ONE, 0)
    stage.keep(Status.PrepareCommit)
    stage.oracle.end_answered(ONE, True, ONE, 0)
    with violated("V14"):
        stage.oracle.end_answered(ONE, False, ONE, 0)


def test_outcome_that_changes_is_noticed() -> None:
    stage = Stage()
    stage.keep(Status.PrepareCommit)
    stage.keep(Status.CompleteAbort)
    with violated("V14"):
        stage.oracle.catch_up()


def test_what_is_open_is_told_by_the_journal_and_by_partitions() -> None:
    stage = Stage()
    assert stage.oracle.unended() is None
    stage.keep(Status.Ongoing)
    assert stage.oracle.unended() == "x is Ongoing"
    stage.keep(Status.PrepareAbort, lasted_ms=2_000)
    assert stage.counts.transactions_timed_out == 0
    assert stage.oracle.unended() == "x is PrepareAbort"
    assert stage.counts.transactions_timed_out == 1
    stage.keep(Status.CompleteAbort)
    stage.write(1, 11, ONE)
    assert stage.oracle.unended() == "partition 1 has 1 open transactions"


def test_log_that_is_cut_knows_of_its_producers_what_is_left() -> None:
    """A marker that is cut off leaves its transaction open, and nothing aborted."""
    stamps = Stamps()
    log = StampedLog(stamps)
    stamps.put(11, Stamp(ONE, 0))
    marker = EndTransaction(producer_id=1, producer_epoch=0, committed=False, coordinator_epoch=0)
    log.append([(0, 11), (0, stamps.add_marker(marker))])
    assert (log.last_stable_offset(1), log.last_stable_offset(2)) == (0, 2)
    assert log.aborted_between(0, 2) == [(1, 0)]
    log.truncate_suffix(1)
    assert (log.last_stable_offset(1), log.aborted_between(0, 1)) == (0, [])
    log.begin_at(5)
    assert log.last_stable_offset(5) == 5
