"""The coordinator of transactions as a machine: who begins, adds and ends, and what is told of it
(A4, V14, X30)."""

from dataclasses import replace

import pytest

from support.transaction_stage import A, B, TransactionStage, refusal
from tidelog.base.errors import ErrorCode
from tidelog.base.journal import Entry
from tidelog.transactions.records import encode_key, encode_value
from tidelog.transactions.requests import Begin, End, Wanted
from tidelog.transactions.state import Producer, Status


@pytest.fixture
def stage() -> TransactionStage:
    return TransactionStage()


def raised(producer: Producer, by: int = 1) -> Producer:
    return Producer(producer.producer_id, producer.epoch + by)


# -- beginning


def test_a_new_id_gets_a_producer_in_epoch_0_and_the_next_one_shuts_it_out(
    stage: TransactionStage,
) -> None:
    first = stage.begin()
    assert first == Producer(1001, 0)
    assert isinstance(first, Producer)
    second = stage.begin()
    assert second == Producer(1001, 1)
    assert stage.add(first) == "producer_fenced"
    assert isinstance(second, Producer)
    assert stage.add(second) == "none"


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_a_timeout_that_may_not_be_is_refused(stage: TransactionStage, timeout_ms: int) -> None:
    assert stage.begin(timeout_ms=timeout_ms) == "invalid_transaction_timeout"
    assert stage.listed() == []


def test_nobody_is_told_of_a_producer_that_is_not_committed(stage: TransactionStage) -> None:
    stage.journal.is_committing = False
    assert stage.begin() == "nothing"
    assert stage.begin() == "nothing"


def test_whoever_takes_over_ends_what_was_open_and_is_to_come_again(
    stage: TransactionStage,
) -> None:
    """V14: what a dead producer has left open is aborted."""
    dead = stage.began()
    stage.add(dead, A, B)
    assert stage.begin() == "concurrent_transactions"
    assert stage.status == "PrepareAbort"
    assert stage.begin() == "concurrent_transactions", "while it ends"
    (ending,) = stage.markers.endings
    assert (ending.is_commit, ending.partitions) == (False, (A, B))
    assert ending.producer_epoch == dead.epoch + 1, "so that late batches are refused"
    stage.markers.written()
    assert stage.status == "CompleteAbort"
    assert stage.begin() == raised(dead, 2)
    assert stage.end(dead) == "producer_fenced"


def test_a_producer_that_goes_on_names_itself_and_may_ask_twice(stage: TransactionStage) -> None:
    """KIP-360."""
    producer = stage.began()
    assert stage.begin(producer) == raised(producer)
    assert stage.begin(producer) == raised(producer), "the answer was lost"
    assert stage.begin(raised(producer)) == raised(producer, 2)
    assert stage.begin(producer) == "producer_fenced"


def test_a_producer_that_goes_on_is_refused_once_another_has_taken_over(
    stage: TransactionStage,
) -> None:
    producer = stage.began()
    stage.began()
    assert stage.begin(producer) == "producer_fenced"
    assert stage.begin(Producer(77, 0)) == "producer_fenced"


def test_a4_a_producer_that_was_replaced_touches_no_open_transaction_of_the_next(
    stage: TransactionStage,
) -> None:
    """It wakes up, names itself to go on, and must not shut out whoever has taken its place."""
    zombie = stage.began()
    producer = stage.began()
    stage.add(producer, A)
    assert stage.begin(zombie) == "producer_fenced"
    assert stage.status == "Ongoing"
    assert stage.add(producer, B) == "none"
    assert stage.end(producer) == producer
    (ending,) = stage.markers.endings
    assert (ending.is_commit, ending.partitions) == (True, (A, B))


def test_a_producer_that_nobody_knows_any_more_gets_a_new_id(stage: TransactionStage) -> None:
    assert stage.begin(Producer(5, 3)) == Producer(1001, 0)


def _exhaust(stage: TransactionStage, epoch: int) -> Producer:
    """A producer in one of the last epochs."""
    producer = stage.began()
    last = replace(stage.described(), producer_epoch=epoch)
    stage.entries.append(Entry(encode_key("t"), encode_value(last)))
    stage.lead()
    return Producer(producer.producer_id, epoch)


def test_an_id_whose_epochs_are_used_up_is_followed_by_another(stage: TransactionStage) -> None:
    last = _exhaust(stage, 32765)
    assert stage.begin() == raised(last)
    assert stage.begin() == Producer(1002, 0)
    assert stage.begin() == Producer(1002, 1)


