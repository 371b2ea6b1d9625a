"""What the tests of real clients share: a broker process per test worker, topics on it, and other
runtimes' clients (`kcat`, Node), which are skipped where they are not installed unless
`TIDELOG_REQUIRE_CLIENTS` says that they must be (`.ci/install-clients` installs them).
"""

import itertools
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from clients.kafkajs import MODULES, Kafkajs
from clients.samples import BIG
from clients.settling import settled
from support.requirements import leave_out
from support.servers import Server, new_server

MakeTopic = Callable[..., str]


KEEPING = {"log.retention.check.interval.ms": "86400000"}
"""Samples are of another year, and stay for as long as the tests run."""


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = new_server(tmp_path_factory.mktemp("broker"), KEEPING)
    try:
        server.start()
        yield server
    finally:
        server.close()


GROUP_SETTINGS = {
    **KEEPING,
    "group.initial.rebalance.delay.ms": "200",
    "group.min.session.timeout.ms": "1000",
}
"""Groups settle sooner, and members that die are missed sooner."""


@pytest.fixture(scope="session")
def group_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = new_server(tmp_path_factory.mktemp("groups"), GROUP_SETTINGS)
    try:
        server.start()
        yield server
    finally:
        server.close()


@pytest.fixture
def own_group_broker(tmp_path: Path) -> Iterator[Server]:
    """One that the test may stop and kill; started."""
    server = new_server(tmp_path / "own", GROUP_SETTINGS)
    try:
        server.start()
        yield server
    finally:
        server.close()


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[Server]:
    """One that the test may stop and kill; not started yet."""
    server = new_server(tmp_path / "own", {})
    try:
        yield server
    finally:
        server.close()


@pytest.fixture(scope="session")
def bootstrap(broker: Server) -> str:
    return broker.address


@pytest.fixture(scope="session")
def admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap})


@pytest.fixture(scope="session")
def unused_name() -> Callable[[], str]:
    numbers = itertools.count()
    return lambda: f"topic-{next(numbers)}"


@pytest.fixture(scope="session")
def make_topic(admin: AdminClient, unused_name: Callable[[], str]) -> MakeTopic:
    """`make_topic(partitions=1, config={...})` makes a topic that no other test uses."""

    def make(partitions: int = 1, config: dict[str, str] | None = None) -> str:
        name = unused_name()
        (made,) = admin.create_topics([NewTopic(name, partitions, 1, config=config or {})]).values()
        made.result(60)
        assert settled(lambda: name in admin.list_topics(timeout=60).topics)
        return name

    return make


@pytest.fixture
def big_topic(make_topic: MakeTopic) -> str:
    """A topic that takes records of 10 MB."""
    return make_topic(config={"max.message.bytes": str(BIG + 4096)})


@pytest.fixture(scope="session")
def kcat() -> str:
    found = shutil.which("kcat")
    return found or missing("kcat is not installed")


@pytest.fixture
def kafkajs(bootstrap: str) -> Iterator[Kafkajs]:
    yield from _kafkajs(bootstrap)


@pytest.fixture
def group_kafkajs(group_broker: Server) -> Iterator[Kafkajs]:
    yield from _kafkajs(group_broker.address)


def _kafkajs(bootstrap: str) -> Iterator[Kafkajs]:
    node = shutil.which("node") or missing("Node is not installed")
    if not (MODULES / "kafkajs").is_dir():
        missing(f"kafkajs is not installed in {MODULES}")
    client = Kafkajs(node, bootstrap)
    try:
        yield client
    finally:
        client.close()


def missing(reason: str) -> NoReturn:
    leave_out(f"{reason}: see .ci/install-clients")
