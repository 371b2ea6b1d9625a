"""Transactions on a whole broker: written, ended, read (A4, V14, X28, X30)."""

from typing import Any

import pytest

from support.brokers import FETCH, SimClient, SimNode, one_batch
from support.cluster_calls import alter
from support.transactional import (
    ADD_OFFSETS,
    DESCRIBE_TRANSACTIONS,
    FIND_COORDINATOR,
    LIST_TRANSACTIONS,
    TXN_OFFSET_COMMIT,
    WRITE_MARKERS,
    TxnProducer,
    fetch_committed,
    last_stable_offset,
    read_committed,
)
from tidelog.base.ids import TRANSACTION_STATE
from tidelog.records.batch import read_header

TOPIC = "events"
TOPICS, BROKERS = 2, 4
"""Of which there are settings."""


class OneBroker:
    """The port `Reach` of the producer."""

    def __init__(self, **settings: Any) -> None:
        self.node = SimNode(**settings)
        self.client = self.node.client()

    def leader(self, *_partition: object) -> SimClient:
        return self.client

    def coordinator(self, transactional_id: str) -> SimClient:
        answer = self.client.ask(
            FIND_COORDINATOR, 4, key_type=1, coordinator_keys=[transactional_id]
        )
        assert answer.coordinators[0].error_code.name in ("none", "coordinator_not_available")
        return self.client

    def run_for(self, duration_ms: int) -> None:
        self.node.loop.run_for(duration_ms)

    def producer(self, name: str = "t", **options: Any) -> TxnProducer:
        made = TxnProducer(self, name, **options)
        assert made.init() == "none"
        return made

    def restart(self) -> None:
        self.node.kill()
        self.node.start()
        self.client = self.node.client()


@pytest.fixture
def broker() -> OneBroker:
    made = OneBroker()
    made.client.create(TOPIC, 2)
    return made


@pytest.mark.parametrize("version", [1, 2])
def test_records_are_read_when_they_are_committed_and_never_if_aborted(
    broker: OneBroker, version: int
) -> None:
    """A4."""
    producer = broker.producer(version=version)
    shown: list[str] = []
    for number, commit in enumerate([True, False, False, True, False, True]):
        assert producer.write(TOPIC, f"a{number}", f"b{number}") == "none"
        assert producer.write(TOPIC, f"c{number}", index=1) == "none"
        assert read_committed(broker, TOPIC) == shown, "not while it is open"
        assert producer.end(commit=commit) == "none"
        broker.run_for(100)
        shown += [f"a{number}", f"b{number}"] * commit
        assert read_committed(broker, TOPIC) == shown
    assert read_committed(broker, TOPIC, 1) == ["c0", "c3", "c5"]


def test_many_transactions_are_interleaved_and_each_is_read_whole_or_not(
    broker: OneBroker,
) -> None:
    """V14: more aborted ones than are told without a closer look."""
    producers = [broker.producer(f"t{number}") for number in range(40)]
    for turn in range(3):
        for number, producer in enumerate(producers):
            producer.write(TOPIC, f"{turn}/{number}")
        broker.client.produce(TOPIC, one_batch(f"plain {turn}"))
    for number, producer in enumerate(producers):
        producer.end(commit=number % 10 == 0)
    broker.run_for(100)
    expected = {f"{turn}/{number}" for turn in range(3) for number in range(0, 40, 10)}
    found = read_committed(broker, TOPIC)
    assert sorted(found) == sorted(expected | {f"plain {turn}" for turn in range(3)})


def test_a_reader_by_topic_id_is_told_the_same_of_aborted_transactions(broker: OneBroker) -> None:
    """Who reads one partition that way is answered in another way as long as there are none."""
    topic_id = broker.node.broker.partitions.find(TOPIC, 0).topic_id

    def check() -> int:
        """How many there are."""
        partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
        answer = broker.client.ask(
            FETCH,
            17,
            max_wait=0,
            min_bytes=1,
            isolation_level=1,
            session_epoch=-1,
            topics=[{"topic_id": topic_id, "partitions": [partition]}],
            forgotten_topics_data=[],
        )
        row, same = answer.responses[0].partitions[0], fetch_committed(broker.client, TOPIC, 0)
        assert (row.records, row.last_stable_offset) == (same.records, same.last_stable_offset)
        told, expected = (
            [(each.producer_id, each.first_offset) for each in one.aborted_transactions]
            for one in (row, same)
        )
        assert told == expected
        return len(told)

    producer = broker.producer()
    for number, commit in enumerate([True, False, True, False]):
        producer.write(TOPIC, f"{number}")
        check()
        producer.end(commit=commit)
        broker.run_for(100)
        assert check() == (number + 1) // 2


