"""Fetch against a whole broker on virtual time: limits, waiting, sessions."""

import errno
from typing import Any

import pytest

from support.brokers import (
    DELETE_TOPICS,
    FETCH,
    INCREMENTAL_ALTER_CONFIGS,
    SimClient,
    SimNode,
    one_batch,
)
from tidelog.handlers import fetch, wide_fetch
from tidelog.marker_appends import Marker, append_marker
from tidelog.records.control import EndTransaction
from tidelog.records.reference import Record, encode_batch, read_records
from tidelog.serving import fetch_sessions


@pytest.fixture
def node() -> SimNode:
    return SimNode()


def values(records: bytes | None) -> list[bytes | None]:
    return [record.value for record in read_records(records)] if records else []


def filled(node: SimNode, topic: str = "events", partitions: int = 1) -> SimClient:
    client = node.client()
    client.create(topic, partitions=partitions)
    return client


def test_a_fetch_takes_whole_batches_up_to_its_limit_but_at_least_one(node: SimNode) -> None:
    client = filled(node)
    sizes = [len(one_batch("x" * 1000)) for _ in range(3)]
    for _ in sizes:
        client.produce("events", one_batch("x" * 1000))
    assert len(client.fetch("events", 0, max_bytes=1).records) == sizes[0]
    assert len(client.fetch("events", 0, max_bytes=1 << 20).records) == sum(sizes)


def test_whoever_waits_for_more_than_whole_batches_fill_is_answered_at_once(node: SimNode) -> None:
    """There is more, but no room for another whole batch: waiting would not change that."""
    client = filled(node)
    batch = one_batch("x" * 1000)
    for _ in range(3):
        client.produce("events", batch)
    began_ms = node.clock.monotonic_ms()
    limit = len(batch) * 5 // 2
    found = client.fetch("events", 0, min_bytes=limit, max_bytes=limit, max_wait=60_000)
    assert len(found.records) == 2 * len(batch)
    assert node.clock.monotonic_ms() - began_ms < 1000


BATCH = one_batch("x" * 1000)


