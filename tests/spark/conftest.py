"""One Spark session for all tests here; a second one only where another worker takes over the last
of them, and where drivers are killed.

What takes long is left out. The long form, with every kill of `test_crashes*.py`, is

    pytest tests/spark --long --timeout 0
"""

import os
from collections.abc import Iterator
from typing import Any

import pytest

from support.cluster_processes import QUICK, SAFE, Cluster, new_zookeeper
from support.new_topics import NewTopicMaker
from support.servers import Server, new_server
from support.zookeepers import require_zookeeper
from tidelog.spark.worker_python import worker_variables

QUICK_TO_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For a JVM that is not long at work: it took half the processor time with these."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="every kill, and whatever takes long")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--long", False):
        left_out = [item for item in items if "only_long" in _fixtures(item)]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


def _fixtures(item: pytest.Item) -> list[str]:
    return list(getattr(item, "fixturenames", ()))


@pytest.fixture
def only_long() -> None:
    """A test that uses this is part of the long form only."""


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from pyspark.sql import SparkSession

    os.environ.update(worker_variables())
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    session = (
        SparkSession.builder.master("local[2]")
        .appName("tests")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.extraJavaOptions", QUICK_TO_START)
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
        .getOrCreate()
    )
    yield session
    session.stop()


@pytest.fixture(scope="session")
def log_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A broker that compacts at once and keeps records of any age; topics stay, so each test makes
    its own."""
    settings = {"log.cleaner.backoff.ms": "100", "log.retention.ms": "-1"}
    server = new_server(tmp_path_factory.mktemp("logs"), settings)
    try:
        server.start()
        yield server
    finally:
        server.close()


@pytest.fixture(scope="session")
def new_topic(log_server: Server) -> NewTopicMaker:
    return NewTopicMaker(log_server.address)


@pytest.fixture(scope="session")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three of them. Who kills one heals the cluster."""
    require_zookeeper()
    folder = tmp_path_factory.mktemp("brokers")
    zookeeper = new_zookeeper(folder / "zookeeper")
    made = Cluster(folder, zookeeper, QUICK | SAFE)
    try:
        made.start()
        yield made
    finally:
        made.close()
        zookeeper.kill()