def test_only_what_concerns_a_range_is_told_of_aborted_transactions(broker: OneBroker) -> None:
    producer = broker.producer()
    for number in range(80):
        producer.write(TOPIC, f"{number}")
        producer.end(commit=False)
        broker.run_for(2)
    row = fetch_committed(broker.client, TOPIC, 20, max_bytes=2_000)
    firsts = [each.first_offset for each in row.aborted_transactions]
    assert firsts[0] == 20
    assert firsts == list(range(20, 20 + 2 * len(firsts), 2))
    assert len(row.records) // 160 <= len(firsts) <= 20, "of seventy that come behind"


def test_the_last_stable_offset_is_where_the_first_open_transaction_begins(
    broker: OneBroker,
) -> None:
    first, second = broker.producer("first"), broker.producer("second")
    broker.client.produce(TOPIC, one_batch("a"))
    first.write(TOPIC, "b")
    second.write(TOPIC, "c")
    broker.client.produce(TOPIC, one_batch("d"))
    assert last_stable_offset(broker.client, TOPIC) == 1
    row = fetch_committed(broker.client, TOPIC, 0)
    assert (row.high_watermark, row.last_stable_offset) == (4, 1)
    first.end()
    broker.run_for(50)
    assert last_stable_offset(broker.client, TOPIC) == 2
    second.end(commit=False)
    broker.run_for(50)
    assert last_stable_offset(broker.client, TOPIC) == 6
    assert read_committed(broker, TOPIC) == ["a", "b", "d"]


def test_a_reader_that_waits_is_woken_by_the_marker(broker: OneBroker) -> None:
    producer = broker.producer()
    producer.write(TOPIC, "a")
    reader = broker.node.client()
    reader.send_fetch([(TOPIC, 0, 0)], isolation_level=1, max_wait=30_000)
    broker.run_for(100)
    assert reader.answers == []
    began_ms = broker.node.clock.monotonic_ms()
    producer.end()
    reader.wait()
    assert broker.node.clock.monotonic_ms() - began_ms < 200
    assert reader.answers[0].responses[0].partitions[0].records


@pytest.mark.parametrize("version", [1, 2])
def test_everything_is_as_it_was_after_the_broker_was_killed(
    broker: OneBroker, version: int
) -> None:
    """A3, A4: open transactions, aborted ones, epochs and sequences."""
    producer = broker.producer(version=version)
    producer.write(TOPIC, "a")
    producer.end(commit=False)
    broker.run_for(50)
    producer.write(TOPIC, "b")
    broker.restart()
    assert read_committed(broker, TOPIC) == []
    assert producer.write(TOPIC, "c") == "none"
    assert producer.end() == "none"
    broker.run_for(100)
    assert read_committed(broker, TOPIC) == ["b", "c"]
    broker.restart()
    assert read_committed(broker, TOPIC) == ["b", "c"]
    assert last_stable_offset(broker.client, TOPIC) == 5


def test_a_zombie_writes_nothing(broker: OneBroker) -> None:
    """A4: neither into its own transaction nor into that of the one after it."""
    zombie = broker.producer()
    zombie.write(TOPIC, "lost")
    other = broker.producer()
    assert zombie.write(TOPIC, "lost too") == "producer_fenced"
    batch = zombie.batch(TOPIC, 0, "and this")
    zombie.send(broker.client, TOPIC, batch)
    row = broker.client.wait().responses[0].partition_responses[0]
    assert row.error_code.name == "invalid_producer_epoch"
    assert zombie.end() == "producer_fenced"
    other.write(TOPIC, "kept")
    assert other.end() == "none"
    broker.run_for(50)
    assert read_committed(broker, TOPIC) == ["kept"]


# -- X30: what is late


@pytest.mark.parametrize("version", [1, 2])
def test_a_batch_that_comes_when_its_transaction_is_over_is_refused(
    broker: OneBroker, version: int
) -> None:
    """X30: it would begin one that nobody ends, and readers would wait for ever."""
    producer = broker.producer(version=version, timeout_ms=1_000)
    producer.write(TOPIC, "a")
    late = producer.batch(TOPIC, 0, "late")
    broker.run_for(30_000)
    producer.send(broker.client, TOPIC, late)
    row = broker.client.wait().responses[0].partition_responses[0]
    assert row.error_code.name in ("invalid_producer_epoch", "invalid_txn_state")
    assert last_stable_offset(broker.client, TOPIC) == 2
    assert read_committed(broker, TOPIC) == []


