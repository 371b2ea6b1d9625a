"""What the source reads, beside what confluent-kafka reads from the same topic (rows P1, P2).

The source is driven as Spark drives it; tests through a session are in `test_source_session`.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions

from clients.confluent import send
from clients.samples import CODECS, SAMPLES, TIME, Sample
from support.cluster_processes import wait_until
from support.new_topics import NewTopicMaker
from support.servers import ROOT, Server, new_server
from support.topic_rows import (
    all_columns,
    batches_of,
    by_confluent,
    by_source,
    by_stream,
    read_tasks,
    rows_of,
    source,
)
from tidelog.base.errors import BadValue
from tidelog.client.errors import Unreachable
from tidelog.log.checkpoints import CLEANER_OFFSETS
from tidelog.spark import logs
from tidelog.spark.arrow_batches import BATCH_BYTES_MAX, BATCH_ROWS_MAX, arrow_schema
from tidelog.spark.losses import DataLoss
from tidelog.spark.tasks import RangePartition

MEBIBYTE = 1024 * 1024


def producer(server: Server, **settings: Any) -> Producer:
    named = {name.replace("_", "."): value for name, value in settings.items()}
    return Producer({"bootstrap.servers": server.address, "linger.ms": 5, **named})


def fill(server: Server, topic: str, count: int, partition: int = 0, **arguments: Any) -> None:
    records = [Sample(key=b"k%d" % n, value=b"value %d" % n) for n in range(count)]
    send(producer(server), topic, records, partition=partition, **arguments)


def delete_before(server: Server, topic: str, offset: int) -> None:
    admin = AdminClient({"bootstrap.servers": server.address})
    for future in admin.delete_records([TopicPartition(topic, 0, offset)]).values():
        future.result(60)


def offsets(rows: list[Any]) -> list[int]:
    return [row.offset for row in rows]


@pytest.mark.parametrize("codec", CODECS)
def test_records_of_all_kinds_are_read_as_confluent_reads_them(
    log_server: Server, new_topic: NewTopicMaker, codec: str
) -> None:
    """P1, P2: nulls and headers of all kinds, each compression, times in no order."""
    topic = new_topic(3)
    sender = producer(log_server, compression_type=codec)
    for number, sample in enumerate(SAMPLES):
        send(sender, topic, [sample], partition=number % 2, timestamp=TIME - number * 7919)
    expected = by_confluent(log_server.address, topic, 3)
    assert len(expected) == len(SAMPLES)
    assert by_source(log_server.address, subscribe=topic) == expected


def test_times_of_the_broker_are_told_from_those_of_the_producer(
    log_server: Server, new_topic: NewTopicMaker
) -> None:
    topic = new_topic(message_timestamp_type="LogAppendTime")
    fill(log_server, topic, 5, timestamp=TIME)
    rows = by_source(log_server.address, subscribe=topic)
    assert rows == by_confluent(log_server.address, topic)
    assert {row.is_append_time for row in rows} == {1}


def test_records_of_10_mb_go_alone_and_are_whole(
    log_server: Server, new_topic: NewTopicMaker
) -> None:
    """P2, trap 18"""
    topic = new_topic(max_message_bytes=11 * MEBIBYTE)
    sender = producer(log_server, message_max_bytes=11 * MEBIBYTE)
    values = [bytes([n]) * size for n, size in enumerate((10 * MEBIBYTE, 10, 10 * MEBIBYTE, 20))]
    send(sender, topic, [Sample(key=None, value=value) for value in values])
    (task,) = batches_of(source(log_server.address, subscribe=topic, includeHeaders="true"))
    assert [row.value for row in rows_of(task)] == values
    assert max(batch.nbytes for batch in task) < BATCH_BYTES_MAX


def test_batches_end_at_rows_or_bytes_whichever_comes_first(
    log_server: Server, new_topic: NewTopicMaker
) -> None:
    """P2, trap 18: also where little is stored and much is read."""
    topic = new_topic(2, max_message_bytes=9 * MEBIBYTE)
    sender = producer(log_server, compression_type="zstd", batch_size=8 * MEBIBYTE)
    send(sender, topic, [Sample(key=b"%d" % n, value=b"") for n in range(45_000)], partition=0)
    large = producer(log_server, compression_type="gzip", message_max_bytes=30_000_000)
    send(large, topic, [Sample(key=b"", value=b"a" * MEBIBYTE) for _ in range(40)], partition=1)
    small, big = batches_of(source(log_server.address, subscribe=topic))
    assert sum(batch.num_rows for batch in small) == 45_000
    assert max(batch.num_rows for batch in small) == BATCH_ROWS_MAX
    assert sum(batch.num_rows for batch in big) == 40
    assert all(batch.nbytes <= BATCH_BYTES_MAX for batch in big)


def test_compacted_topics_are_read_over_their_holes(
    log_server: Server, new_topic: NewTopicMaker
) -> None:
    """Cut into more tasks than there are batches left, so that some find a hole only. Segments are
    as small as Apache Kafka takes them."""
    topic = new_topic(
        cleanup_policy="compact", segment_bytes=1_048_576, min_cleanable_dirty_ratio="0.01"
    )
    sender = producer(log_server)
    for start in range(0, 400, 20):
        keys = [b"%d" % (n % 7) for n in range(start, start + 20)]
        send(sender, topic, [Sample(key=key, value=b"x" * 30_000) for key in keys])
    expected = _when_compacted(log_server, topic)
    rows = by_source(log_server.address, subscribe=topic, minPartitions=40)
    assert rows == expected == by_confluent(log_server.address, topic)
    ending = json.dumps({topic: {"0": 200}})
    holes = by_source(log_server.address, subscribe=topic, endingOffsets=ending)
    assert holes == [row for row in expected if row.offset < 200]


def _when_compacted(server: Server, topic: str) -> list[Any]:
    """What is left when all has been compacted, but for the segment that is written to."""
    noted, folder = server.log_dir / CLEANER_OFFSETS, server.log_dir / f"{topic}-0"

    def is_done() -> bool:
        active = max(int(path.stem) for path in folder.glob("*.log"))
        return noted.exists() and f"{topic} 0 {active}" in noted.read_text().splitlines()

    wait_until(is_done, "the cleaner comes")
    found = by_confluent(server.address, topic)
    assert len(found) <= 50, "most are overwritten"
    return found


@pytest.mark.parametrize(
    ("option", "value", "first"),
    [
        ("startingOffsets", "earliest", 2),
        ("startingOffsets", '{"TOPIC":{"0":5}}', 5),
        ("startingOffsets", '{"TOPIC":{"0":-2}}', 2),
        ("startingTimestamp", str(TIME + 40), 4),
        ("startingOffsetsByTimestamp", f'{{"TOPIC":{{"0":{TIME + 55}}}}}', 6),
    ],
)
@pytest.mark.parametrize("read", [by_source, by_stream])
def test_a_batch_or_a_stream_begins_where_an_option_says(
    ten_records: tuple[Server, str],
    option: str,
    value: str,
    first: int,
    read: Callable[..., list[Any]],
) -> None:
    """P1"""
    server, topic = ten_records
    rows = read(server.address, subscribe=topic, **{option: value.replace("TOPIC", topic)})
    expected = by_confluent(server.address, topic)
    assert rows == [row for row in expected if row.offset >= first]


@pytest.mark.parametrize(
    ("option", "value", "end"),
    [
        ("endingOffsets", "latest", 10),
        ("endingOffsets", '{"TOPIC":{"0":7}}', 7),
        ("endingOffsets", '{"TOPIC":{"0":-1}}', 10),
        ("endingTimestamp", str(TIME + 40), 4),
        ("endingTimestamp", str(TIME + 9999), 10),
        ("endingOffsetsByTimestamp", f'{{"TOPIC":{{"0":{TIME + 55}}}}}', 6),
    ],
)
def test_a_batch_ends_where_an_option_says(
    ten_records: tuple[Server, str], option: str, value: str, end: int
) -> None:
    """P1"""
    server, topic = ten_records
    rows = by_source(server.address, subscribe=topic, **{option: value.replace("TOPIC", topic)})
    expected = by_confluent(server.address, topic)
    assert rows == [row for row in expected if row.offset < end]


def test_a_time_after_all_records_is_an_error_or_the_end(
    ten_records: tuple[Server, str],
) -> None:
    server, topic = ten_records
    late = {"subscribe": topic, "startingTimestamp": TIME + 9999}
    with pytest.raises(BadValue, match=f"startingTimestamp: {topic}-0 has no record since"):
        by_source(server.address, **late)
    strategy = {"startingOffsetsByTimestampStrategy": "latest"}
    assert by_source(server.address, **late, **strategy) == []
    behind = {"startingOffsets": json.dumps({topic: {"0": 6}}), "endingTimestamp": TIME + 30}
    assert by_source(server.address, subscribe=topic, **behind) == []


@pytest.fixture(scope="module")
def ten_records(log_server: Server, new_topic: NewTopicMaker) -> tuple[Server, str]:
    """10 ms apart, of which the first two were deleted."""
    topic = new_topic()
    for number in range(10):
        fill(log_server, topic, 1, timestamp=TIME + 10 * number)
    delete_before(log_server, topic, 2)
    return log_server, topic


def test_an_offset_that_is_gone_is_an_error_or_passed_over(
    ten_records: tuple[Server, str], caplog: pytest.LogCaptureFixture
) -> None:
    server, topic = ten_records
    gone = {"subscribe": topic, "startingOffsets": json.dumps({topic: {"0": 1}})}
    with pytest.raises(DataLoss, match=f"{topic}-0: offset 1 .* only 2 to 10"):
        by_source(server.address, **gone)
    assert offsets(by_source(server.address, **gone, failOnDataLoss="false")) == [*range(2, 10)]
    assert "offset 1" in caplog.text
    backwards = {
        "startingOffsets": json.dumps({topic: {"0": 6}}),
        "endingOffsets": json.dumps({topic: {"0": 3}}),
    }
    with pytest.raises(BadValue, match=f"{topic}-0 ends at 3, before startingOffsets, 6"):
        by_source(server.address, subscribe=topic, **backwards)


def test_topics_are_chosen_by_name_by_pattern_or_by_partition(
    log_server: Server, new_topic: NewTopicMaker
) -> None:
    """P1"""
    first, second = new_topic(2), new_topic(2)
    for topic in (first, second):
        for partition in range(2):
            fill(log_server, topic, 3, partition)
    both = by_confluent(log_server.address, first, 2) + by_confluent(log_server.address, second, 2)
    assert by_source(log_server.address, subscribe=f"{second}, {first}") == sorted(both)
    pattern = f"^({first}|{second})$"
    assert by_source(log_server.address, subscribePattern=pattern) == sorted(both)
    assert by_source(log_server.address, subscribePattern=f"x{first}") == []
    assigned = json.dumps({first: [1], second: [0, 1]})
    assert by_source(log_server.address, assign=assigned) == sorted(
        row for row in both if (row.topic, row.partition) != (first, 0)
    )
    with pytest.raises(BadValue, match=f"assign: {first} has no partition 2"):
        by_source(log_server.address, assign=json.dumps({first: [2]}))
    with pytest.raises(BadValue, match="subscribe: there is no topic nowhere"):
        by_source(log_server.address, subscribe="nowhere", fetchOffset_retryIntervalMs=10)


def test_columns_are_projected_and_of_exactly_the_types_of_spark(
    log_server: Server, new_topic: NewTopicMaker
) -> None:
    """P2, traps 9 and 15"""
    topic = new_topic()
    fill(log_server, topic, 30)
    expected = by_confluent(log_server.address, topic)
    for columns in (("offset", "key"), ("topic",), ("partition", "headers"), ("timestampType",)):
        made = source(log_server.address, subscribe=topic, columns=",".join(columns))
        (task,) = batches_of(made)
        assert all(batch.schema.equals(arrow_schema(columns)) for batch in task)
        assert sum(batch.num_rows for batch in task) == len(expected)
    (keys,) = batches_of(source(log_server.address, subscribe=topic, columns="key"))
    assert [key for batch in keys for key in batch["key"].to_pylist()] == [
        row.key for row in expected
    ]


def test_a_schema_that_is_given_chooses_columns_and_a_wrong_one_is_refused(
    log_server: Server,
) -> None:
    made = source(log_server.address, subscribe="any")
    schema = all_columns()
    assert made.reader(schema)._options.columns == tuple(schema.names)  # type: ignore[attr-defined]
    with pytest.raises(BadValue, match="the schema struct<text:string>: must be struct<key:binary"):
        made.reader(type(schema)().add("text", "string"))
    with pytest.raises(BadValue, match="must be struct<key:binary>"):
        source(log_server.address, subscribe="any", columns="key").reader(schema)


@pytest.mark.parametrize(
    ("options", "tasks"),
    [
        ({}, [100, 900, 0]),
        ({"minPartitions": 10}, [100, *[100] * 9]),
        ({"maxRecordsPerPartition": 300}, [100, 300, 300, 300]),
        ({"maxRecordsPerPartition": 450, "minPartitions": 4}, [100, 300, 300, 300]),
        ({"minPartitions": 1}, [100, 900]),
    ],
)
def test_tasks_are_as_many_and_as_long_as_was_asked_for(
    skewed: tuple[Server, str], options: dict[str, Any], tasks: list[int]
) -> None:
    """P1, P3"""
    server, topic = skewed
    made = source(server.address, subscribe=topic, **options)
    found = [sum(batch.num_rows for batch in task) for task in batches_of(made)]
    assert found == [rows for rows in tasks if rows]
    assert by_source(server.address, subscribe=topic, **options) == by_confluent(
        server.address, topic, 3
    )


@pytest.fixture(scope="module")
def skewed(log_server: Server, new_topic: NewTopicMaker) -> tuple[Server, str]:
    """100 and 900 records that are alike, and an empty partition."""
    topic = new_topic(3)
    fill(log_server, topic, 100, 0)
    fill(log_server, topic, 900, 1)
    return log_server, topic


def test_a_partition_of_large_records_is_cut_by_bytes(
    log_server: Server, new_topic: NewTopicMaker
) -> None:
    """P3: as many records in each, and a hundred times the bytes in one."""
    topic = new_topic(2)
    for partition, size in enumerate((100, 10_000)):
        records = [Sample(key=None, value=b"x" * size)] * 200
        send(producer(log_server), topic, records, partition=partition)
    for options in ({"maxBytesPerPartition": 500_000}, {"minPartitions": 5}):
        made = source(log_server.address, subscribe=topic, **options)
        rows = [sum(batch.num_rows for batch in task) for task in batches_of(made)]
        assert rows[0] == 200
        assert sum(rows[1:]) == 200
        assert 4 <= len(rows) - 1 <= 5
        assert by_source(log_server.address, subscribe=topic, **options) == by_confluent(
            log_server.address, topic, 2
        )


def test_a_stream_reads_everything_once_over_growth_and_limits(
    log_server: Server, new_topic: NewTopicMaker
) -> None:
    """P1, P3: in rows and in bytes."""
    topic = new_topic(2)
    fill(log_server, topic, 500, 0)
    fill(log_server, topic, 5, 1)
    made = source(
        log_server.address,
        subscribe=topic,
        startingOffsets="earliest",
        maxOffsetsPerTrigger=300,
        maxBytesPerTrigger=6_000,
        includeHeaders="true",
    )
    reader: Any = made.streamReader(made.schema())
    limit = reader.getDefaultReadLimit()
    start, rows, sizes = reader.initialOffset(), [], []
    for round_number in range(100):
        time.sleep(0.11)
        if round_number == 3:
            admin = AdminClient({"bootstrap.servers": log_server.address})
            admin.create_partitions([NewPartitions(topic, 3)])[topic].result(60)
            fill(log_server, topic, 50, 2)
        end = reader.latestOffset(start, limit)
        if end == start and round_number > 3:
            break
        tasks = reader.partitions(start, end)
        found = read_tasks(reader, tasks)
        assert read_tasks(reader, reader.partitions(start, end)) == found
        rows += found
        sizes.append(len(found))
        start = end
    reader.stop()
    assert sorted(rows) == by_confluent(log_server.address, topic, 3)
    assert len(sizes) >= 4
    assert max(sizes) <= 303


def test_a_topic_that_was_made_again_is_noticed_by_the_query_and_by_its_tasks(
    log_server: Server, new_topic: NewTopicMaker, caplog: pytest.LogCaptureFixture
) -> None:
    """P3: the offsets of a checkpoint carry the topic's id."""
    topic = new_topic()
    fill(log_server, topic, 20)
    options = {"subscribe": topic, "startingOffsets": "earliest", "includeHeaders": "true"}
    made = source(log_server.address, **options)
    reader: Any = made.streamReader(made.schema())
    limit = reader.getDefaultReadLimit()
    end = reader.latestOffset(reader.initialOffset(), limit)
    planned = reader.partitions(reader.initialOffset(), end)
    new_topic.delete(topic)
    new_topic.again(topic)
    fill(log_server, topic, 30)
    with pytest.raises(DataLoss, match=f"topic {topic} was deleted and made again"):
        reader.latestOffset(end, limit)
    with pytest.raises(DataLoss, match=f"{topic}-0: offsets 0 to 19 are gone: .* made again"):
        read_tasks(reader, planned)
    lenient_source = source(log_server.address, **options, failOnDataLoss="false")
    lenient: Any = lenient_source.streamReader(made.schema())
    assert read_tasks(lenient, planned) == []
    after = lenient.latestOffset(end, limit)
    rows = read_tasks(lenient, lenient.partitions(end, after))
    reader.stop()
    lenient.stop()
    assert rows == by_confluent(log_server.address, topic)
    assert len(rows) == 30
    assert "made again" in caplog.text


