"""What a broker does for its logs from time to time, on virtual time."""

import errno
import logging
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from support.brokers import INCREMENTAL_ALTER_CONFIGS, SimClient, SimNode, one_batch
from support.logs import batch, check_everything, contents
from tidelog.base.ports import Level
from tidelog.log.checkpoints import read_offsets
from tidelog.log.files import LOG
from tidelog.partition import Partition
from tidelog.records.batch import HEADER_SIZE, walk
from tidelog.records.reference import read_records
from tidelog.world.sim.pressure import SimPressure

HOUR_MS = 3_600_000
DELETE_RECORDS = 21


def partition_of(node: SimNode, topic: str = "events") -> Partition:
    return node.broker.partitions.find(topic, 0)


def produce_at(node: SimNode, client: SimClient, count: int, size: int = 100_000) -> None:
    for _ in range(count):
        client.produce("events", one_batch("x" * size, timestamp=node.clock.now_ms()))


def test_old_segments_leave_by_time_and_the_log_start_is_durable_first() -> None:
    """S5, V17."""
    node = SimNode(log_segment_bytes=1 << 20)
    client = node.client()
    client.create("events", retention_ms=HOUR_MS, segment_ms=HOUR_MS)
    produce_at(node, client, 25)
    node.loop.run_for(HOUR_MS)
    produce_at(node, node.client(), 5)
    node.loop.run_for(HOUR_MS // 2)
    partition = partition_of(node)
    start = partition.log.log_start_offset
    assert 0 < start <= 25
    node.kill()
    node.start()
    assert partition_of(node).log.log_start_offset >= start
    answer = node.client().fetch("events", 0)
    assert answer.error_code.name == "offset_out_of_range"


def test_a_wall_clock_that_leaps_ahead_ages_nothing_at_once() -> None:
    """F13: there is time to set it right."""
    node = SimNode(log_segment_bytes=1 << 20)
    client = node.client()
    client.create("events", retention_ms=HOUR_MS)
    produce_at(node, client, 25)
    node.clock.set_wall(node.clock.now_ms() + 2 * HOUR_MS)
    node.loop.run_for(HOUR_MS // 3)
    log = partition_of(node).log
    assert (log.log_start_offset, log.log_end_offset) == (0, 25)
    node.loop.run_for(HOUR_MS // 3)
    assert log.log_start_offset == 25


def test_a_wall_clock_that_leaps_ahead_lets_no_tombstone_go_at_once() -> None:
    """F13: a replica that was away must still see it."""
    node = SimNode(log_segment_bytes=1 << 20, log_cleaner_dedupe_buffer_size=10 << 20)
    node.client().create(
        "events",
        cleanup_policy="compact",
        min_cleanable_dirty_ratio=0.01,
        delete_retention_ms=HOUR_MS,
    )
    gone = batch(1, key=b"gone", value=None, at=node.clock.now_ms())
    node.client().produce("events", bytes(gone))
    for leap_ms, wanted in ((0, [b"gone"]), (2 * HOUR_MS, [b"gone"]), (0, [])):
        node.clock.set_wall(node.clock.now_ms() + leap_ms)
        for number in range(15):
            value = one_batch("x" * 100_000, key=f"k{number % 3}", timestamp=node.clock.now_ms())
            node.client().produce("events", value)
        node.loop.run_for(120_000)
        assert tombstones(node) == wanted
        if leap_ms:
            node.loop.run_for(HOUR_MS)


def tombstones(node: SimNode) -> list[bytes | None]:
    found = contents(partition_of(node).log)
    return [record.key for item in found for record in item.records if record.value is None]


def test_old_segments_leave_by_size_and_their_files_after_a_delay() -> None:
    """S5."""
    node = SimNode(log_segment_bytes=1 << 20)
    client = node.client()
    client.create("events", retention_bytes=2 << 20)
    produce_at(node, client, 60)
    node.loop.run_for(301_000)
    log = partition_of(node).log
    assert log.segments.size <= (2 << 20) + (1 << 20)
    names = node.disk.list("/data/events-0")
    assert any(name.endswith(".deleted") for name in names)
    node.loop.run_for(400_000)
    names = node.disk.list("/data/events-0")
    assert not any(name.endswith(".deleted") for name in names)


def has_answers(client: SimClient, count: int) -> bool:
    return len(client.answers) >= count


@pytest.mark.parametrize("retention", [{"bytes": 1 << 20}, {"ms": HOUR_MS // 12}], ids=str)
def test_segments_leave_also_while_there_is_always_something_being_written(
    retention: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """S5: a log that nobody ever leaves alone must not fill the disk."""
    monkeypatch.setattr(SimPressure, "level", lambda _: Level.limit)
    node = SimNode(log_segment_bytes=1 << 20)
    configs = {f"retention_{unit}": value for unit, value in retention.items()}
    node.client().create("events", **configs)
    partition = partition_of(node)
    offload = node.loop.offload

    def slowly(lane: str, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        def ended(end: Any) -> None:
            node.loop.call_at(node.clock.monotonic_ms() + 20_000, partial(done, end))

        offload(lane, work, ended if lane.startswith("write") else done)

    monkeypatch.setattr(node.loop, "offload", slowly)
    client = node.client()
    for number in range(60):
        client.send_produce(
            "events", one_batch("x" * 100_000, timestamp=node.clock.now_ms()), acks=1
        )
        client.until(partial(has_answers, client, number))
        assert partition.is_busy or not number
    assert partition.log.log_start_offset > 10
    assert partition.log.segments.size < 45 * 100_000
    check_everything(partition.log)


def test_a_setting_altered_while_the_broker_runs_counts_at_the_next_look() -> None:
    """O2."""
    node = SimNode(log_segment_bytes=1 << 20)
    client = node.client()
    client.create("events")
    produce_at(node, client, 60)
    node.loop.run_for(HOUR_MS)
    assert partition_of(node).log.log_start_offset == 0
    change = {"name": "retention.bytes", "config_operation": 0, "value": "1000000"}
    resource = {"resource_type": 2, "resource_name": "events", "configs": [change]}
    node.client().ask(INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource], validate_only=False)
    node.loop.run_for(301_000)
    assert partition_of(node).log.log_start_offset > 0


def test_high_watermarks_and_recovery_points_are_written_down() -> None:
    """S8."""
    node = SimNode(log_segment_bytes=1 << 20)
    client = node.client()
    client.create("events")
    produce_at(node, client, 30)
    node.loop.run_for(10_000)
    name = partition_of(node).name
    assert read_offsets(node.disk, "/data/replication-offset-checkpoint")[name] == 30
    recovery_point = read_offsets(node.disk, "/data/recovery-point-offset-checkpoint")[name]
    assert recovery_point == partition_of(node).log.recovery_point > 0
    node.lose_power()
    node.start()
    assert partition_of(node).log.log_end_offset >= recovery_point


def test_high_watermarks_wait_for_their_time_and_log_starts_for_nothing() -> None:
    """S8: what a client was told that it has deleted is durable by then, and needs no interval."""
    node = SimNode()
    began_ms = node.clock.monotonic_ms()
    client = node.client()
    client.create("events")
    produce_at(node, client, 3, size=10)
    name = partition_of(node).name
    assert node.clock.monotonic_ms() - began_ms < 4_000
    assert name not in read_offsets(node.disk, "/data/replication-offset-checkpoint")
    node.loop.run_for(5_000)
    assert read_offsets(node.disk, "/data/replication-offset-checkpoint")[name] == 3
    partitions = [{"partition_index": 0, "offset": 2}]
    topics = [{"name": "events", "partitions": partitions}]
    client.ask(DELETE_RECORDS, 2, topics=topics, timeout=60_000)
    assert read_offsets(node.disk, "/data/log-start-offset-checkpoint")[name] == 2


@pytest.mark.parametrize("size", [10, 400_000])
def test_with_flush_messages_1_an_answered_record_survives_a_power_loss(size: int) -> None:
    """S7."""
    node = SimNode()
    client = node.client()
    client.create("events", flush_messages=1, max_message_bytes=1_000_000)
    for number in range(5):
        assert client.produce("events", one_batch("x" * size)).base_offset == number
    node.lose_power("all")
    node.start()
    assert partition_of(node).log.log_end_offset == 5


def test_with_flush_ms_records_are_durable_after_that_time() -> None:
    """S7."""
    node = SimNode()
    client = node.client()
    client.create("events", flush_ms=5_000)
    client.produce("events", one_batch("a"))
    node.loop.run_for(10_000)
    node.lose_power("all")
    node.start()
    assert partition_of(node).log.log_end_offset == 1


def test_a_compacted_topic_is_compacted_in_the_background() -> None:
    """S6."""
    node = SimNode(log_segment_bytes=1 << 20, log_cleaner_dedupe_buffer_size=10 << 20)
    client = node.client()
    client.create("events", cleanup_policy="compact", min_cleanable_dirty_ratio=0.01)
    for number in range(30):
        batch = one_batch("x" * 100_000, key=f"k{number % 3}", timestamp=node.clock.now_ms())
        client.produce("events", batch)
    node.loop.run_for(120_000)
    partition = partition_of(node)
    assert partition.log.segments.size < 15 * 100_000
    consumer = node.client()
    kept: list[int] = []
    offset = 0
    while offset < 30:
        data = consumer.fetch("events", offset, max_bytes=50 << 20).records
        for at, header in walk(data):
            kept += [record.offset for record in read_records(data[at : at + header.size])]
            offset = header.next_offset
    assert 0 < len(kept) < 15
    assert kept[0] > 0
    assert kept[-1] == 29
    assert partition.log.log_end_offset == 30


def test_a_log_is_compacted_once_at_a_time_however_slow_its_disk_is(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """S6: a second child would write over what of the first is not in its place yet."""
    caplog.set_level(logging.INFO, "tidelog.housekeeping")
    for seed in range(6):
        node = SimNode(
            seed=seed,
            log_segment_bytes=1 << 20,
            log_cleaner_dedupe_buffer_size=10 << 20,
            log_cleaner_backoff_ms=5,
        )
        client = node.client()
        client.create("events", cleanup_policy="compact", min_cleanable_dirty_ratio=0.01)
        for number in range(60):
            key = f"k{number % 7}"
            batch = one_batch(f"{number}" + "x" * 300_000, key=key, timestamp=node.clock.now_ms())
            client.produce("events", batch)
            node.loop.run_for(100)
        node.loop.run_for(120_000)
        assert last_values(node.client(), 60) == {
            f"k{number % 7}": number for number in range(53, 60)
        }
    assert "not compacted" not in caplog.text
    assert caplog.text.count("compacted partition=events-0") > 10


def last_values(client: SimClient, end: int) -> dict[str, int]:
    """The number at the beginning of the last value of each key."""
    values: dict[str, int] = {}
    offset = 0
    while offset < end:
        data = client.fetch("events", offset, max_bytes=50 << 20).records
        for at, header in walk(data):
            for record in read_records(data[at : at + header.size]):
                assert record.key is not None
                assert record.value is not None
                values[record.key.decode()] = int(record.value.rstrip(b"x"))
            offset = header.next_offset
    return values


def test_readers_are_taken_past_segments_that_compaction_has_emptied() -> None:
    """S6: a client may give up on a partition that answers with batches without records only."""
    node = SimNode(log_segment_bytes=1 << 20, log_cleaner_dedupe_buffer_size=10 << 20)
    client = node.client()
    client.create("events", cleanup_policy="compact", min_cleanable_dirty_ratio=0.01)
    for _ in range(20):
        batch = one_batch("x" * 900_000, timestamp=node.clock.now_ms())
        client.produce("events", batch)
    node.loop.run_for(120_000)
    log = partition_of(node).log
    emptied = [one for one in log.segments.all if one.size == HEADER_SIZE]
    assert len(emptied) > 10
    data = node.client().fetch("events", 0, max_bytes=50 << 20).records
    (_, header), *_ = walk(data)
    assert header.record_count == 1
    assert header.base_offset == 18
    partition = partition_of(node)
    whole = partition.read_as_follower(0, 1 << 20, set())
    assert whole is not None
    assert (whole.position, whole.size) == (0, HEADER_SIZE), "a follower gets it as it is"
    node.disk.fail(errno.EIO, operations=("pread",), path=emptied[0].path(LOG), skip=1, times=None)
    found = node.client().fetch("events", 0, max_bytes=50 << 20)
    assert found.error_code.name == "kafka_storage_error", "S10: the disk fails over it"


def test_a_disk_that_fails_takes_its_dir_offline_and_no_other() -> None:
    """S10, V19."""
    node = SimNode(log_dirs="/data,/more")
    client = node.client()
    for topic in ("a", "b"):
        client.create(topic)
    homes = {topic: partition_of(node, topic).log.home.path for topic in ("a", "b")}
    assert set(homes.values()) == {"/data", "/more"}
    node.disk.fail(errno.EIO, path=f"{homes['a']}/a-0/*", times=None)
    assert client.produce("a", one_batch("x")).error_code.name == "kafka_storage_error"
    assert client.fetch("a", 0).error_code.name == "kafka_storage_error"
    assert client.produce("b", one_batch("x")).error_code.name == "none"
    node.loop.run_for(600_000)
    assert node.client().produce("b", one_batch("x")).base_offset == 1


def test_creating_and_deleting_topics_while_checkpoints_are_written_confuses_nobody() -> None:
    """A checkpoint that was collected before a deletion must not come back after it."""
    for seed in range(15):
        node = SimNode(seed=seed, log_segment_bytes=1 << 20)
        client = node.client()
        for round_ in range(6):
            client.create("events", retention_bytes=1)
            produce_at(node, client, 12)
            node.loop.run_for(299_000 + round_ * 700)
            client = node.client()
            client.ask(20, 5, topic_names=["events"], timeout=1000)
        client.create("events")
        client.produce("events", one_batch("a"))
        node.loop.run_for(seed * 3)
        node.kill()
        node.start()
        log = partition_of(node).log
        assert (log.log_start_offset, log.log_end_offset) == (0, 1)


def test_a_restart_with_a_failed_dir_makes_no_empty_log_for_a_partition_in_it() -> None:
    """S10: it would pass for all there ever was."""
    node = SimNode(log_dirs="/data,/more")
    client = node.client()
    for topic in ("a", "b"):
        client.create(topic)
        client.produce(topic, one_batch("x"))
    lost = next(t for t in ("a", "b") if partition_of(node, t).log.home.path == "/more")
    node.stop()
    node.disk.fail(errno.EIO, operations=("lock",), path="/more/*", times=1)
    node.start()
    client = node.client()
    assert client.produce(lost, one_batch("x")).error_code.name == "kafka_storage_error"
    assert client.fetch(lost, 0).error_code.name == "kafka_storage_error"
    client.create("fresh")
    assert client.produce("fresh", one_batch("x")).error_code.name == "none"
    node.stop()
    node.start()
    assert partition_of(node, lost).log.log_end_offset == 1


@pytest.mark.parametrize("delay_ms", range(0, 24, 2))
def test_a_topic_that_is_deleted_during_a_slow_append_takes_no_dir_offline(delay_ms: int) -> None:
    node = SimNode(seed=delay_ms)
    client, admin = node.client(), node.client()
    client.create("events", max_message_bytes=10_000_000, flush_messages=1)
    for _ in range(3):
        client.send_produce("events", one_batch("x" * 5_000_000))
    node.loop.run_for(delay_ms)
    admin.ask(20, 5, topic_names=["events"], timeout=1000)
    client.wait()
    codes = {a.responses[0].partition_responses[0].error_code.name for a in client.answers[1:]}
    assert codes <= {"none", "unknown_topic_or_partition"}
    assert node.broker.logs.online == node.broker.logs.dirs


def test_the_files_of_a_deleted_topic_go_after_their_delay_not_at_the_next_retention() -> None:
    node = SimNode(log_retention_check_interval_ms=10 * HOUR_MS)
    client = node.client()
    client.create("events", file_delete_delay_ms=2_000)
    client.ask(20, 5, topic_names=["events"], timeout=1000)
    assert any("delete" in name for name in node.disk.list("/data"))
    node.loop.run_for(5_000)
    assert not any("delete" in name for name in node.disk.list("/data"))


def rotted(policy: str) -> SimNode:
    """Two topics of the same settings. In a closed segment of one of them a length has rotted."""
    node = SimNode(log_segment_bytes=1 << 20, log_cleaner_dedupe_buffer_size=10 << 20)
    client = node.client()
    for topic in ("bad", "events"):
        client.create(
            topic,
            cleanup_policy=policy,
            retention_ms=HOUR_MS,
            min_compaction_lag_ms=1,
            min_cleanable_dirty_ratio=0.01,
        )
        for number in range(25):
            data = one_batch("x" * 100_000, key=f"k{number % 3}", timestamp=node.clock.now_ms())
            client.produce(topic, data)
    segment = partition_of(node, "bad").log.segments.first
    name, last = segment.path(".log"), max(segment.offset_index.entries())[1]
    node.stop()
    node.disk.flip_bit(name, last + 8, 6)
    node.start()
    return node


def test_a_log_that_has_rotted_does_not_keep_others_from_ageing() -> None:
    """S5, F12."""
    node = rotted("delete")
    node.loop.run_for(2 * HOUR_MS)
    assert partition_of(node).log.log_start_offset == 25
    assert partition_of(node, "bad").log.log_start_offset == 25, "it is as old as its files"


def test_a_log_that_has_rotted_does_not_keep_others_from_being_compacted() -> None:
    """S6, F12."""
    node = rotted("compact")
    node.loop.run_for(120_000)
    assert partition_of(node).log.segments.size < 15 * 100_000


@pytest.mark.parametrize("restart", [False, True])
def test_a_producer_of_old_records_is_not_forgotten_while_it_sends(restart: bool) -> None:
    """A3, V13: a batch whose answer was lost comes again, whatever time its records have."""
    node = SimNode()
    node.client().create("events")
    long_ago = node.clock.now_ms() - 48 * HOUR_MS
    for number in range(30):
        sent = batch(producer_id=7, producer_epoch=0, base_sequence=number, at=long_ago)
        assert node.client().produce("events", bytes(sent)).base_offset == number
        if restart and number == 20:
            node.kill()
            node.start()
        node.loop.run_for(60_000)
        assert node.client().produce("events", bytes(sent)).base_offset == number
    node.loop.run_for(25 * HOUR_MS)
    assert not partition_of(node).log.producers.by_id