def test_a_batch_for_a_partition_that_was_not_added_is_refused(broker: OneBroker) -> None:
    """X30, KIP-890."""
    producer = broker.producer()
    producer.write(TOPIC, "a")
    batch = producer.batch(TOPIC, 1, "not added")
    producer.send(broker.client, TOPIC, batch, 1)
    row = broker.client.wait().responses[0].partition_responses[0]
    assert row.error_code.name == "invalid_txn_state"
    assert producer.end(commit=False) == "none"


def test_it_is_taken_where_verification_is_switched_off() -> None:
    broker = OneBroker(transaction_partition_verification_enable=False)
    broker.client.create(TOPIC, 2)
    producer = broker.producer()
    producer.send(broker.client, TOPIC, producer.batch(TOPIC, 1, "not added"), 1)
    row = broker.client.wait().responses[0].partition_responses[0]
    assert row.error_code.name == "none"


def test_batches_keep_their_order_while_the_first_is_verified(broker: OneBroker) -> None:
    """A3: five in flight."""
    producer = broker.producer(version=2)
    for number in range(5):
        producer.send(broker.client, TOPIC, producer.batch(TOPIC, 0, f"v{number}"))
    before = len(broker.client.answers)
    broker.client.wait()
    rows = [a.responses[0].partition_responses[0] for a in broker.client.answers[before:]]
    assert [row.error_code.name for row in rows[-5:]] == ["none"] * 5
    producer.end()
    broker.run_for(50)
    assert read_committed(broker, TOPIC) == [f"v{number}" for number in range(5)]


def test_a_transactional_batch_without_a_transactional_id_is_refused(broker: OneBroker) -> None:
    producer = broker.producer()
    row = broker.client.produce(TOPIC, producer.batch(TOPIC, 0, "a"))
    assert row.error_code.name == "invalid_txn_state"


# -- markers


def marker_of(producer: TxnProducer, **changed: Any) -> dict[str, Any]:
    return {
        "producer_id": producer.producer_id,
        "producer_epoch": producer.epoch,
        "transaction_result": False,
        "coordinator_epoch": 0,
        "topics": [{"name": TOPIC, "partition_indexes": [0]}],
        **changed,
    }


def ask_marker(broker: OneBroker, producer: TxnProducer, **changed: Any) -> str:
    answer = broker.client.ask(WRITE_MARKERS, 1, markers=[marker_of(producer, **changed)])
    return str(answer.markers[0].topics[0].partitions[0].error_code.name)


def test_a_hanging_transaction_is_ended_by_a_marker_of_a_client(broker: OneBroker) -> None:
    """It is what Kafka's `abortTransaction` sends."""
    producer = broker.producer()
    producer.write(TOPIC, "a")
    broker.client.produce(TOPIC, one_batch("b"))
    assert read_committed(broker, TOPIC) == []
    assert ask_marker(broker, producer) == "none"
    assert read_committed(broker, TOPIC) == ["b"]


def test_markers_of_somebody_who_was_replaced_are_refused(broker: OneBroker) -> None:
    """X28."""
    producer = broker.producer()
    producer.write(TOPIC, "a")
    assert ask_marker(broker, producer, coordinator_epoch=5) == "none"
    assert ask_marker(broker, producer, coordinator_epoch=4) == "transaction_coordinator_fenced"
    raised = producer.epoch + 1
    assert ask_marker(broker, producer, producer_epoch=raised, coordinator_epoch=5) == "none"
    assert ask_marker(broker, producer, coordinator_epoch=5) == "invalid_producer_epoch"
    assert ask_marker(broker, producer, producer_id=-1) == "invalid_request"
    where = [{"name": TOPIC, "partition_indexes": [7]}]
    assert ask_marker(broker, producer, topics=where) == "unknown_topic_or_partition"


