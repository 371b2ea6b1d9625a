"""Spark in a process that nobody has prepared: which Python it takes decides whether it finds the
source (P1, trap 21).
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from support.cluster_processes import wait_until
from support.new_topics import NewTopicMaker
from support.servers import Server
from support.topic_rows import by_confluent
from tidelog.cli.pipeline_project import make_project

LOOK_SECONDS = 0.5
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
READ = """
from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[1]").getOrCreate()
spark.read.format("tidelog").load()
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Only what every login has: the system's `python3`, which has none of our packages."""
    java = shutil.which("java")
    assert java is not None, "Spark needs it"
    path = tmp_path / "bin"
    path.mkdir()
    (path / "python3").symlink_to(Path(sys.base_prefix) / "bin" / "python3")
    set_up = {name: os.environ[name] for name in ("HOME", "JAVA_HOME") if name in os.environ}
    where = f"{path}:{Path(java).parent}:/usr/bin:/bin"
    return {**set_up, "PATH": where, "JDK_JAVA_OPTIONS": QUICK, "SPARK_LOCAL_IP": "127.0.0.1"}


def test_trap_21_a_python_without_the_package_finds_no_data_source(
    environment: dict[str, str],
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", READ], env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 1
    assert "[DATA_SOURCE_NOT_FOUND]" in done.stderr


@pytest.fixture
def project(log_server: Server, new_topic: NewTopicMaker, tmp_path: Path) -> Path:
    for topic in ("fresh", "fresh.fast", "fresh.dlq"):
        new_topic.again(topic)
    make_project(tmp_path / "shop", topic="fresh", bootstrap=log_server.address)
    return tmp_path / "shop"


@pytest.fixture
def query(project: Path, environment: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """The project's plain streaming query, as its README says."""
    with (project / "query.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "low_latency.py"],
            cwd=project,
            env=environment,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def test_the_streaming_query_of_a_project_runs_as_it_is(
    log_server: Server, project: Path, query: subprocess.Popen[bytes]
) -> None:
    """P5: no environment was activated, and nothing was set."""
    producer = Producer({"bootstrap.servers": log_server.address})
    orders = [{"order_id": number, "customer": "ada", "amount": 1.5} for number in range(3)]
    for value in (*map(json.dumps, orders), "this is no order"):
        producer.produce("fresh", value)
    assert producer.flush(60) == 0

    def is_done() -> bool:
        time.sleep(LOOK_SECONDS)
        said = (project / "query.log").read_text()
        assert query.poll() is None, said[-3000:]
        return len(by_confluent(log_server.address, "fresh.fast")) == len(orders)

    wait_until(is_done, "all orders are published", 120)
    found = [json.loads(row.value or b"") for row in by_confluent(log_server.address, "fresh.fast")]
    assert found == orders