def test_a_producer_whose_epochs_are_used_up_may_ask_again(stage: TransactionStage) -> None:
    last = _exhaust(stage, 32766)
    for _ in range(3):
        assert stage.begin(last) == Producer(1002, 0)


def test_a_producer_that_goes_on_is_never_given_the_last_epoch(stage: TransactionStage) -> None:
    """It names itself while its transaction is open, and that is aborted in the last epoch: under
    that it would be refused whatever it does."""
    last = _exhaust(stage, 32766)
    assert stage.add(last) == "none"
    assert stage.begin(last) == "concurrent_transactions"
    stage.markers.written()
    next_one = Producer(1002, 0)
    assert stage.begin(last) == next_one
    assert stage.begin(last) == next_one, "the answer was lost"
    assert stage.add(next_one) == "none"


def test_two_that_begin_at_once_get_different_epochs(stage: TransactionStage) -> None:
    """Both wait for a producer id; the second finds what the first has made."""
    told: list[object] = []
    for _ in range(2):
        stage.shard.begin(Begin(transactional_id="t", timeout_ms=1000), told.append)
    stage.loop.run_for(1)
    assert told == [Producer(1001, 0), Producer(1001, 1)]


def test_without_a_producer_id_to_give_nothing_changes(stage: TransactionStage) -> None:
    stage.failing_ids = refusal(ErrorCode.coordinator_not_available)
    assert stage.begin() == "coordinator_not_available"
    assert stage.listed() == []


# -- adding


def test_partitions_are_added_and_verified(stage: TransactionStage) -> None:
    producer = stage.began()
    assert stage.add(producer, A) == "none"
    assert stage.status == "Ongoing"
    assert stage.verify(producer, A, B) == [B]
    assert stage.add(producer, A) == "none"
    stage.add(producer, B)
    assert stage.verify(producer, A, B) == []
    assert stage.described().partitions == (A, B)


def test_who_cannot_commit_any_more_tells_no_producer_what_it_still_knows(
    stage: TransactionStage,
) -> None:
    """V14: another coordinates the id by now. For that one the partition is in no transaction, or
    the commit is that of the next one, which is open."""
    producer = stage.began()
    stage.add(producer, A)
    stage.journal.is_committing = False
    assert stage.add(producer, A) == "nothing"
    assert stage.verify(producer, A) == "nothing"
    stage.journal.end()
    stage.journal.is_committing = True
    stage.end(producer)
    stage.markers.written()
    stage.journal.is_committing = False
    assert stage.end(producer) == "nothing"


def test_whoever_is_not_the_producer_adds_and_verifies_nothing(stage: TransactionStage) -> None:
    producer = stage.began()
    stage.add(producer, A)
    for wrong, code in (
        (Producer(99, 0), "invalid_producer_id_mapping"),
        (raised(producer), "producer_fenced"),
        (raised(producer, -1), "producer_fenced"),
    ):
        assert stage.add(wrong, B) == code
        assert stage.verify(wrong, A) == code
        assert stage.end(wrong) == code
    assert stage.add(producer, name="unknown") == "invalid_producer_id_mapping"


def test_nothing_is_added_while_a_transaction_ends(stage: TransactionStage) -> None:
    producer = stage.began()
    stage.add(producer)
    stage.end(producer)
    assert stage.add(producer) == "concurrent_transactions"
    assert stage.verify(producer) == "concurrent_transactions"
    stage.markers.written()
    assert stage.verify(producer) == [A], "X30: it is over"
    assert stage.add(producer) == "none"


# -- ending, as older clients do it


@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_ends_in_all_its_partitions_and_then_the_next_begins(
    stage: TransactionStage, commit: bool
) -> None:
    producer = stage.began()
    stage.add(producer, A, B)
    assert stage.end(producer, commit=commit) == producer
    assert stage.status == ("PrepareCommit" if commit else "PrepareAbort")
    (ending,) = stage.markers.endings
    assert (ending.partitions, ending.is_commit) == ((A, B), commit)
    assert (ending.producer_id, ending.producer_epoch) == producer
    stage.markers.written()
    assert stage.status == ("CompleteCommit" if commit else "CompleteAbort")
    assert stage.add(producer, B) == "none"
    assert stage.described().partitions == (B,)


@pytest.mark.parametrize("commit", [True, False])
def test_an_end_that_is_repeated_is_answered_the_same(
    stage: TransactionStage, commit: bool
) -> None:
    producer = stage.began()
    stage.add(producer)
    stage.end(producer, commit=commit)
    assert stage.end(producer, commit=commit) == "concurrent_transactions"
    assert stage.end(producer, commit=not commit) == "invalid_txn_state"
    stage.markers.written()
    for _ in range(3):
        assert stage.end(producer, commit=commit) == producer
    assert stage.end(producer, commit=not commit) == "invalid_txn_state"


