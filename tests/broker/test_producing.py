"""Produce against a whole broker on virtual time."""

from collections.abc import Callable
from typing import Any

import pytest

from support.brokers import (
    INCREMENTAL_ALTER_CONFIGS,
    LIST_OFFSETS,
    PRODUCE,
    SimNode,
    one_batch,
    without_max_timestamp,
)
from support.transactional import FIND_COORDINATOR
from tidelog.base.ids import CONSUMER_OFFSETS, TRANSACTION_STATE
from tidelog.base.ports import Buffer, Level
from tidelog.log.segment import INDEX_LOT
from tidelog.records.batch import read_header
from tidelog.records.reference import Record, encode_batch, read_records
from tidelog.world.sim.disk import SimFile
from tidelog.world.sim.pressure import SimPressure


@pytest.fixture
def node() -> SimNode:
    return SimNode()


def values(records: bytes) -> list[bytes | None]:
    return [record.value for record in read_records(records)]


@pytest.mark.parametrize("acks", [1, -1])
def test_a_produced_batch_is_answered_with_its_offset_and_can_be_fetched(
    node: SimNode, acks: int
) -> None:
    """A1, R5."""
    client = node.client()
    client.create("events")
    assert client.produce("events", one_batch("a", "b"), acks=acks).base_offset == 0
    answer = client.produce("events", one_batch("c"), acks=acks)
    assert (answer.error_code.name, answer.base_offset, answer.log_start_offset) == ("none", 2, 0)
    assert values(client.fetch("events", 2).records) == [b"c"]


def test_acks_0_gets_no_answer_but_its_record_is_there(node: SimNode) -> None:
    """A1."""
    client = node.client()
    client.create("events")
    client.send_produce("events", one_batch("a"), acks=0)
    assert client.produce("events", one_batch("b")).base_offset == 1
    assert len(client.frames) == 2


def test_a_refused_batch_with_acks_0_closes_the_connection(node: SimNode) -> None:
    client = node.client()
    client.send_produce("missing", one_batch("a"), acks=0)
    node.loop.run_for(1000)
    assert client.closed_why is not None


def test_acks_that_do_not_exist_are_refused(node: SimNode) -> None:
    client = node.client()
    client.create("events")
    answer = client.produce("events", one_batch("a"), acks=2)
    assert answer.error_code.name == "invalid_required_acks"
    assert node.broker.partitions.find("events", 0).log.log_end_offset == 0


@pytest.mark.parametrize(
    ("batch", "code"),
    [
        (b"", "corrupt_message"),
        (b"x" * 30, "corrupt_message"),
        (one_batch("a")[:-1], "corrupt_message"),
        (one_batch("a") + b"x", "invalid_record"),
        (one_batch("a") + one_batch("b"), "invalid_record"),
        (one_batch("a" * 2_000_000), "message_too_large"),
    ],
)
def test_a_batch_that_is_not_one_is_refused_and_changes_nothing(
    node: SimNode, batch: bytes, code: str
) -> None:
    """B5."""
    client = node.client()
    client.create("events")
    assert client.produce("events", batch).error_code.name == code
    assert node.broker.partitions.find("events", 0).log.log_end_offset == 0


def test_one_partition_that_is_refused_does_not_hold_up_the_others(node: SimNode) -> None:
    client = node.client()
    client.create("events", partitions=2)
    partitions = [
        {"index": 0, "records": one_batch("a")},
        {"index": 1, "records": b"x" * 100},
        {"index": 7, "records": one_batch("c")},
    ]
    answer = client.ask(
        PRODUCE,
        9,
        transactional_id=None,
        acks=-1,
        timeout=1000,
        topic_data=[{"name": "events", "partition_data": partitions}],
    )
    codes = [row.error_code.name for row in answer.responses[0].partition_responses]
    assert codes[0] == "none"
    assert codes[1] != "none"
    assert codes[2] == "unknown_topic_or_partition"