def test_a_marker_comes_behind_batches_that_are_still_being_written() -> None:
    """A batch that is written beside the loop belongs to the transaction that it came in."""
    broker = OneBroker()
    broker.client.create(TOPIC, 1, max_message_bytes=10_000_000, segment_bytes=1_000_000)
    producer = broker.producer()
    producer.write(TOPIC, "x" * 600_000)
    producer.send(broker.client, TOPIC, producer.batch(TOPIC, 0, "x" * 600_000))
    partition = broker.node.broker.partitions.find(TOPIC, 0)
    assert broker.node.loop.run_until(lambda: partition.is_busy)
    other = broker.node.client()
    other.send(WRITE_MARKERS, 1, markers=[marker_of(producer)])
    broker.client.wait()
    other.wait()
    assert partition.log.producers.first_unstable_offset is None
    assert read_committed(broker, TOPIC) == []
    assert last_stable_offset(broker.client, TOPIC) == partition.log.log_end_offset == 3


def test_records_deleted_below_an_open_transaction_do_not_hold_up_readers(
    broker: OneBroker,
) -> None:
    """X28: DeleteRecords, then the marker."""
    producer = broker.producer()
    producer.write(TOPIC, "a")
    broker.client.produce(TOPIC, one_batch("b"))
    partition = broker.node.broker.partitions.find(TOPIC, 0)
    partition.delete_records(2)
    assert last_stable_offset(broker.client, TOPIC) == 2
    producer.end()
    broker.run_for(50)
    assert last_stable_offset(broker.client, TOPIC) == 3


@pytest.mark.parametrize("setting", ["message_max_bytes", "segment_bytes"])
@pytest.mark.parametrize("ends", ["commit", "abort", "timeout"])
def test_a_transaction_ends_although_the_largest_batch_has_become_smaller(
    broker: OneBroker, ends: str, setting: str
) -> None:
    """V14: what would say so is no larger than what says that it is open."""
    producer = broker.producer(timeout_ms=20_000)
    for index in range(2):
        producer.write(TOPIC, "a", index=index)
    kind, name = (BROKERS, "") if setting == "message_max_bytes" else (TOPICS, TRANSACTION_STATE)
    assert alter(broker.client, kind, name, **{setting: "100"}) == "none"
    broker.run_for(1_000)
    if ends == "timeout":
        broker.run_for(40_000)
    else:
        assert producer.end(commit=ends == "commit") == "none"
        broker.run_for(1_000)
    shown = ["a"] * (ends == "commit")
    assert [read_committed(broker, TOPIC, index) for index in range(2)] == [shown] * 2
    assert [last_stable_offset(broker.client, TOPIC, index) for index in range(2)] == [2, 2]


def test_a_compacted_topic_takes_transactions_too(broker: OneBroker) -> None:
    """Its batches are looked into in a child; a marker waits for them."""
    broker.client.create("compacted", 1, cleanup_policy="compact")
    producer = broker.producer()
    for commit in (True, False):
        producer.write("compacted", f"{commit}")
        assert producer.end(commit=commit) == "none"
        broker.run_for(100)
    assert read_committed(broker, "compacted") == ["True"]


# -- offsets of groups


def commit_offset(
    broker: OneBroker, producer: TxnProducer, offset: int, group_id: str = "g"
) -> str:
    client = broker.client
    find = {"key_type": 0, "coordinator_keys": ["g"]}
    while client.ask(FIND_COORDINATOR, 4, **find).coordinators[0].error_code.name != "none":
        broker.run_for(50)
    broker.run_for(200)
    who = {
        "transactional_id": producer.name,
        "producer_id": producer.producer_id,
        "producer_epoch": producer.epoch,
        "group_id": group_id,
    }
    if producer.version == 1:
        assert client.ask(ADD_OFFSETS, 3, **who).error_code.name == "none"
    partition = {
        "partition_index": 0,
        "committed_offset": offset,
        "committed_leader_epoch": -1,
        "committed_metadata": "",
    }
    version = 5 if producer.version == 2 else 3
    topics = [{"name": TOPIC, "partitions": [partition]}]
    answer = client.ask(TXN_OFFSET_COMMIT, version, **who, topics=topics)
    return str(answer.topics[0].partitions[0].error_code.name)


def committed_offset(broker: OneBroker) -> int:
    answer = broker.client.ask(
        9,
        8,
        groups=[{"group_id": "g", "topics": [{"name": TOPIC, "partition_indexes": [0]}]}],
        require_stable=False,
    )
    return int(answer.groups[0].topics[0].partitions[0].committed_offset)