def test_what_was_never_begun_cannot_be_ended(stage: TransactionStage) -> None:
    producer = stage.began()
    assert stage.end(producer) == "invalid_txn_state"
    assert stage.end(producer, commit=False) == "invalid_txn_state"


def test_markers_are_asked_for_only_when_the_outcome_is_committed(stage: TransactionStage) -> None:
    """V14: until then another leader may not know of it, and decide otherwise."""
    producer = stage.began()
    stage.add(producer)
    stage.journal.is_committing = False
    assert stage.end(producer) == "nothing"
    assert stage.markers.endings == []
    stage.journal.end()
    assert len(stage.markers.endings) == 1


def test_an_outcome_that_was_not_committed_in_time_is_pursued_all_the_same(
    stage: TransactionStage,
) -> None:
    producer = stage.began()
    stage.add(producer)
    stage.journal.is_committing = False
    told: list[object] = []
    asked = End(transactional_id="t", producer=producer, is_commit=True)
    stage.shard.end(asked, told.append)
    stage.journal.end(refusal(ErrorCode.request_timed_out))
    assert [error.code.name for error in told if hasattr(error, "code")] == [
        "coordinator_not_available"
    ]
    assert stage.markers.endings == []
    stage.loop.run_for(200)
    stage.journal.end()
    assert len(stage.markers.endings) == 1
    stage.journal.is_committing = True
    stage.markers.written()
    assert stage.end(producer) == producer


def test_a_journal_that_refuses_changes_nothing(stage: TransactionStage) -> None:
    """KAFKA-9666: not even the epoch, however often somebody tries to take over."""
    producer = stage.began()
    stage.add(producer)
    stage.journal.refusal = refusal(ErrorCode.not_enough_replicas)
    for _ in range(3):
        assert stage.begin() == "coordinator_not_available"
        assert stage.end(producer) == "coordinator_not_available"
        assert stage.add(producer, B) == "coordinator_not_available"
    stage.journal.refusal = None
    assert stage.end(producer) == producer
    stage.journal.refusal = refusal(ErrorCode.not_leader_or_follower)
    assert stage.begin(name="other") == "not_coordinator"


def test_a_completion_that_cannot_be_written_is_tried_again(stage: TransactionStage) -> None:
    producer = stage.began()
    stage.add(producer)
    stage.end(producer)
    stage.journal.refusal = refusal(ErrorCode.not_enough_replicas)
    stage.markers.written()
    assert stage.status == "PrepareCommit"
    stage.journal.refusal = None
    stage.loop.run_for(1000)
    assert stage.status == "CompleteCommit"


# -- ending, as clients of version 2 do it


@pytest.mark.parametrize("commit", [True, False])
def test_from_version_2_on_every_end_raises_the_epoch(
    stage: TransactionStage, commit: bool
) -> None:
    """X30."""
    producer = stage.began()
    for _ in range(3):
        stage.add(producer, version=2)
        assert stage.end(producer, commit=commit, version=2) == raised(producer)
        (ending,) = stage.markers.endings
        assert (ending.producer_epoch, ending.transaction_version) == (producer.epoch + 1, 2)
        stage.markers.written()
        assert stage.add(producer, version=2) == "producer_fenced"
        producer = raised(producer)


@pytest.mark.parametrize("commit", [True, False])
def test_a_repeated_end_is_answered_with_success_after_the_epoch_was_raised(
    stage: TransactionStage, commit: bool
) -> None:
    producer = stage.began()
    stage.add(producer, version=2)
    stage.end(producer, commit=commit, version=2)
    assert stage.end(producer, commit=commit, version=2) == "concurrent_transactions"
    stage.markers.written()
    for _ in range(3):
        assert stage.end(producer, commit=commit, version=2) == raised(producer)
    assert stage.end(producer, commit=not commit, version=2) == "invalid_txn_state"
    stage.lead()
    assert stage.end(producer, commit=commit, version=2) == raised(producer), "elsewhere too"


def test_a_late_end_does_not_touch_the_next_transaction(stage: TransactionStage) -> None:
    """X30 (ii): an EndTxn that was delayed and repeated, while the producer is in its next one."""
    producer = stage.began()
    stage.add(producer, version=2)
    stage.end(producer, version=2)
    stage.markers.written()
    stage.add(raised(producer), B, version=2)
    assert stage.end(producer, version=2) == "producer_fenced"
    assert (stage.status, stage.described().partitions) == ("Ongoing", (B,))


