"""kcat, as Debian has it: its librdkafka is older than 2.3, speaks older versions of the protocol,
and stores gzip, snappy and lz4 uncompressed without a word if a broker does not look to it like one
that has always known them. R1, R3, A1 as one node can show them."""

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from clients.confluent import read, samples, send
from clients.conftest import MakeTopic
from clients.samples import BIG, CODECS, KEYS, TIME, Sample, stored_batches, stored_codecs
from support.servers import Server
from tidelog.records.murmur2 import partition_for

Kcat = Callable[..., subprocess.CompletedProcess[bytes]]
COUNT = 300
LINES = b"".join(b"key-%d:value-%d %s\n" % (n % 7, n, b"x" * 200) for n in range(COUNT))


@pytest.fixture
def run(kcat: str, bootstrap: str) -> Kcat:
    """`run(*arguments, given=b"...")` runs kcat against the broker."""

    def run_kcat(*arguments: str, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        command = [kcat, "-b", bootstrap, *arguments]
        return subprocess.run(command, input=given, capture_output=True, timeout=60, check=False)

    return run_kcat


def output(done: subprocess.CompletedProcess[bytes]) -> bytes:
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def messages(run: Kcat, topic: str, *arguments: str) -> list[dict[str, Any]]:
    """Everything in the topic from the beginning, or from where the arguments say."""
    start = () if "-o" in arguments else ("-o", "beginning")
    lines = output(run("-C", "-t", topic, "-e", "-q", "-J", *start, *arguments)).splitlines()
    return [json.loads(line) for line in lines]


def pairs(found: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(message["key"], message["payload"]) for message in found]


SENT = [tuple(line.decode().split(":")) for line in LINES.splitlines()]


def test_kcat_has_a_librdkafka_older_than_two_three(kcat: str) -> None:
    """Otherwise the test below proves nothing."""
    shown = subprocess.run([kcat, "-V"], capture_output=True, text=True, check=True).stdout
    version = re.search(r"librdkafka (\d+)\.(\d+)", shown)
    assert version is not None
    assert (int(version[1]), int(version[2])) < (2, 3)


@pytest.mark.parametrize("codec", CODECS)
def test_kcat_batches_are_stored_in_the_codec_they_were_asked_for(
    broker: Server, run: Kcat, make_topic: MakeTopic, codec: str
) -> None:
    topic = make_topic()
    output(run("-P", "-t", topic, "-K", ":", "-z", codec, "-X", "linger.ms=100", given=LINES))
    assert stored_codecs(broker.log_dir, topic) == {CODECS[codec]}
    assert pairs(messages(run, topic)) == SENT
    newer = samples(read(broker.address, topic, COUNT))
    assert [(record.key, record.value) for record in newer] == [
        (key.encode(), value.encode()) for key, value in SENT
    ]


@pytest.mark.parametrize("codec", CODECS)
def test_kcat_reads_what_a_newer_client_compressed(
    bootstrap: str, run: Kcat, make_topic: MakeTopic, codec: str
) -> None:
    topic = make_topic()
    writer = Producer({"bootstrap.servers": bootstrap, "compression.type": codec})
    send(writer, topic, [Sample(key=b"%d" % n, value=b"v" * n) for n in range(COUNT)])
    assert pairs(messages(run, topic)) == [(str(n), "v" * n) for n in range(COUNT)]


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_kcat_records_are_there_whatever_acks_it_asks_for(
    run: Kcat, make_topic: MakeTopic, acks: str
) -> None:
    """A1"""
    topic = make_topic()
    output(run("-P", "-t", topic, "-K", ":", "-X", f"acks={acks}", given=LINES))
    assert pairs(messages(run, topic)) == SENT


def test_kcat_idempotent_producer_has_a_producer_id(
    broker: Server, run: Kcat, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    output(run("-P", "-t", topic, "-K", ":", "-X", "enable.idempotence=true", given=LINES))
    batches = stored_batches(broker.log_dir, topic)
    assert all(batch.producer_id >= 0 for batch in batches)
    assert [batch.base_sequence for batch in batches] == [batch.base_offset for batch in batches]


def test_kcat_headers_nulls_and_other_scripts_come_back(run: Kcat, make_topic: MakeTopic) -> None:
    topic = make_topic()
    headers = ("-H", "a=1", "-H", "a=2", "-H", "none", "-H", "ž=値")
    given = "ключ:値 🌊\n:no key\nno value:\n".encode()
    output(run("-P", "-t", topic, "-K", ":", "-Z", *headers, given=given))
    found = messages(run, topic)
    assert pairs(found) == [("ключ", "値 🌊"), (None, "no key"), ("no value", None)]
    for message in found:
        assert message["headers"] == ["a", "1", "a", "2", "none", None, "ž", "値"]


def test_kcat_keys_go_to_the_partition_java_would_choose(run: Kcat, make_topic: MakeTopic) -> None:
    topic = make_topic(partitions=7)
    keys = [key.decode() for key in KEYS if key.isalnum()]
    given = "".join(f"{key}:{key}\n" for key in keys).encode()
    output(run("-P", "-t", topic, "-K", ":", "-X", "partitioner=murmur2", given=given))
    found = {message["key"]: message["partition"] for message in messages(run, topic)}
    assert found == {key: partition_for(key.encode(), 7) for key in keys}


def test_kcat_record_of_ten_megabytes_is_taken_where_the_topic_allows_it(
    run: Kcat, big_topic: str, tmp_path: Path
) -> None:
    file = tmp_path / "big"
    file.write_bytes(b"x" * BIG)
    limit = ("-X", f"message.max.bytes={2 * BIG}")
    output(run("-P", "-t", big_topic, *limit, str(file)))
    assert output(run("-C", "-t", big_topic, "-e", "-q", "-D", "", *limit)) == file.read_bytes()


def test_kcat_record_larger_than_the_topic_allows_is_refused(
    run: Kcat, make_topic: MakeTopic, tmp_path: Path
) -> None:
    file = tmp_path / "big"
    file.write_bytes(b"x" * 1_100_000)
    refused = run("-P", "-t", make_topic(), "-X", f"message.max.bytes={2 * BIG}", str(file))
    assert refused.returncode != 0
    assert b"Broker: Message size too large" in refused.stderr


@pytest.fixture
def numbered(bootstrap: str, make_topic: MakeTopic) -> str:
    """A topic with COUNT records in many batches, a minute apart."""
    topic = make_topic()
    writer = Producer({"bootstrap.servers": bootstrap, "batch.num.messages": 10, "linger.ms": 5})
    for n in range(COUNT):
        writer.produce(topic, value=b"%d" % n, timestamp=TIME + 60_000 * n)
    assert writer.flush(60) == 0
    return topic


@pytest.mark.parametrize(
    ("start", "first", "count"),
    [
        ("beginning", 0, COUNT),
        ("17", 17, COUNT - 17),
        ("-3", COUNT - 3, 3),
        (f"s@{TIME + 60_000 * 100 - 1}", 100, COUNT - 100),
    ],
)
def test_kcat_reads_from_where_it_is_told(
    run: Kcat, numbered: str, start: str, first: int, count: int
) -> None:
    found = messages(run, numbered, "-o", start)
    assert [message["offset"] for message in found] == list(range(first, first + count))
    assert [message["ts"] for message in found[:1]] == [TIME + 60_000 * first]


def test_kcat_reads_between_two_times(run: Kcat, numbered: str) -> None:
    start, end = f"s@{TIME + 60_000 * 100}", f"e@{TIME + 60_000 * 110}"
    found = messages(run, numbered, "-p", "0", "-o", start, "-o", end)
    assert [message["offset"] for message in found] == list(range(100, 110))


def test_kcat_reads_with_tiny_fetches(run: Kcat, numbered: str) -> None:
    sizes = ("fetch.message.max.bytes=300", "fetch.max.bytes=1000", "message.max.bytes=1000")
    found = messages(run, numbered, *(part for size in sizes for part in ("-X", size)))
    assert [message["offset"] for message in found] == list(range(COUNT))


@pytest.mark.parametrize(
    ("at", "offset"), [(0, 0), (TIME + 60_001, 2), (TIME + 60_000 * COUNT, -1), (-1, COUNT)]
)
def test_kcat_looks_up_offsets_by_time(run: Kcat, numbered: str, at: int, offset: int) -> None:
    shown = output(run("-Q", "-t", f"{numbered}:0:{at}")).decode()
    assert f"{numbered} [0] offset {offset}" in shown


def test_kcat_lists_brokers_topics_and_partitions(
    broker: Server, run: Kcat, make_topic: MakeTopic
) -> None:
    topic = make_topic(partitions=3)
    everything = json.loads(output(run("-L", "-J")))
    (node,) = everything["brokers"]
    assert node["name"] == broker.address
    assert everything["controllerid"] == node["id"]
    assert topic in {found["topic"] for found in everything["topics"]}
    (one,) = json.loads(output(run("-L", "-J", "-t", topic)))["topics"]
    assert sorted(found["partition"] for found in one["partitions"]) == [0, 1, 2]
    assert {found["leader"] for found in one["partitions"]} == {node["id"]}


def test_kcat_producer_makes_the_topic_it_writes_to(
    run: Kcat, unused_name: Callable[[], str]
) -> None:
    """T6"""
    topic = unused_name()
    output(run("-P", "-t", topic, "-K", ":", given=LINES))
    assert pairs(messages(run, topic)) == SENT


def test_kcat_reader_of_an_unknown_topic_is_told(run: Kcat, unused_name: Callable[[], str]) -> None:
    """And does not make it."""
    topic = unused_name()
    refused = run("-C", "-t", topic, "-e")
    assert refused.returncode != 0
    assert b"Broker: Unknown topic or partition" in refused.stderr
    names = {found["topic"] for found in json.loads(output(run("-L", "-J")))["topics"]}
    assert topic not in names


def test_kcat_producer_is_refused_an_invalid_topic_name(run: Kcat) -> None:
    """What it says depends on whether it has asked for the topic when it comes to the record."""
    refused = run("-P", "-t", "slash/ed", given=b"value\n")
    assert refused.returncode != 0
    words = (b"Broker: Invalid topic", b"Failed to produce message (5 bytes): Local: Unknown topic")
    assert any(said in refused.stderr for said in words), refused.stderr