def test_large_batches_keep_their_order_among_small_ones(node: SimNode) -> None:
    """A large batch is written beside the loop; what comes behind it waits for it."""
    client = node.client()
    client.create("events", max_message_bytes=10_000_000)
    sizes = [10, 400_000, 10, 300_000, 20, 30]
    for size in sizes:
        client.send_produce("events", one_batch("x" * size))
    client.wait()
    offsets = [a.responses[0].partition_responses[0].base_offset for a in client.answers[1:]]
    assert offsets == list(range(len(sizes)))
    lengths = []
    for offset in range(len(sizes)):
        (value,) = values(client.fetch("events", offset, max_bytes=1 << 30).records)[:1]
        lengths.append(len(value or b""))
    assert lengths == sizes


@pytest.mark.parametrize("level", Level)
@pytest.mark.parametrize("partitions", [1, 3])
def test_at_its_limit_the_page_cache_holds_up_no_loop(
    level: Level, partitions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write of a few bytes may wait there for a fifth of a second: it does so beside the loop,
    and one of a megabyte does not hold it up."""
    monkeypatch.setattr(SimPressure, "level", lambda _: level)
    node = SimNode()
    client = node.client()
    client.create("events", partitions, max_message_bytes=10_000_000)
    lanes: list[str] = []
    offload = node.loop.offload

    def noting(lane: str, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        lanes.append(lane)
        offload(lane, work, done)

    monkeypatch.setattr(node.loop, "offload", noting)
    count = 7
    for number in range(count):
        batches = [
            {"index": index, "records": one_batch(f"v{number}")} for index in range(partitions)
        ]
        client.send(
            PRODUCE,
            9,
            transactional_id=None,
            acks=1,
            timeout=1000,
            topic_data=[{"name": "events", "partition_data": batches}],
        )
    client.send_produce("events", one_batch("x" * 400_000))
    client.wait()
    rows = [row for a in client.answers[1:-1] for row in a.responses[0].partition_responses]
    assert [row.base_offset for row in rows] == [n for n in range(count) for _ in range(partitions)]
    little = count * partitions if level is Level.limit else 0
    assert lanes.count("write little /data") == little
    assert lanes.count("write /data") == (level is not Level.low)
    for number in range(count):
        assert values(client.fetch("events", number).records) == [f"v{number}".encode()]


@pytest.mark.parametrize("size", [10, 300_000])
@pytest.mark.parametrize("segment_bytes", [1 << 30, 4_000_000])
def test_at_its_limit_no_index_is_written_in_the_loop_either(
    size: int, segment_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor that of a segment that ends. What is written all the same is found by a start."""
    monkeypatch.setattr(SimPressure, "level", lambda _: Level.limit)
    node = SimNode()
    client = node.client()
    client.create("events", index_interval_bytes=0, segment_bytes=segment_bytes)
    is_beside = False
    in_the_loop: list[str] = []
    offload, pwrite = node.loop.offload, SimFile.pwrite

    def noting(lane: str, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        def working() -> Any:
            nonlocal is_beside
            is_beside = True
            try:
                return work()
            finally:
                is_beside = False

        offload(lane, working, done)

    def written(file: SimFile, data: Buffer, offset: int) -> None:
        if not is_beside:
            in_the_loop.append(file._path)
        pwrite(file, data, offset)

    monkeypatch.setattr(node.loop, "offload", noting)
    monkeypatch.setattr(SimFile, "pwrite", written)
    for number in range(3 * INDEX_LOT):
        assert client.produce("events", one_batch("v" * size)).base_offset == number
    assert not [path for path in in_the_loop if "events-0" in path]
    log = node.broker.partitions.find("events", 0).log
    active = log.segments.active
    assert len(log.segments.all) > 1 or size == 10 or segment_bytes == 1 << 30
    assert active.offset_index.unwritten <= INDEX_LOT
    for segment in log.segments.closed:
        assert segment.offset_index.count


@pytest.mark.parametrize("level", Level)
def test_at_its_limit_small_batches_wait_for_no_room_and_less_than_others(
    level: Level, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their thread is favoured, which the loop's is not, nor that of large ones."""
    monkeypatch.setattr(SimPressure, "level", lambda _: level)
    node = SimNode()
    lanes: list[str] = []
    at: list[str] = []
    offload = node.loop.offload

    def noting(lane: str, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        def working() -> Any:
            at.append(lane)
            try:
                return work()
            finally:
                at.pop()

        offload(lane, working, done)

    def note_lane(*_: object) -> None:
        lanes.append(at[-1] if at else "loop")

    monkeypatch.setattr(node.loop, "offload", noting)
    monkeypatch.setattr(SimPressure, "favour", note_lane)
    monkeypatch.setattr(SimFile, "reserve", note_lane)
    client = node.client()
    client.create("events", max_message_bytes=10_000_000)
    for number in range(5):
        assert client.produce("events", one_batch(f"v{number}")).base_offset == number
    assert client.produce("events", one_batch("x" * 400_000)).base_offset == 5
    favoured, reserved = 5, 1
    expected = favoured + reserved if level is Level.limit else 0
    assert lanes == ["write little /data"] * expected


def test_a_repeated_large_batch_of_an_idempotent_producer_is_not_appended_twice(
    node: SimNode,
) -> None:
    """A3."""
    client = node.client()
    client.create("events", max_message_bytes=10_000_000)
    record = Record(offset=0, timestamp=1_700_000_000_000, key=None, value=b"x" * 300_000)
    batch = bytes(encode_batch([record], producer_id=5, producer_epoch=0, base_sequence=0))
    assert client.produce("events", batch).base_offset == 0
    assert client.produce("events", batch).base_offset == 0
    assert node.broker.partitions.find("events", 0).log.log_end_offset == 1


def test_a_compacted_topic_takes_no_record_without_a_key(node: SimNode) -> None:
    client = node.client()
    client.create("table", cleanup_policy="compact")
    answer = client.produce("table", one_batch("a", key=None))
    assert answer.error_code.name == "invalid_record"
    assert client.produce("table", one_batch("a")).base_offset == 0


@pytest.mark.parametrize(("topic", "kind"), [(CONSUMER_OFFSETS, 0), (TRANSACTION_STATE, 1)])
@pytest.mark.parametrize("policy", ["compact", "delete"])
@pytest.mark.parametrize("acks", [1, -1])
def test_what_coordinators_keep_is_not_for_clients_to_write(
    node: SimNode, topic: str, kind: int, policy: str, acks: int
) -> None:
    """Whatever its settings are by now."""
    client = node.client()
    client.ask(FIND_COORDINATOR, 4, key_type=kind, coordinator_keys=["any"])
    node.loop.run_for(1000)
    changes = [
        {"name": name, "config_operation": 0, "value": value}
        for name, value in (("cleanup.policy", policy), ("compression.type", "producer"))
    ]
    resource = {"resource_type": 2, "resource_name": topic, "configs": changes}
    answer = client.ask(INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource], validate_only=False)
    assert answer.responses[0].error_code.name == "none"
    node.loop.run_for(1000)
    assert client.produce(topic, one_batch("a"), acks=acks).error_code.name == (
        "invalid_topic_exception"
    )
    assert node.broker.partitions.find(topic, 0).log.log_end_offset == 0


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd", "uncompressed"])
def test_a_topic_with_a_codec_of_its_own_stores_batches_in_it(node: SimNode, codec: str) -> None:
    """S11, `compression.type`."""
    client = node.client()
    client.create("events", compression_type=codec)
    batch = bytes(
        encode_batch(
            [Record(offset=0, timestamp=1_700_000_000_000, key=b"k", value=b"v" * 500)],
            compression=1 if codec != "gzip" else 0,
        )
    )
    assert client.produce("events", batch).error_code.name == "none"
    stored = client.fetch("events", 0).records
    wanted = ("uncompressed", "gzip", "snappy", "lz4", "zstd").index(codec)
    assert stored[22] & 7 == wanted
    assert values(stored) == [b"v" * 500]


def test_log_append_time_is_put_into_the_batch_and_the_answer(node: SimNode) -> None:
    client = node.client()
    client.create("events", message_timestamp_type="LogAppendTime")
    answer = client.produce("events", one_batch("a", timestamp=1_600_000_000_000))
    assert answer.log_append_time is not None
    (record,) = read_records(client.fetch("events", 0).records)
    assert record.timestamp >= 1_700_000_000_000


@pytest.mark.parametrize("size", [10, 3_000_000])
@pytest.mark.parametrize("configs", [{}, {"flush_messages": 1}, {"cleanup_policy": "compact"}])
def test_the_answer_names_the_time_that_the_records_were_given_however_long_it_takes(
    node: SimNode, size: int, configs: dict[str, Any]
) -> None:
    """A large batch is written beside the loop, and one that is flushed is answered after that."""
    client = node.client()
    client.create(
        "events", message_timestamp_type="LogAppendTime", max_message_bytes=4_000_000, **configs
    )
    for offset in range(5):
        answer = client.produce("events", one_batch("x" * size))
        stored = read_header(client.fetch("events", offset).records).max_timestamp
        assert round(answer.log_append_time.timestamp() * 1000) == stored


@pytest.mark.parametrize("kind", ["CreateTime", "LogAppendTime"])
@pytest.mark.parametrize("compression", [0, 1])
def test_a_max_timestamp_that_was_not_given_is_filled_in(
    node: SimNode, kind: str, compression: int
) -> None:
    """Apache Kafka looks for the youngest record too. A retry is still known as one."""
    client = node.client()
    client.create("events", message_timestamp_type=kind)
    times = [1_700_000_000_000, 1_700_000_009_000, 1_700_000_001_000]
    whole = encode_batch(
        [Record(offset=n, timestamp=at, value=b"v") for n, at in enumerate(times)],
        compression=compression,
        producer_id=5,
        producer_epoch=0,
        base_sequence=0,
    )
    for _ in range(2):
        answer = client.produce("events", without_max_timestamp(bytes(whole)))
        assert (answer.error_code.name, answer.base_offset) == ("none", 0)
    stored = client.fetch("events", 0).records
    assert [record.offset for record in read_records(stored, verify_crc=True)] == [0, 1, 2]
    partition = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": -3}
    topics = [{"name": "events", "partitions": [partition]}]
    found = client.ask(LIST_OFFSETS, 7, replica_id=-1, isolation_level=0, topics=topics)
    youngest = found.topics[0].partitions[0]
    assert youngest.timestamp == read_header(stored).max_timestamp
    if kind == "CreateTime":
        assert (youngest.offset, youngest.timestamp) == (1, times[1])


@pytest.mark.parametrize("at", [-2, 1_600_000_000_000])
def test_what_lacks_a_max_timestamp_must_be_in_time_like_all_the_rest(
    node: SimNode, at: int
) -> None:
    client = node.client()
    client.create("events", message_timestamp_before_max_ms=1_000)
    batch = without_max_timestamp(one_batch("a", timestamp=at))
    assert client.produce("events", batch).error_code.name == "invalid_timestamp"
    assert node.broker.partitions.find("events", 0).log.log_end_offset == 0


def test_a_transactional_batch_is_refused_as_long_as_there_are_no_transactions(
    node: SimNode,
) -> None:
    client = node.client()
    client.create("events")
    record = Record(offset=0, timestamp=1_700_000_000_000, key=None, value=b"x")
    batch = bytes(
        encode_batch([record], transactional=True, producer_id=5, producer_epoch=0, base_sequence=0)
    )
    assert client.produce("events", batch).error_code.name == "invalid_txn_state"


def test_requests_in_flight_are_answered_in_order(node: SimNode) -> None:
    client = node.client()
    client.create("events", partitions=3, max_message_bytes=10_000_000)
    for number in range(300):
        size = 300_000 if number % 50 == 0 else 10
        client.send_produce("events", one_batch("x" * size), index=number % 3)
    client.wait()
    rows = [a.responses[0].partition_responses[0] for a in client.answers[1:]]
    assert [row.index for row in rows] == [number % 3 for number in range(300)]
    for index in range(3):
        assert [row.base_offset for row in rows if row.index == index] == list(range(100))
