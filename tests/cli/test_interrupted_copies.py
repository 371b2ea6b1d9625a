"""Ctrl-C while dead letters are written back: how to go on is said, and going on so writes each of
them once (P6).
"""

import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Producer

from support.new_topics import NewTopicMaker
from support.servers import TidelogServer
from support.topic_rows import by_confluent
from tidelog.client.client import Client
from tidelog.client.offsets import LATEST, list_offsets
from tidelog.spark import dead_letter_format as names

TIDELOG: Final = str(Path(sys.executable).with_name("tidelog"))
LETTERS: Final = 150_000
"""So many that they are read and written in many steps."""
SECONDS_MAX: Final = 60


@pytest.fixture
def server(tmp_path: Path) -> Iterator[TidelogServer]:
    """One that a test may hold up."""
    made = TidelogServer(tmp_path, {})
    try:
        made.start()
        yield made
    finally:
        made.close()


def start(server: TidelogServer, *arguments: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [TIDELOG, *arguments, "-b", server.address],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def end_of(client: Client, topic: str) -> int:
    return list_offsets(client, topic, {0: LATEST})[0]


def stop_in_the_middle(redrive: "subprocess.Popen[str]", client: Client) -> None:
    """As soon as something is written: looked for without a pause, as all is written soon."""
    deadline = time.monotonic() + SECONDS_MAX
    while not end_of(client, "orders"):
        assert time.monotonic() < deadline, "some are written"
    redrive.send_signal(signal.SIGSTOP)
    assert end_of(client, "orders") < LETTERS


def bury(server: TidelogServer) -> None:
    """In two partitions of `orders.dlq`, each with its number as its key."""
    new_topic = NewTopicMaker(server.address)
    new_topic.again("orders")
    new_topic.again("orders.dlq", 2)
    origin = [(names.TOPIC, b"orders"), (names.PARTITION, b"0"), (names.REASON, b"bad")]
    producer = Producer({"bootstrap.servers": server.address, "linger.ms": 50})
    for number in range(LETTERS):
        place = {"partition": number % 2, "headers": origin}
        producer.produce("orders.dlq", b"v" * 400, b"%d" % number, **place)
        producer.poll(0)
    assert producer.flush(60) == 0


def test_an_interrupted_redrive_says_how_to_go_on_and_that_writes_each_once(
    server: TidelogServer,
) -> None:
    bury(server)
    client = Client(server.address)
    with start(server, "dlq", "redrive", "orders", "--execute") as redrive:
        stop_in_the_middle(redrive, client)
        redrive.send_signal(signal.SIGINT)
        redrive.send_signal(signal.SIGCONT)
        _, said = redrive.communicate(timeout=SECONDS_MAX)
    assert redrive.returncode == 130, said
    told = "tidelog: interrupted: for the rest, and no more than that, do the same with "
    assert said.startswith(told + "--from ")
    assert 0 < end_of(client, "orders") < LETTERS
    client.close()
    rest = shlex.split(said.removeprefix(told))
    with start(server, "dlq", "redrive", "orders", "--execute", *rest) as second:
        assert second.communicate(timeout=SECONDS_MAX)[1] == ""
    assert second.returncode == 0
    written = [int(row.key or b"") for row in by_confluent(server.address, "orders")]
    assert sorted(written) == list(range(LETTERS))
