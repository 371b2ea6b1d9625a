"""One cluster of real processes for all tests of this folder, and a stage for each fault.

Each line that `tell` is given is shown at once, also by a test that passes. The long form is

    pytest tests/cluster/test_random_faults.py --rounds 50 --timeout 0

which draws faults from a seed, two at a time, over and over.
"""

import fcntl
import sys
from collections.abc import Callable, Iterator
from itertools import count
from random import SystemRandom
from typing import Any

import pytest

from support.cluster_processes import QUICK, SAFE, Cluster, new_zookeeper
from support.cluster_stage import Stage
from support.disk_faults import FailingDisk, SmallDisk
from support.link_proxy import Rule
from support.power_loss import Machine
from support.zookeepers import require_zookeeper

SMALL_DISK_MEGABYTES = 256
BROKERS = (1, 2, 3)
FAILING_BROKER = 3
SEEDS = 1 << 32
DISTANCE_S = 0.01
"""Each way: so there is always something under way when a fault strikes. Records that are
acknowledged before they are replicated would be lost to it."""

Tell = Callable[[str], None]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rounds", type=int, default=1, help="rounds of random faults")
    parser.addoption("--seed", type=int, help="what random faults are drawn from")


@pytest.fixture(autouse=True)
def alone(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[None]:
    """Where workers share the tests of this folder after all, they take turns."""
    is_worker = hasattr(request.config, "workerinput")
    folder = tmp_path_factory.getbasetemp()
    with ((folder.parent if is_worker else folder) / "cluster.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@pytest.fixture
def tell(capfd: pytest.CaptureFixture[str]) -> Tell:
    def show(line: str) -> None:
        with capfd.disabled():
            print(f"\n  {line}", file=sys.stderr, end="", flush=True)

    return show


@pytest.fixture
def rounds(request: pytest.FixtureRequest) -> int:
    return int(request.config.getoption("--rounds", default=1))


@pytest.fixture
def seed(request: pytest.FixtureRequest, rounds: int, tell: Tell) -> int:
    """As it was asked for. The long form draws a new one, the short form, by which a change is
    judged, has always the same. It is told, so that it can be asked for."""
    given: int | None = request.config.getoption("--seed", default=None)
    if given is None:
        given = 1 if rounds == 1 else SystemRandom().randrange(SEEDS)
    tell(f"drawn with --seed {given}")
    return given


@pytest.fixture(scope="session")
def failing_disk(tmp_path_factory: pytest.TempPathFactory) -> FailingDisk | None:
    """Under broker 3, if it can be made here."""
    if not FailingDisk.is_possible():
        return None
    folder = tmp_path_factory.getbasetemp()
    return FailingDisk(folder / "shim", folder / "cluster" / f"broker-{FAILING_BROKER}" / "logs")


@pytest.fixture(scope="session")
def small_disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmallDisk | None]:
    """What broker 3 has its data on, if it can be made here; mounted before it is started."""
    folder = tmp_path_factory.getbasetemp()
    if not SmallDisk.is_possible(folder / "probe"):
        yield None
        return
    place = folder / "cluster" / f"broker-{FAILING_BROKER}"
    disk = SmallDisk(place, SMALL_DISK_MEGABYTES)
    yield disk
    disk.close()


@pytest.fixture(scope="session")
def machines(
    tmp_path_factory: pytest.TempPathFactory, small_disk: SmallDisk | None
) -> dict[int, Machine]:
    """One under each broker; what they have is on the brokers' own disks."""
    assert small_disk is None or small_disk.folder.exists()
    folder = tmp_path_factory.getbasetemp() / "cluster"
    homes = {broker_id: folder / f"broker-{broker_id}" for broker_id in BROKERS}
    return {number: Machine(home / "machine", home / "logs") for number, home in homes.items()}


@pytest.fixture(scope="session")
def cluster(
    tmp_path_factory: pytest.TempPathFactory,
    machines: dict[int, Machine],
    failing_disk: FailingDisk | None,
) -> Iterator[Cluster]:
    require_zookeeper()
    folder = tmp_path_factory.getbasetemp()
    zookeeper = new_zookeeper(folder / "zookeeper")
    made = Cluster(folder / "cluster", zookeeper, QUICK | SAFE)
    made.links.usual = Rule(delay_s=DISTANCE_S)
    for broker_id, machine in machines.items():
        made.brokers[broker_id].environment = dict(machine.environment)
    if failing_disk is not None:
        made.brokers[FAILING_BROKER].environment |= failing_disk.environment
    try:
        made.start()
        yield made
    finally:
        made.close()
        zookeeper.kill()


@pytest.fixture(scope="session")
def topic_names() -> Iterator[str]:
    return (f"topic-{number}" for number in count(1))


@pytest.fixture
def make_stage(
    cluster: Cluster, topic_names: Iterator[str], tell: Tell
) -> Iterator[Callable[..., Stage]]:
    made: list[Stage] = []

    def make(**arguments: Any) -> Stage:
        made.append(Stage(cluster, next(topic_names), tell, **arguments))
        made[0].begin()
        return made[0]

    try:
        yield make
    finally:
        if not made or not made[0].is_checked:
            cluster.start_anew()
        for one in made:
            one.workload.abandon()


@pytest.fixture
def stage(make_stage: Callable[..., Stage]) -> Stage:
    return make_stage()


@pytest.fixture
def topic(cluster: Cluster, topic_names: Iterator[str]) -> Iterator[str]:
    """The name of one that the test makes, without clients at work on it."""
    yield next(topic_names)
    cluster.heal()