def test_a_topic_that_is_gone_is_noticed_by_the_query_and_by_its_tasks(
    log_server: Server, new_topic: NewTopicMaker
) -> None:
    topic = new_topic()
    fill(log_server, topic, 20)
    patience = {"fetchOffset_retryIntervalMs": 10, "kafkaConsumer_pollTimeoutMs": 300}
    made = source(log_server.address, subscribe=topic, startingOffsets="earliest", **patience)
    reader: Any = made.streamReader(made.schema())
    limit = reader.getDefaultReadLimit()
    end = reader.latestOffset(reader.initialOffset(), limit)
    planned = reader.partitions(reader.initialOffset(), end)
    new_topic.delete(topic)
    with pytest.raises(DataLoss, match=f"topic {topic} is gone: .* 0 up to 20"):
        reader.latestOffset(end, limit)
    reader.stop()
    with pytest.raises(DataLoss, match=f"{topic}-0: offsets 0 to 19 are gone"):
        read_tasks(reader, planned)


def test_a_task_whose_records_age_out_stops_or_goes_on_behind_them(
    log_server: Server, new_topic: NewTopicMaker, caplog: pytest.LogCaptureFixture
) -> None:
    topic = new_topic()
    fill(log_server, topic, 20)
    made = source(log_server.address, subscribe=topic, includeHeaders="true")
    reader: Any = made.reader(made.schema())
    planned = reader.partitions()
    delete_before(log_server, topic, 12)
    with pytest.raises(DataLoss, match=f"{topic}-0: offsets 0 to 11 are gone"):
        read_tasks(reader, planned)
    lenient = source(
        log_server.address, subscribe=topic, includeHeaders="true", failOnDataLoss="false"
    )
    rows = read_tasks(lenient.reader(made.schema()), planned)
    assert offsets(rows) == [*range(12, 20)]
    assert "offsets 0 to 11 are gone" in caplog.text