@pytest.mark.parametrize("commit", [True, False])
def test_a_repeated_end_is_answered_with_success_after_the_epoch_rolled_over(
    stage: TransactionStage, commit: bool
) -> None:
    last = _exhaust(stage, 32766)
    stage.add(last, version=2)
    after = Producer(1002, 0)
    assert stage.end(last, commit=commit, version=2) == after
    (ending,) = stage.markers.endings
    assert (ending.producer_id, ending.producer_epoch) == (last.producer_id, 32767)
    assert stage.end(last, commit=commit, version=2) == "concurrent_transactions"
    assert stage.add(after, version=2) == "concurrent_transactions", "it is not there yet"
    stage.markers.written()
    for _ in range(2):
        assert stage.end(last, commit=commit, version=2) == after
        assert stage.end(last, commit=not commit, version=2) == "invalid_txn_state"
        stage.lead()
    assert stage.add(after, version=2) == "none"
    assert stage.end(last, commit=commit, version=2) == "invalid_producer_id_mapping"


def test_from_version_2_on_an_empty_transaction_can_be_aborted(stage: TransactionStage) -> None:
    """Its producer may not know whether anything has arrived."""
    producer = stage.began()
    assert stage.end(producer, version=2) == "invalid_txn_state"
    assert stage.end(producer, commit=False, version=2) == raised(producer)
    (ending,) = stage.markers.endings
    assert ending.partitions == ()
    stage.markers.written()
    assert stage.status == "CompleteAbort"
    assert stage.end(raised(producer), commit=False, version=2) == raised(producer, 2)


@pytest.mark.parametrize("epoch", [0, 32766])
def test_who_ends_the_next_transaction_while_the_last_one_ends_is_to_come_again(
    stage: TransactionStage, epoch: int
) -> None:
    """It was told who it is before the markers of the last one were written, and is nobody's
    zombie; also if its id is another one by then."""
    producer = _exhaust(stage, epoch) if epoch else stage.began()
    stage.add(producer, version=2)
    after = Producer(1002, 0) if epoch else raised(producer)
    assert stage.end(producer, version=2) == after
    for commit in (False, True):
        assert stage.end(after, commit=commit, version=2) == "concurrent_transactions"
    stage.markers.written()
    assert stage.end(after, commit=False, version=2) == raised(after)


def test_the_last_epoch_is_given_to_nobody(stage: TransactionStage) -> None:
    """It shuts out; a producer that was shut out by it begins anew under another id."""
    last = _exhaust(stage, 32766)
    stage.add(last, version=2)
    assert stage.begin() == "concurrent_transactions"
    stage.markers.written()
    assert stage.end(last, commit=False, version=2) == "producer_fenced"
    guessed = Producer(last.producer_id, 32767)
    assert stage.add(guessed) == "producer_fenced"
    for version in (0, 2):
        assert stage.end(guessed, commit=False, version=version) == "producer_fenced"
    assert stage.begin() == Producer(1002, 0)


# -- another coordinator


@pytest.mark.parametrize("commit", [True, False])
def test_what_was_prepared_goes_on_elsewhere(stage: TransactionStage, commit: bool) -> None:
    producer = stage.began()
    stage.add(producer, A, B)
    stage.end(producer, commit=commit)
    stage.lead()
    (ending,) = stage.markers.endings
    assert (ending.is_commit, ending.partitions, ending.coordinator_epoch) == (commit, (A, B), 2)
    stage.markers.written()
    assert stage.status == ("CompleteCommit" if commit else "CompleteAbort")
    assert stage.end(producer, commit=commit) == producer


def test_what_was_ongoing_goes_on_elsewhere(stage: TransactionStage) -> None:
    producer = stage.began()
    stage.add(producer, A)
    stage.lead()
    assert stage.verify(producer, A, B) == [B]
    assert stage.end(producer) == producer


def test_a_coordinator_that_was_replaced_does_nothing_more(stage: TransactionStage) -> None:
    producer = stage.began()
    stage.add(producer)
    stage.journal.is_committing = False
    stage.end(producer)
    old_journal = stage.journal
    stage.lead()
    count = len(stage.entries)
    old_journal.end(refusal(ErrorCode.not_leader_or_follower))
    stage.loop.run_for(60_000)
    assert [ending.coordinator_epoch for ending in stage.markers.endings] == [2]
    assert len(stage.entries) == count


