"""`tidelog pipeline run --every`: run after run at one server, which is started again if it dies
(P5).
"""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from support.cluster_processes import wait_until
from support.new_topics import NewTopicMaker
from support.servers import Server
from support.topic_rows import by_confluent
from tidelog.cli.pipeline_project import find_project, make_project
from tidelog.cli.pipeline_run import connect

TIDELOG = str(Path(sys.executable).with_name("tidelog"))
TOPICS = ("loop", "loop.clean")
SECONDS_MAX = 240
LOOK_SECONDS = 0.5
COPY = """
from pyspark import pipelines as dp

BROKERS = {"kafka.bootstrap.servers": spark.conf.get("pipeline.bootstrap")}
TOPIC = spark.conf.get("pipeline.topic")
dp.create_sink("copied", "tidelog", {**BROKERS, "topic": f"{TOPIC}.clean"})


@dp.append_flow(target="copied", name="copy")
def copy():
    reader = spark.readStream.format("tidelog").options(**BROKERS, subscribe=TOPIC)
    return reader.option("startingOffsets", "earliest").load().select("value")
"""


@pytest.fixture
def project(log_server: Server, new_topic: NewTopicMaker, tmp_path: Path) -> Iterator[Path]:
    """With one flow, from topic to topic."""
    for topic in TOPICS:
        new_topic.again(topic)
    folder = tmp_path / "shop"
    make_project(folder, topic="loop", bootstrap=log_server.address)
    (folder / "transformations" / "records.py").write_text(COPY)
    with (folder / "conf" / "spark-defaults.conf").open("a") as settings:
        settings.write('spark.driver.defaultJavaOptions "-XX:TieredStopAtLevel=1"\n')
    yield folder
    for topic in TOPICS:
        new_topic.delete(topic)


@pytest.fixture
def loop(project: Path) -> Iterator[subprocess.Popen[bytes]]:
    with (project / "said").open("wb") as said:
        process = subprocess.Popen(
            [TIDELOG, "pipeline", "run", str(project), "--every", "1s"], stdout=said, stderr=said
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def produce(server: Server, value: bytes) -> None:
    producer = Producer({"bootstrap.servers": server.address})
    producer.produce("loop", value)
    assert producer.flush(60) == 0


def server_of(process_id: int) -> int:
    """The one that this process has started."""
    tasks = Path(f"/proc/{process_id}/task").glob("*/children")
    children = [child for task in tasks for child in task.read_text().split()]
    (found,) = [one for one in children if "SparkConnectServer" in _command_of(one)]
    return int(found)


def _command_of(process_id: str) -> str:
    return Path(f"/proc/{process_id}/cmdline").read_text()


def test_a_server_that_has_died_is_started_again(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also while nobody asks for it, since a run may be waiting for its answer; and runs leave in
    the environment which server they are at."""
    monkeypatch.setenv("SPARK_REMOTE", "sc://127.0.0.1:1")
    with connect(find_project(project), None, None) as server:
        host, _, port = server().removeprefix("sc://").partition(":")
        first = server_of(os.getpid())
        os.killpg(first, signal.SIGKILL)

        def answers() -> bool:
            with suppress(OSError):
                socket.create_connection((host, int(port)), 1).close()
                return True
            return False

        wait_until(lambda: (project / "spark.log.old").exists(), "it is seen to be dead")
        wait_until(answers, "there is another one", SECONDS_MAX)
        assert server() == f"sc://{host}:{port}"
        assert server_of(os.getpid()) != first


@pytest.mark.timeout(900)
@pytest.mark.usefixtures("only_long")
def test_what_arrives_is_taken_in_run_after_run_and_by_a_server_that_was_started_again(
    log_server: Server, project: Path, loop: subprocess.Popen[bytes]
) -> None:
    def told() -> str:
        return (project / "said").read_text()

    def is_copied(*values: bytes) -> Any:
        time.sleep(LOOK_SECONDS)
        assert loop.poll() is None, told()
        return [row.value for row in by_confluent(log_server.address, "loop.clean")] == [*values]

    produce(log_server, b"first")
    wait_until(lambda: is_copied(b"first"), "the first run", SECONDS_MAX)
    produce(log_server, b"second")
    wait_until(lambda: is_copied(b"first", b"second"), "a later run", SECONDS_MAX)
    runs = told().count("pipeline shop: done in")
    wait_until(lambda: told().count("pipeline shop: done in") > runs, "a run ends", SECONDS_MAX)
    os.killpg(server_of(loop.pid), signal.SIGKILL)
    produce(log_server, b"third")
    copied = (b"first", b"second", b"third")
    wait_until(lambda: is_copied(*copied), "a run at the next server", SECONDS_MAX)
    assert "Spark has ended, and is started again" in told()
    assert (project / "spark.log.old").exists()
    loop.send_signal(signal.SIGINT)
    assert loop.wait(60) == 130