@pytest.mark.parametrize("is_wide", [False, True])
@pytest.mark.parametrize(
    ("max_bytes", "partition_max_bytes", "min_bytes", "is_enough"),
    [
        (len(BATCH) * 3 // 2, 1 << 20, len(BATCH) * 3 // 2, True),
        (1 << 20, len(BATCH) // 2, len(BATCH) // 2 * 4, True),
        (1 << 20, len(BATCH) // 2, len(BATCH) // 2 * 4 + 2, False),
    ],
)
def test_what_finds_no_room_in_an_answer_counts_as_far_as_there_is_some(
    node: SimNode,
    monkeypatch: pytest.MonkeyPatch,
    is_wide: bool,
    max_bytes: int,
    partition_max_bytes: int,
    min_bytes: int,
    is_enough: bool,
) -> None:
    """R3, as in Kafka: be it the limit of the answer, or that of a partition. Waiting would not
    change it."""
    if is_wide:
        monkeypatch.setattr(fetch, "ROWS_MAX", 0)
        monkeypatch.setattr(wide_fetch, "STEP_ROWS", 1)
    client = filled(node, partitions=3)
    for index in range(3):
        client.produce("events", BATCH, index=index)
    limits = (1 << 20, partition_max_bytes, partition_max_bytes)
    partitions = [
        {
            "partition": index,
            "fetch_offset": 0,
            "partition_max_bytes": limit,
            "current_leader_epoch": -1,
        }
        for index, limit in enumerate(limits)
    ]
    topics = [{"topic": "events", "partitions": partitions}]
    began_ms = node.clock.monotonic_ms()
    client.send_fetch([], topics=topics, min_bytes=min_bytes, max_bytes=max_bytes, max_wait=60_000)
    rows = client.wait().responses[0].partitions
    assert (node.clock.monotonic_ms() - began_ms < 1000) is is_enough
    if is_enough:
        assert [len(row.records or b"") for row in rows] == [len(BATCH), 0, 0]


@pytest.mark.parametrize("isolation_level", [0, 1])
def test_whoever_is_behind_the_last_segment_does_not_wait_for_more(
    node: SimNode, isolation_level: int
) -> None:
    """R3, as in Kafka: what there is to come is in the next one, where this answer does not go."""
    client = filled(node)
    alter = {"name": "segment.bytes", "config_operation": 0, "value": str(2 * len(BATCH))}
    resource = {"resource_type": 2, "resource_name": "events", "configs": [alter]}
    client.ask(INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource], validate_only=False)
    for _ in range(5):
        client.produce("events", BATCH)
    log = node.broker.partitions.find("events", 0).log
    assert log.segments.bases == [0, 2, 4]

    def fetched(offset: int) -> tuple[int, bool]:
        """How many batches, and whether they were waited for."""
        began_ms = node.clock.monotonic_ms()
        found = client.fetch(
            "events",
            offset,
            isolation_level=isolation_level,
            min_bytes=3 * len(BATCH),
            max_wait=60_000,
        )
        is_waited_for = node.clock.monotonic_ms() - began_ms >= 60_000
        return len(found.records or b"") // len(BATCH), is_waited_for

    expected = [(2, False), (1, False), (2, False), (1, False), (1, True), (0, True)]
    assert list(map(fetched, range(6))) == expected
    log.roll()
    assert list(map(fetched, range(6))) == expected, "in the next one there is nothing yet"


@pytest.mark.parametrize("limits", [(2_000, 1 << 20), (1 << 20, 2_000)])
def test_whoever_waits_for_more_than_an_answer_may_hold_is_answered_when_it_is_full(
    limits: tuple[int, int],
) -> None:
    """Be it the client's limit or the broker's: more than that never comes."""
    max_bytes, broker_max_bytes = limits
    node = SimNode(fetch_max_bytes=broker_max_bytes)
    client = filled(node)
    for _ in range(3):
        client.produce("events", one_batch("x" * 1000))
    began_ms = node.clock.monotonic_ms()
    found = client.fetch("events", 0, min_bytes=5_000, max_bytes=max_bytes, max_wait=60_000)
    assert len(found.records) == len(one_batch("x" * 1000))
    assert node.clock.monotonic_ms() - began_ms < 1000


def test_a_limit_is_for_all_partitions_together_and_nobody_is_passed_over(node: SimNode) -> None:
    client = filled(node, partitions=3)
    batch = one_batch("x" * 1000)
    for index in range(3):
        client.produce("events", batch, index=index)
    wanted = [("events", index, 0) for index in range(3)]
    client.send_fetch(wanted, max_bytes=len(batch) * 2, session_epoch=0)
    first = client.wait()
    served = {
        row.partition_index for topic in first.responses for row in topic.partitions if row.records
    }
    assert len(served) == 2
    client.send_fetch([], session_id=first.session_id, session_epoch=1, max_bytes=len(batch))
    second = client.wait()
    (row,) = [row for topic in second.responses for row in topic.partitions if row.records]
    assert row.partition_index not in served


@pytest.mark.parametrize(
    ("offset", "code"), [(-1, "offset_out_of_range"), (2, "offset_out_of_range"), (1, "none")]
)
def test_an_offset_outside_the_log_is_told(node: SimNode, offset: int, code: str) -> None:
    client = filled(node)
    client.produce("events", one_batch("a"))
    answer = client.fetch("events", offset)
    assert answer.error_code.name == code
    assert not answer.records


def test_a_topic_that_is_not_there_is_told(node: SimNode) -> None:
    assert node.client().fetch("nothing", 0).error_code.name == "unknown_topic_or_partition"


@pytest.mark.parametrize(
    ("epoch", "code"), [(-1, "none"), (0, "none"), (1, "unknown_leader_epoch")]
)
def test_a_leader_epoch_that_is_not_the_current_one_is_refused(
    node: SimNode, epoch: int, code: str
) -> None:
    """L6."""
    client = filled(node)
    partition = {
        "partition": 0,
        "fetch_offset": 0,
        "partition_max_bytes": 100,
        "current_leader_epoch": epoch,
    }
    topics = [{"topic": "events", "partitions": [partition]}]
    client.send_fetch([], topics=topics)
    assert client.wait().responses[0].partitions[0].error_code.name == code


def test_an_older_leader_epoch_is_fenced_after_a_restart(node: SimNode) -> None:
    """L6, D9: a restart is a new leader epoch."""
    filled(node).produce("events", one_batch("a"))
    node.stop()
    node.start()
    partition = {
        "partition": 0,
        "fetch_offset": 0,
        "partition_max_bytes": 100,
        "current_leader_epoch": 0,
    }
    client = node.client()
    client.send_fetch([], topics=[{"topic": "events", "partitions": [partition]}])
    answer = client.wait().responses[0].partitions[0]
    assert answer.error_code.name == "fenced_leader_epoch"


def test_a_fetch_at_the_end_waits_until_something_is_appended(node: SimNode) -> None:
    """R3."""
    client, producer = filled(node), node.client()
    client.send_fetch([("events", 0, 0)], max_wait=60_000)
    node.loop.run_for(1_000)
    assert len(client.answers) == 1, "it is parked"
    began_ms = node.clock.monotonic_ms()
    producer.produce("events", one_batch("a"))
    answer = client.wait()
    assert values(answer.responses[0].partitions[0].records) == [b"a"]
    assert node.clock.monotonic_ms() - began_ms < 1_000


def test_a_fetch_waits_no_longer_than_it_says(node: SimNode) -> None:
    """R3."""
    client = filled(node)
    began_ms = node.clock.monotonic_ms()
    answer = client.fetch("events", 0, max_wait=500)
    assert not answer.records
    assert 500 <= node.clock.monotonic_ms() - began_ms < 600


def test_a_fetch_waits_for_as_many_bytes_as_it_wants_over_all_partitions(node: SimNode) -> None:
    """R3."""
    client, producer = filled(node, partitions=2), node.client()
    batch = one_batch("x" * 1000)
    wanted = [("events", 0, 0), ("events", 1, 0)]
    client.send_fetch(wanted, max_wait=60_000, min_bytes=len(batch) * 3)
    for index in (0, 1):
        producer.produce("events", batch, index=index)
        node.loop.run_for(1_000)
        assert len(client.answers) == 1
    producer.produce("events", batch, index=0)
    answer = client.wait()
    sizes = [len(row.records or b"") for topic in answer.responses for row in topic.partitions]
    assert sorted(sizes) == [len(batch), 2 * len(batch)]


def test_a_fetch_that_waits_is_told_when_its_topic_is_deleted(node: SimNode) -> None:
    client, admin = filled(node), node.client()
    client.send_fetch([("events", 0, 0)], max_wait=60_000)
    node.loop.run_for(100)
    admin.ask(DELETE_TOPICS, 5, topic_names=["events"], timeout=1000)
    answer = client.wait().responses[0].partitions[0]
    assert answer.error_code.name == "unknown_topic_or_partition"


def test_a_fetch_that_waits_is_forgotten_with_its_connection(node: SimNode) -> None:
    client = filled(node)
    partition = node.broker.partitions.find("events", 0)
    client.send_fetch([("events", 0, 0)], max_wait=2**31 - 1)
    node.loop.run_for(100)
    assert partition.waiters
    client.link.close()
    node.loop.run_for(100)
    assert not partition.waiters


def test_a_client_that_passes_for_a_follower_is_refused(node: SimNode) -> None:
    """CVE-2018-1288."""
    client = filled(node)
    client.send_fetch([("events", 0, 0)], replica_id=1)
    assert client.wait().error_code.name == "cluster_authorization_failed"


@pytest.mark.parametrize("max_wait", [0, 60_000])
def test_a_tool_that_is_no_replica_reads_as_a_consumer(node: SimNode, max_wait: int) -> None:
    """R4: Kafka's own have numbers below -1."""
    client = filled(node)
    read = client.fetch("events", 0, replica_id=-2, max_wait=max_wait, isolation_level=1)
    assert read.error_code.name == "none"
    assert read.records == client.fetch("events", 0).records


# -- sessions


def rows(answer: Any) -> dict[tuple[str, int], Any]:
    return {(t.topic, row.partition_index): row for t in answer.responses for row in t.partitions}


def test_a_session_tells_only_of_what_has_changed(node: SimNode) -> None:
    """KIP-227."""
    client, producer = filled(node, partitions=50), node.client()
    client.send_fetch([("events", index, 0) for index in range(50)], session_epoch=0)
    first = client.wait()
    assert first.session_id > 0
    assert len(rows(first)) == 50
    producer.produce("events", one_batch("a"), index=7)
    client.send_fetch([], session_id=first.session_id, session_epoch=1)
    second = client.wait()
    assert list(rows(second)) == [("events", 7)]
    client.send_fetch([("events", 7, 1)], session_id=first.session_id, session_epoch=2)
    assert rows(client.wait()) == {}


def test_a_session_that_waits_is_woken_by_any_of_its_partitions(node: SimNode) -> None:
    client, producer = filled(node, partitions=50), node.client()
    client.send_fetch([("events", index, 0) for index in range(50)], session_epoch=0)
    session_id = client.wait().session_id
    moved: list[tuple[str, int, int]] = []
    batch = one_batch("x" * 100, "y" * 100)
    for epoch, (index, offset) in enumerate(((3, 0), (44, 0), (3, 2)), 1):
        client.send_fetch(
            moved, session_id=session_id, session_epoch=epoch, max_wait=60_000, min_bytes=200
        )
        node.loop.run_for(50)
        producer.produce("events", batch, index=index)
        assert list(rows(client.wait())) == [("events", index)]
        moved = [("events", index, offset + 2)]


def test_a_partition_that_is_forgotten_is_not_told_of(node: SimNode) -> None:
    client, producer = filled(node, partitions=2), node.client()
    client.send_fetch([("events", 0, 0), ("events", 1, 0)], session_epoch=0)
    session_id = client.wait().session_id
    producer.produce("events", one_batch("a"), index=0)
    client.send_fetch(
        [],
        session_id=session_id,
        session_epoch=1,
        forgotten_topics_data=[{"topic": "events", "partitions": [0]}],
    )
    assert rows(client.wait()) == {}


@pytest.mark.parametrize("is_wide", [False, True])
def test_a_session_that_waits_in_vain_tells_of_what_it_found_before(
    node: SimNode, monkeypatch: pytest.MonkeyPatch, is_wide: bool
) -> None:
    """R3: of partitions that are named for the first time a consumer is to know where they stand,
    whether the fetch ends with its time or with records of another one."""
    monkeypatch.setattr(fetch, "ROWS_MAX", 0 if is_wide else wide_fetch.ROWS_MAX)
    client = filled(node, partitions=4)
    client.produce("events", one_batch("a"), index=2)
    client.send_fetch([("events", 0, 0)], session_epoch=0)
    going_on = {"session_id": client.wait().session_id, "max_wait": 500}
    client.send_fetch([("events", 1, 0), ("events", 2, 1)], session_epoch=1, **going_on)
    marks = {key: row.high_watermark for key, row in rows(client.wait()).items()}
    assert marks == {("events", 1): 0, ("events", 2): 1}
    client.send_fetch([("events", 3, 0)], session_epoch=2, **going_on)
    node.loop.run_for(10)
    node.client().produce("events", one_batch("b"), index=0)
    marks = {key: row.high_watermark for key, row in rows(client.wait()).items()}
    assert marks == {("events", 0): 1, ("events", 3): 0}
    client.send_fetch([("events", 0, 1)], session_epoch=3, **going_on)
    assert rows(client.wait()) == {}, "it is told once"


def test_sessions_that_are_not_there_or_not_in_step_are_refused(node: SimNode) -> None:
    client = filled(node)
    client.send_fetch([], session_id=12345, session_epoch=1)
    assert client.wait().error_code.name == "fetch_session_id_not_found"
    client.send_fetch([("events", 0, 0)], session_epoch=0)
    session_id = client.wait().session_id
    client.send_fetch([], session_id=session_id, session_epoch=5)
    assert client.wait().error_code.name == "invalid_fetch_session_epoch"


def test_a_session_that_is_used_again_before_its_answer_is_answered_at_once(node: SimNode) -> None:
    client, other = filled(node), node.client()
    client.send_fetch([("events", 0, 0)], session_epoch=0)
    session_id = client.wait().session_id
    client.send_fetch([], session_id=session_id, session_epoch=1, max_wait=600_000)
    node.loop.run_for(100)
    other.send_fetch([], session_id=session_id, session_epoch=2, max_wait=100)
    client.wait()
    other.wait()
    assert node.clock.monotonic_ms() < 60_000


def test_with_all_slots_taken_a_consumer_goes_on_without_a_session() -> None:
    node = SimNode(max_incremental_fetch_session_cache_slots=1)
    client = filled(node)
    client.send_fetch([("events", 0, 0)], session_epoch=0)
    assert client.wait().session_id > 0
    client.send_fetch([("events", 0, 0)], session_epoch=0)
    assert client.wait().session_id == 0
    node.loop.run_for(130_000)
    client.send_fetch([("events", 0, 0)], session_epoch=0)
    assert client.wait().session_id > 0
    assert len(node.broker.sessions) == 1


def test_topics_can_be_named_by_id(node: SimNode) -> None:
    client = filled(node)
    client.produce("events", one_batch("a"))
    topic_id = node.broker.partitions.find("events", 0).topic_id
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}
    for wanted, code in ((topic_id, "none"), (b"\1" * 16, "unknown_topic_id")):
        answer = client.ask(
            FETCH,
            13,
            replica_id=-1,
            max_wait=0,
            min_bytes=1,
            topics=[{"topic_id": wanted, "partitions": [partition]}],
            session_epoch=-1,
            forgotten_topics_data=[],
        )
        assert answer.responses[0].partitions[0].error_code.name == code


def test_a_fetch_of_cold_pages_waits_for_them_beside_the_loop() -> None:
    """A range that is not in the page cache is read by a thread first."""
    node = SimNode(log_segment_bytes=1 << 20)
    client = filled(node)
    batch = one_batch("x" * 100_000)
    for _ in range(30):
        client.produce("events", batch)
    node.disk.cold_share = 1.0
    answer = client.fetch("events", 0, max_bytes=1 << 20)
    assert answer.records[: len(batch)].endswith(batch[61:])


def test_what_a_fetch_has_waited_for_is_read_also_where_that_is_cold_by_then(node: SimNode) -> None:
    """R3: a transaction that was long open begins in a segment of which nothing is at hand when it
    ends."""
    client = node.client()
    client.create("events", segment_bytes=40_000)
    partition = node.broker.partitions.find("events", 0)
    opening = encode_batch(
        [Record(offset=0, timestamp=node.clock.now_ms(), key=b"k", value=b"v")],
        producer_id=7,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )
    partition.append(bytearray(opening), node.clock.now_ms())
    for _ in range(20):
        client.produce("events", one_batch("a" * 12_000))
    for segment in partition.log.segments.all:
        segment.offset_index.blocks.clear()
    reader = node.client()
    reader.send_fetch([("events", 0, 0)], isolation_level=1, max_wait=60_000)
    node.loop.run_for(500)
    assert not reader.answers, "it is parked"
    node.disk.cold_share = 1.0
    end = EndTransaction(producer_id=7, producer_epoch=0, committed=True, coordinator_epoch=0)
    marker = Marker(end=end, transaction_version=0, on_append=lambda: None)
    append_marker(partition, marker, node.clock.now_ms(), lambda _error: None)
    began_ms = node.clock.monotonic_ms()
    found = reader.wait().responses[0].partitions[0]
    assert values(found.records)[0] == b"v"
    assert node.clock.monotonic_ms() - began_ms < 1000


def test_sessions_remember_no_more_than_there_is_room_for(
    node: SimNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B3: a consumer that names more and more partitions is told to begin anew, and then goes on
    without a session."""
    monkeypatch.setattr(fetch_sessions, "POSITIONS_MAX", 50)
    client = node.client()
    client.create("events")
    client.send_fetch([("events", 0, 0)], session_epoch=0)
    session_id = client.wait().session_id
    assert session_id > 0
    many = [(f"t{number}", 0, 0) for number in range(30)]
    client.send_fetch(many, session_id=session_id, session_epoch=1)
    assert client.wait().error_code.name == "none"
    more = [(f"u{number}", 0, 0) for number in range(30)]
    client.send_fetch(more, session_id=session_id, session_epoch=2)
    assert client.wait().error_code.name == "fetch_session_id_not_found"
    client.send_fetch([*many, *more], session_epoch=0)
    answer = client.wait()
    assert (answer.session_id, len(answer.responses)) == (0, 60)
    client.send_fetch([("events", 0, 0)], session_epoch=0)
    assert client.wait().session_id > 0


def test_a_disk_that_fails_while_pages_are_warmed_is_told_and_goes_offline() -> None:
    """S10: the reader finds out, not only the thread that read for it."""
    node = SimNode(log_segment_bytes=1 << 20)
    client = filled(node)
    for _ in range(30):
        client.produce("events", one_batch("x" * 100_000))
    node.disk.cold_share = 1.0
    partition = node.broker.partitions.find("events", 0)
    client.send_fetch([("events", 0, 0)], max_bytes=1 << 20)
    assert node.loop.run_until(lambda: partition.bytes_out > 0), "its records were found"
    node.disk.fail(errno.EIO, operations=("pread",), path="*.log", times=1)
    answer = client.wait().responses[0].partitions[0]
    assert answer.error_code.name == "kafka_storage_error"
    assert not answer.records
    assert node.broker.logs.online == []