def test_a_coordinator_that_is_shut_out_leaves_it_to_the_next(stage: TransactionStage) -> None:
    producer = stage.began()
    stage.add(producer)
    stage.end(producer)
    stage.markers.written(refusal(ErrorCode.transaction_coordinator_fenced))
    stage.loop.run_for(60_000)
    assert stage.markers.asked == []
    assert stage.status == "PrepareCommit"
    stage.lead()
    stage.markers.written()
    assert stage.status == "CompleteCommit"


def test_a_coordinator_that_was_shut_out_and_leads_on_in_a_later_epoch_ends_what_is_left(
    stage: TransactionStage,
) -> None:
    """V14: the other one was replaced before this one heard of it."""
    producer = stage.began()
    stage.add(producer)
    stage.end(producer)
    stage.markers.written(refusal(ErrorCode.transaction_coordinator_fenced))
    stage.journal.leader_epoch = 3
    stage.loop.run_for(1_000)
    assert [ending.coordinator_epoch for ending in stage.markers.endings] == [3]
    stage.markers.written()
    assert stage.status == "CompleteCommit"


# -- time


def test_a_transaction_that_takes_too_long_is_aborted_and_its_producer_shut_out(
    stage: TransactionStage,
) -> None:
    """V14: readers do not wait longer than its timeout for one whose producer is gone."""
    producer = stage.began(timeout_ms=30_000)
    stage.add(producer, A)
    stage.loop.run_for(29_000)
    assert stage.status == "Ongoing"
    stage.loop.run_for(12_000)
    assert stage.status == "PrepareAbort"
    (ending,) = stage.markers.endings
    assert (ending.is_commit, ending.producer_epoch) == (False, producer.epoch + 1)
    stage.markers.written()
    assert stage.add(producer) == "producer_fenced"
    assert stage.end(producer) == "producer_fenced"


def test_a_client_of_version_2_whose_transaction_timed_out_may_abort_it_and_go_on(
    stage: TransactionStage,
) -> None:
    producer = stage.began(timeout_ms=1_000)
    stage.add(producer, A, version=2)
    stage.loop.run_for(20_000)
    stage.markers.written()
    assert stage.end(producer, version=2) == "invalid_txn_state"
    assert stage.end(producer, commit=False, version=2) == raised(producer)


def test_a_timeout_counts_on_another_coordinator_too(stage: TransactionStage) -> None:
    producer = stage.began(timeout_ms=30_000)
    stage.add(producer)
    stage.loop.run_for(20_000)
    stage.lead()
    stage.loop.run_for(21_000)
    assert stage.status == "PrepareAbort"


def test_ids_that_nobody_uses_are_forgotten_unless_something_is_open() -> None:
    stage = TransactionStage(transactional_id_expiration_ms=3_000_000)
    for number in range(2_500):
        stage.began(name=f"idle-{number}")
    busy = stage.began(name="busy", timeout_ms=900_000)
    stage.loop.run_for(3_500_000)
    stage.add(busy, name="busy")
    stage.loop.run_for(900_000)
    assert stage.listed() == ["busy"]
    stage.lead()
    assert stage.listed() == ["busy"], "elsewhere too"
    assert stage.end(busy, name="idle-1") == "invalid_producer_id_mapping"


def test_ids_that_nobody_uses_are_forgotten_however_long_they_are() -> None:
    stage = TransactionStage(transactional_id_expiration_ms=3_000_000)
    for number in range(50):
        stage.began(name=f"{number}-" + "x" * 32_000)
    stage.loop.run_for(7_000_000)
    assert stage.listed() == []


def test_ids_that_nobody_uses_are_forgotten_although_batches_must_be_smaller_by_now() -> None:
    """They would be kept for ever, and so would all that were new since."""
    stage = TransactionStage(transactional_id_expiration_ms=3_000_000)
    for number in range(100):
        stage.began(name=f"idle-{number}")
    stage.journal.bytes_max = 500
    stage.loop.run_for(7_000_000)
    assert stage.listed() == []


# -- looking


def test_transactions_are_listed_by_state_producer_and_duration(stage: TransactionStage) -> None:
    for name in ("a", "b", "c"):
        stage.began(name=name)
    producer = Producer(1002, 0)
    stage.add(producer, name="b")
    stage.loop.run_for(5_000)
    assert stage.listed(Wanted(statuses=frozenset({Status.Ongoing}))) == ["b"]
    assert stage.listed(Wanted(producer_ids=frozenset({1001, 1003}))) == ["a", "c"]
    assert "b" in stage.listed(Wanted(duration_ms=4_000))
    assert "b" not in stage.listed(Wanted(duration_ms=60_000))
    assert stage.listed(Wanted(statuses=frozenset())) == []
