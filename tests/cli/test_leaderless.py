"""`tidelog consume` of a partition that nobody leads: it says so, and waits, or ends (H5)."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from support.servers import TidelogServer
from support.wire_client import wait_until

TIDELOG = str(Path(sys.executable).with_name("tidelog"))
TELLS = "tidelog: events: nobody leads partition 1: waiting for a leader (Ctrl-C ends)\n"


def produce(server: TidelogServer, partition: int, value: str) -> None:
    producer = Producer({"bootstrap.servers": server.address})
    producer.produce("events", value, partition=partition)
    assert producer.flush(60) == 0


@pytest.fixture
def server(tmp_path: Path) -> Iterator[TidelogServer]:
    """One of its two log dirs has failed, and with it the second partition."""
    dirs = [tmp_path / "first", tmp_path / "second"]
    settings = {
        "log.dirs": ",".join(map(str, dirs)),
        "num.partitions": "2",
        "replica.high.watermark.checkpoint.interval.ms": "50",
    }
    server = TidelogServer(tmp_path, settings)
    server.start()
    try:
        for partition in (0, 1):
            produce(server, partition, "before")
        (home,) = (one for one in dirs if (one / "events-1").exists())
        home.rename(tmp_path / "gone")
        producer = Producer({"bootstrap.servers": server.address})
        producer.produce("events", "may have nowhere to go", partition=1)
        assert wait_until(lambda: "offline partition=events-1" in server.output.read_text())
        producer.purge()
        yield server
    finally:
        server.close()


def consume(server: TidelogServer, *options: str) -> "subprocess.Popen[str]":
    command = [TIDELOG, "consume", "events", "--bootstrap-server", server.address, *options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_one_who_follows_is_told_and_reads_on_when_there_is_a_leader(
    server: TidelogServer,
) -> None:
    with consume(server, "--partition", "1", "--from-beginning", "--max-messages", "1") as process:
        try:
            assert process.stderr is not None
            assert process.stderr.readline() == TELLS
            assert process.poll() is None
            server.stop()
            server.start()
            produce(server, 1, "after")
            out, err = process.communicate(timeout=120)
        finally:
            process.kill()
    assert (process.returncode, out, err) == (0, "after\n", "")


def test_one_who_waits_only_so_long_ends_with_why(server: TidelogServer) -> None:
    with consume(server, "--timeout-ms", "100") as process:
        out, err = process.communicate(timeout=120)
    assert (process.returncode, out) == (1, "")
    assert err == "tidelog: LEADER_NOT_AVAILABLE: events: nobody leads partition 1\n"
