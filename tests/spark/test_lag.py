"""How far queries are behind: measured, read from checkpoints, and told while they run (P3)."""

import json
import re
import time
import urllib.request
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from support.new_topics import NewTopicMaker
from support.ports import free_ports
from support.servers import Server
from tidelog.base.ids import TopicPartition
from tidelog.cli.pipeline_project import BOOTSTRAP, find_project, make_project
from tidelog.cli.pipeline_run import show_lag
from tidelog.client.client import Client
from tidelog.spark.checkpoints import read_positions
from tidelog.spark.lag import Lag, measure_lag
from tidelog.spark.lag_gauges import LagGauges
from tidelog.spark.lag_listener import LagListener, describe, say_lag

SECONDS_MAX = 60


@pytest.fixture
def topic(log_server: Server, new_topic: NewTopicMaker) -> str:
    """Ten records in partition 0, a minute old, and five in partition 1."""
    name = new_topic(2)
    producer = Producer({"bootstrap.servers": log_server.address})
    old_ms = int(time.time() * 1000) - 60_000
    for number in range(15):
        producer.produce(name, b"%d" % number, partition=number // 10, timestamp=old_ms)
    assert producer.flush(60) == 0
    return name


def test_lag_is_told_in_records_and_in_time(log_server: Server, topic: str) -> None:
    read = {TopicPartition(topic, 0): 3, TopicPartition(topic, 1): 5}
    with Client(log_server.address) as client:
        first, second = measure_lag(client, read, int(time.time() * 1000))
    assert (first.records, first.end) == (7, 10)
    assert 60_000 <= first.time_ms < 120_000
    assert (second.records, second.time_ms) == (0, 0)


def test_after_a_run_each_flow_of_a_pipeline_is_shown_with_its_lag(
    log_server: Server, topic: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """P5: as its checkpoints say, in the places that Spark gives them. Nobody is asked in vain: a
    broker that is away makes no run fail."""
    make_project(tmp_path / "shop", topic=topic, bootstrap=log_server.address)
    project = find_project(tmp_path / "shop")
    assert project.storage is not None
    checkpoint = project.storage / "_checkpoints" / "spark_catalog.default.bronze" / "bronze" / "0"
    for kind, content in {"offsets": f"v1\n{{}}\n{_offsets(topic, 3, 5)}", "commits": "v1"}.items():
        (checkpoint / kind).mkdir(parents=True)
        (checkpoint / kind / "0").write_text(content)
    show_lag(project)
    head, *rows = capsys.readouterr().out.splitlines()
    assert re.split("  +", head) == [
        *("FLOW", "TOPIC", "PARTITION", "READ TO", "END", "LAG", "TIME BEHIND")
    ]
    behind, even = (row.split() for row in rows)
    assert behind[:6] == ["bronze", topic, "0", "3", "10", "7"]
    assert 60 <= float(behind[6]) < 120
    assert even[2:7] == ["1", "5", "5", "0", "0.0"]
    nobody = f"127.0.0.1:{free_ports(1)[0]}"
    show_lag(replace(project, configuration={BOOTSTRAP: nobody}))
    assert capsys.readouterr().out.startswith("lag: not known: ")


def test_lag_is_described_in_a_line() -> None:
    one = Lag(partition=TopicPartition("t", 0), read=3, end=10, time_ms=1500)
    other = Lag(partition=TopicPartition("t", 1), read=5, end=5, time_ms=0)
    third = Lag(partition=TopicPartition("t", 2), read=1, end=9, time_ms=-1)
    assert describe([one, other, third]) == (
        "15 records and 1.5 s behind (partition 2: 8 records and unknown time, "
        "partition 0: 7 records and 1.5 s)"
    )
    assert describe([other]) == "nothing left to read"
    many = [
        Lag(partition=TopicPartition("t", at), read=0, end=1 + at, time_ms=0) for at in range(23)
    ]
    assert describe(many).startswith("276 records and 0.0 s behind (partition 22: 23 records and ")
    assert describe(many).endswith("partition 3: 4 records and 0.0 s, and 3 more partitions)")


def test_lag_is_said_for_each_query_topic_and_partition(
    capsys: pytest.CaptureFixture[str],
) -> None:
    behind = [("a", 0, 4), ("b", 0, 2), ("b", 1, 3), ("c", 0, 0)]
    lags = [
        Lag(partition=TopicPartition(topic, at), read=0, end=end, time_ms=500 * end)
        for topic, at, end in behind
    ]
    say_lag("query", lags)
    assert capsys.readouterr().err.splitlines() == [
        "query: a: 4 records and 2.0 s behind (partition 0: 4 records and 2.0 s)",
        "query: b: 5 records and 1.5 s behind (partition 1: 3 records and 1.5 s, "
        "partition 0: 2 records and 1.0 s)",
        "query: c: nothing left to read",
    ]


def test_gauges_show_records_and_age_until_the_query_has_ended() -> None:
    port = free_ports(1)[0]
    gauges = LagGauges(port)
    known = Lag(partition=TopicPartition("t", 0), read=3, end=10, time_ms=1500)
    unknown = Lag(partition=TopicPartition("t", 1), read=3, end=5, time_ms=-1)
    try:
        gauges.show("id", "q", [known, unknown])
        page = _scraped(port)
        for line in (
            'tidelog_query_lag_records{partition="0",query="q",topic="t"} 7.0',
            'tidelog_query_lag_records{partition="1",query="q",topic="t"} 2.0',
            'tidelog_query_lag_seconds{partition="0",query="q",topic="t"} 1.5',
            'tidelog_query_lag_seconds{partition="1",query="q",topic="t"} NaN',
        ):
            assert line in page.splitlines()
        gauges.forget("id")
        assert 'query="q"' not in _scraped(port)
    finally:
        gauges.server.shutdown()
        gauges.server.server_close()


def test_a_listener_tells_the_lag_of_a_query_and_shows_it_to_prometheus(
    spark: Any, log_server: Server, topic: str, tmp_path: Path
) -> None:
    told: list[tuple[str, list[Lag]]] = []
    port = free_ports(1)[0]
    listener = LagListener(
        log_server.address,
        every_s=0,
        metrics_port=port,
        tell=lambda name, lags: told.append((name, lags)),
    )
    spark.streams.addListener(listener)
    try:
        stream = (
            spark.readStream.format("tidelog")
            .option("kafka.bootstrap.servers", log_server.address)
            .option("subscribe", topic)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", 6)
            .load()
        )
        writer = stream.writeStream.queryName("behind").format("noop")
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        seen = _wait_until(lambda: _lag_of(told, "behind") == 0 and _scraped(port))
        query.stop()
    finally:
        spark.streams.removeListener(listener)
    lags = [sum(lag.records for lag in found) for name, found in told if name == "behind"]
    assert lags[0] > 0, "the first batch left something"
    assert f'tidelog_query_lag_records{{partition="0",query="behind",topic="{topic}"}} 0.0' in seen
    found = read_positions(tmp_path)
    assert found == {"checkpoint": {TopicPartition(topic, 0): 10, TopicPartition(topic, 1): 5}}


def _lag_of(told: list[tuple[str, list[Lag]]], name: str) -> int | None:
    found = [lags for query, lags in told if query == name]
    return sum(lag.records for lag in found[-1]) if found else None


def _scraped(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        content: bytes = answer.read()
    return content.decode()


def _wait_until(holds: Any) -> Any:
    deadline = time.monotonic() + SECONDS_MAX
    while not (found := holds()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found


def test_checkpoints_of_other_sources_are_passed_over(tmp_path: Path) -> None:
    for name, lines in {
        "files": ["v1", "{}", '{"logOffset":0}'],
        "both": ["v1", "{}", '{"logOffset":0}', _offsets("t", 7)],
        "nothing": ["v1", "{}", "-"],
    }.items():
        for kind in ("offsets", "commits"):
            (tmp_path / name / kind).mkdir(parents=True)
            (tmp_path / name / kind / "0").write_text("\n".join(lines))
        (tmp_path / name / "offsets" / "1").write_text("planned, not done")
    assert read_positions(tmp_path) == {"both": {TopicPartition("t", 0): 7}}


def test_of_a_flow_that_was_begun_anew_the_last_checkpoint_counts(tmp_path: Path) -> None:
    """P5: after `--full-refresh` the former one stays where it is, and would seem more and more
    behind; flows have a folder each, with a number for each time."""
    for name, end in {"flow/9": 3, "flow/10": 7, "other/0": 5}.items():
        for kind in ("offsets", "commits"):
            (tmp_path / name / kind).mkdir(parents=True)
            (tmp_path / name / kind / "0").write_text("\n".join(["v1", "{}", _offsets("t", end)]))
    place = TopicPartition("t", 0)
    assert read_positions(tmp_path) == {"flow/10": {place: 7}, "other/0": {place: 5}}


def _offsets(topic: str, *to: int) -> str:
    partitions = {str(index): offset for index, offset in enumerate(to)}
    place = {topic: {"id": None, "partitions": partitions}}
    return json.dumps({"version": 1, "from": place, "to": place, "tasks": {}})
