"""Topics on a real Spark cluster, a master and two workers: executors find the source by themselves
(P1, P5, trap 21).
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import Producer

from clients.confluent import send
from clients.samples import Sample
from support.new_topics import NewTopicMaker
from support.servers import ROOT, Server
from support.spark_cluster import SparkCluster
from support.standalone_driver import READS
from support.topic_rows import by_confluent
from tidelog.cli.connect_server import ConnectServer

RECORDS: Final = 2000
TIDELOG: Final = str(Path(sys.executable).with_name("tidelog"))


@pytest.fixture(scope="module")
def spark_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    with SparkCluster(tmp_path_factory.mktemp("spark")) as cluster:
        yield cluster


def run(*command: str) -> str:
    """What it printed."""
    environment = {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-3000:]
    return done.stdout


@pytest.mark.usefixtures("only_long")
def test_executors_find_the_source_and_the_sink(
    spark_cluster: SparkCluster, log_server: Server, new_topic: NewTopicMaker, tmp_path: Path
) -> None:
    """P1: a batch, a stream, and a sink."""
    topic, target = new_topic(2), new_topic(2)
    samples = [Sample(key=b"%d" % number, value=b"x") for number in range(RECORDS)]
    send(Producer({"bootstrap.servers": log_server.address}), topic, samples)
    program = str(ROOT / "tests" / "support" / "standalone_driver.py")
    places = (spark_cluster.master, log_server.address, topic, target, str(tmp_path))
    found = json.loads(run(sys.executable, program, *places).splitlines()[-1])
    assert (found["batch"], found["stream"], found["driver"]) == (RECORDS, RECORDS, False)
    written = by_confluent(log_server.address, target, 2)
    assert sorted(row.key or b"" for row in written) == sorted(one.key or b"" for one in samples)
    for work_dir in spark_cluster.work_dirs:
        imported = "".join(path.read_text() for path in work_dir.rglob("stderr"))
        assert READS in imported, f"an executor in {work_dir} has read"


@pytest.fixture
def shop(log_server: Server, new_topic: NewTopicMaker, tmp_path: Path) -> Path:
    """A fresh project, and the topics that it needs."""
    for topic in ("shop-orders", "shop-orders.clean", "shop-orders.dlq"):
        new_topic.again(topic)
    folder = tmp_path / "shop"
    place = ("--topic", "shop-orders", "-b", log_server.address)
    run(TIDELOG, "pipeline", "init", str(folder), *place)
    return folder


def order(server: Server, numbers: range) -> None:
    """And something that is none."""
    orders = [{"order_id": n, "customer": f"c{n}", "amount": 1.5} for n in numbers]
    values = [json.dumps(one).encode() for one in orders] + [b"poison"]
    producer = Producer({"bootstrap.servers": server.address})
    send(producer, "shop-orders", [Sample(key=None, value=value) for value in values])


def published(server: Server) -> list[int]:
    rows = by_confluent(server.address, "shop-orders.clean")
    return sorted(json.loads(row.value or b"")["order_id"] for row in rows)


TRAP: Final = """
from pyspark import pipelines as dp
from pyspark.sql import functions as sql

@dp.table
def first():
    return spark.readStream.format("rate").load()

@dp.table
def second():
    return spark.readStream.table("first"){chosen}
"""


@pytest.mark.usefixtures("only_long")
def test_a_pipeline_runs_on_a_master_and_at_a_connect_server(
    spark_cluster: SparkCluster, log_server: Server, shop: Path
) -> None:
    """P5: the same project, unchanged, goes on from one to the other."""
    order(log_server, range(50))
    said = run(TIDELOG, "pipeline", "run", str(shop), "--master", spark_cluster.master)
    assert "pipeline shop: done in" in said
    assert published(log_server) == list(range(50))
    order(log_server, range(50, 70))
    with ConnectServer(shop, spark_cluster.master, shop / "again.log") as server:
        said = run(TIDELOG, "pipeline", "run", str(shop), "--remote", server.address)
        assert "pipeline shop: done in" in said
        assert published(log_server) == list(range(70))
        assert len(by_confluent(log_server.address, "shop-orders.dlq")) == 2
        check_trap_of_columns(server.address, shop)


def check_trap_of_columns(address: str, folder: Path) -> None:
    """SPARK-57352: `withColumn` and `drop` have a Connect server look at the plan at once, so that
    a flow does not wait for the table it reads."""
    (folder / "spark-pipeline.yml").unlink()
    for path in (folder / "transformations").glob("*.py"):
        path.unlink()
    made = {"name": "trap", "storage": f"file://{folder}/trap"}
    libraries: dict[str, Any] = {"libraries": [{"glob": {"include": "transformations/**"}}]}
    (folder / "spark-pipeline.yml").write_text(json.dumps({**made, **libraries}))
    outcomes = {}
    for chosen in ('.select("*", sql.lit(1).alias("x"))', '.withColumn("x", sql.lit(1)).drop("x")'):
        (folder / "transformations" / "flows.py").write_text(TRAP.format(chosen=chosen))
        command = ("-m", "pyspark.pipelines.cli", "dry-run")
        done = subprocess.run(
            [sys.executable, *command, "--spec", str(folder / "spark-pipeline.yml")],
            env={**os.environ, "SPARK_REMOTE": address},
            capture_output=True,
            text=True,
            check=False,
        )
        outcomes[chosen] = (done.returncode, "TABLE_OR_VIEW_NOT_FOUND" in done.stderr)
    assert list(outcomes.values()) == [(0, False), (1, True)], outcomes