@pytest.mark.parametrize("version", [1, 2])
def test_offsets_count_when_their_transaction_is_committed(broker: OneBroker, version: int) -> None:
    """A4: with the records, or not at all."""
    producer = broker.producer(version=version)
    assert commit_offset(broker, producer, 5) == "none"
    assert committed_offset(broker) == -1
    assert producer.end() == "none"
    broker.run_for(50)
    assert committed_offset(broker) == 5
    assert commit_offset(broker, producer, 9) == "none"
    assert producer.end(commit=False) == "none"
    broker.run_for(50)
    assert committed_offset(broker) == 5
    broker.restart()
    broker.run_for(200)
    assert committed_offset(broker) == 5


@pytest.mark.parametrize("version", [1, 2])
def test_offsets_of_a_group_without_a_name_are_refused(broker: OneBroker, version: int) -> None:
    producer = broker.producer(version=version)
    assert commit_offset(broker, producer, 5, group_id="") == "invalid_group_id"


def test_offsets_of_a_zombie_are_refused(broker: OneBroker) -> None:
    zombie = broker.producer(version=2)
    broker.producer(version=2)
    assert commit_offset(broker, zombie, 5) == "invalid_producer_epoch"


# -- looking


def test_transactions_are_listed_and_described(broker: OneBroker) -> None:
    one, two = broker.producer("orders-1"), broker.producer("payments-1")
    one.write(TOPIC, "a", index=1)
    listed = broker.client.ask(LIST_TRANSACTIONS, 2, state_filters=["Ongoing", "Sleeping"])
    assert [row.transactional_id for row in listed.transaction_states] == ["orders-1"]
    assert listed.unknown_state_filters == ("Sleeping",)
    pattern = broker.client.ask(LIST_TRANSACTIONS, 2, transactional_id_pattern="pay.*")
    assert [row.producer_id for row in pattern.transaction_states] == [two.producer_id]
    wrong = broker.client.ask(LIST_TRANSACTIONS, 2, transactional_id_pattern="(")
    assert wrong.error_code.name == "invalid_regular_expression"
    ids = ["orders-1", "nobody", ""]
    shown = broker.client.ask(DESCRIBE_TRANSACTIONS, 0, transactional_ids=ids).transaction_states
    assert [row.error_code.name for row in shown] == [
        "none",
        "transactional_id_not_found",
        "invalid_request",
    ]
    assert (shown[0].transaction_state, shown[0].producer_epoch) == ("Ongoing", one.epoch)
    assert [(t.topic, t.partitions) for t in shown[0].topics] == [(TOPIC, (1,))]


def test_a_default_node_needs_no_settings_for_transactions(broker: OneBroker) -> None:
    """O1: one replica of `__transaction_state` is enough where there is one broker."""
    broker.producer()
    topic = broker.node.broker.metadata.image.topics["__transaction_state"]
    assert len(topic.partitions) == 50
    assert {partition.replicas for partition in topic.partitions} == {(0,)}


def test_the_journal_is_in_kafkas_format(broker: OneBroker) -> None:
    producer = broker.producer()
    coordinator = broker.node.broker.coordinators.transactions
    index = coordinator.index_of("t")
    assert index is not None
    log = broker.node.broker.partitions.find("__transaction_state", index).log
    found = log.read(0, 1 << 20, log.log_end_offset)
    data = found.file.pread(found.size, found.position)
    assert read_header(data).producer_id == -1
    assert b"\x00\x00\x00\x01t" in data
    assert producer.epoch == 0


def test_a_transaction_does_not_extend_to_what_coordinators_keep(broker: OneBroker) -> None:
    """The broker adds the partitions that newer clients write to, but not these (X30); older ones
    name them themselves, and are refused with all that they name."""
    producer = broker.producer(version=2)
    broker.client.ask(FIND_COORDINATOR, 4, key_type=0, coordinator_keys=["any"])
    broker.run_for(1000)
    assert producer.write("__consumer_offsets", "a") == "invalid_topic_exception"
    for topic in ("__consumer_offsets", "__transaction_state"):
        assert producer.add((topic, 0), (TOPIC, 0)) == "topic_authorization_failed"
        assert producer.add((TOPIC, 0), (topic, 0)) == "operation_not_attempted"
    answer = broker.client.ask(DESCRIBE_TRANSACTIONS, 0, transactional_ids=["t"])
    (shown,) = answer.transaction_states
    assert (shown.transaction_state, shown.topics) == ("Empty", ())
