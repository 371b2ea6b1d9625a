"""Topics on a real Spark cluster, a master and two workers: executors find the source by themselves
(P1, P5, trap 21).
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from clients.confluent import send
from clients.samples import Sample
from support.new_topics import NewTopicMaker
from support.servers import ROOT, Server
from support.spark_cluster import SparkCluster
from support.topic_rows import by_confluent

RECORDS = 2000


@pytest.fixture(scope="module")
def spark_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    with SparkCluster(tmp_path_factory.mktemp("spark")) as cluster:
        yield cluster


def test_executors_find_the_source_and_the_sink(
    spark_cluster: SparkCluster, log_server: Server, new_topic: NewTopicMaker, tmp_path: Path
) -> None:
    """P1: a batch, a stream, and a sink."""
    topic, target = new_topic(2), new_topic(2)
    samples = [Sample(key=b"%d" % number, value=b"x") for number in range(RECORDS)]
    send(Producer({"bootstrap.servers": log_server.address}), topic, samples)
    program = ROOT / "tests" / "support" / "standalone_driver.py"
    places = (spark_cluster.master, log_server.address, topic, target, str(tmp_path))
    done = subprocess.run(
        [sys.executable, str(program), *places],
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert (found["batch"], found["stream"], found["driver"]) == (RECORDS, RECORDS, False)
    written = by_confluent(log_server.address, target, 2)
    assert sorted(row.key or b"" for row in written) == sorted(one.key or b"" for one in samples)
    folders = [Path(folder) for folder in found["executors"]]
    for work_dir in spark_cluster.work_dirs:
        assert any(work_dir in folder.parents for folder in folders), "an executor of each worker"