def test_committed_records_are_read_to_the_last_stable_offset(
    log_server: Server, new_topic: NewTopicMaker
) -> None:
    """P1: the isolation level is passed on."""
    topic = new_topic()
    fill(log_server, topic, 8)
    rows = by_source(log_server.address, subscribe=topic, kafka_isolation_level="read_committed")
    assert rows == by_confluent(log_server.address, topic, isolation_level="read_committed")


def test_small_fetches_read_the_same(skewed: tuple[Server, str]) -> None:
    server, topic = skewed
    options = {"kafka_max_partition_fetch_bytes": 100, "kafka_fetch_max_wait_ms": 10}
    rows = by_source(server.address, subscribe=topic, **options)
    assert rows == by_confluent(server.address, topic, 3)


def test_brokers_that_cannot_be_reached_are_tried_as_often_as_was_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`fetchOffset.numRetries`, `fetchOffset.retryIntervalMs`"""
    retries = {"fetchOffset_numRetries": 2, "fetchOffset_retryIntervalMs": 50}
    pauses: list[int] = []
    monkeypatch.setattr(logs, "pause_ms", pauses.append)
    with pytest.raises(Unreachable):
        by_source("127.0.0.1:9", subscribe="any", **retries)
    assert pauses == [50, 50]


def test_a_partition_of_spark_that_was_not_planned_has_no_rows(
    log_server: Server, new_topic: NewTopicMaker
) -> None:
    """Spark makes one where nothing is to be read."""
    from pyspark.sql.datasource import InputPartition

    made = source(log_server.address, subscribe=new_topic())
    reader = made.reader(made.schema())
    assert reader.partitions() == []
    assert list(reader.read(InputPartition(None))) == []
    assert not isinstance(InputPartition(None), RangePartition)


def test_a_task_outlives_a_broker_that_is_started_again(tmp_path: Path) -> None:
    """P3: in the middle of its range."""
    server = new_server(tmp_path, {})
    try:
        server.start()
        topic = NewTopicMaker(server.address)()
        for _ in range(4):
            fill(server, topic, 50)
        expected = by_confluent(server.address, topic)
        small = {"kafka_max_partition_fetch_bytes": 100, "kafka_fetch_max_wait_ms": 10}
        made = source(server.address, subscribe=topic, includeHeaders="true", **small)
        reader = made.reader(made.schema())
        (task,) = reader.partitions()
        batches: Any = reader.read(task)
        first = next(batches)
        server.kill()
        server.start()
        assert rows_of([first, *batches]) == expected
        assert first.num_rows < len(expected)
    finally:
        server.close()


_PEAKS = """
import resource, sys
from support.topic_rows import source
for topic in sys.argv[2:]:
    made = source(sys.argv[1], subscribe=topic, kafka_max_partition_fetch_bytes=1048576)
    reader = made.reader(made.schema())
    read = sum(batch.nbytes for task in reader.partitions() for batch in reader.read(task))
    print(read, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""


def test_the_memory_of_a_worker_does_not_grow_with_its_range(
    log_server: Server, new_topic: NewTopicMaker
) -> None:
    """P2, trap 18: a topic that holds ten times as much takes no more memory."""
    topics = [new_topic(), new_topic()]
    for topic, records in zip(topics, (20, 200), strict=True):
        sender = producer(log_server, compression_type="zstd")
        send(sender, topic, [Sample(key=None, value=bytes(900_000))] * records)
    command = [sys.executable, "-c", _PEAKS, log_server.address, *topics]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tests")}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    (small, before), (large, after) = (map(int, line.split()) for line in done.stdout.splitlines())
    assert small > 20 * 900_000
    assert large > 200 * 900_000
    assert after - before < 64 * MEBIBYTE
