"""Brokers that are not who they say, or whose data is somebody else's, do not start (F15); nor do
those who cannot read whose it is (F12)."""

import shutil
from pathlib import Path

import pytest

from support.cluster_processes import QUICK, SAFE, BrokerProcess, Cluster

STRANGER = 9
UNKNOWN_CLUSTER = "AAAAAAAAAAAAAAAAAAAAAA"
ENDS_WITHIN_S = 60.0
SETTINGS = QUICK | SAFE


@pytest.fixture(scope="module")
def registered(cluster: Cluster) -> list[dict[str, object]]:
    """As it was before anybody else tried."""
    return [cluster.tree.get(f"/brokers/ids/{broker_id}") for broker_id in cluster.brokers]


@pytest.fixture(scope="module")
def refusals(cluster: Cluster, registered: list[dict[str, object]]) -> dict[str, str]:
    """What they say who end instead of starting; all of them at once, which is quicker."""
    assert all(registered)
    impostor = cluster.new_broker(1, SETTINGS, "impostor")
    stranger = cluster.new_broker(STRANGER, SETTINGS, "stranger")
    copied_properties(cluster.brokers[2], stranger)
    foreigner = cluster.new_broker(STRANGER, SETTINGS, "foreigner")
    make_foreign(copied_properties(cluster.brokers[2], foreigner))
    illegible = cluster.new_broker(STRANGER, SETTINGS, "illegible")
    cut_in_half(copied_properties(cluster.brokers[2], illegible))
    lodger = cluster.new_broker(2, SETTINGS, "lodger")
    lodger.settings["log.dirs"] = str(cluster.brokers[2].log_dir)
    all_of_them = {
        "impostor": impostor,
        "stranger": stranger,
        "foreigner": foreigner,
        "illegible": illegible,
        "lodger": lodger,
    }
    for broker in all_of_them.values():
        broker.launch()
    return {name: last_words(broker) for name, broker in all_of_them.items()}


def last_words(broker: BrokerProcess) -> str:
    try:
        status = broker.wait_until_ended(ENDS_WITHIN_S)
    finally:
        broker.close()
    assert status != 0
    assert "Traceback" not in broker.words
    return broker.words


def copied_properties(source: BrokerProcess, target: BrokerProcess) -> Path:
    target.log_dir.mkdir(parents=True)
    return Path(shutil.copy(source.log_dir / "meta.properties", target.log_dir))


def make_foreign(path: Path) -> None:
    lines = path.read_text().splitlines()
    others = {"cluster.id": UNKNOWN_CLUSTER, "broker.id": str(STRANGER)}
    pairs = [line.partition("=")[::2] for line in lines]
    path.write_text("".join(f"{name}={others.get(name, value)}\n" for name, value in pairs))


def cut_in_half(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])


def test_a_second_broker_with_the_same_number_does_not_start(refusals: dict[str, str]) -> None:
    """It waits first, in case that the other one is its own past."""
    assert "broker.id" in refusals["impostor"] or "broker 1" in refusals["impostor"]


def test_a_broker_does_not_start_with_the_data_of_another(refusals: dict[str, str]) -> None:
    assert "broker.id" in refusals["stranger"]


def test_a_broker_does_not_start_with_the_data_of_another_cluster(refusals: dict[str, str]) -> None:
    assert UNKNOWN_CLUSTER in refusals["foreigner"]


def test_a_broker_does_not_start_with_data_that_does_not_say_whose_it_is(
    refusals: dict[str, str],
) -> None:
    """F12: it is not taken for a new one, and what is there is left as it is."""
    assert "illegible/logs/meta.properties" in refusals["illegible"]


def test_two_processes_do_not_share_a_log_dir(cluster: Cluster, refusals: dict[str, str]) -> None:
    assert str(cluster.brokers[2].log_dir) in refusals["lodger"]


@pytest.mark.usefixtures("refusals")
def test_who_was_there_first_is_not_disturbed(
    cluster: Cluster, registered: list[dict[str, object]]
) -> None:
    now = [cluster.tree.get(f"/brokers/ids/{broker_id}") for broker_id in cluster.brokers]
    assert now == registered
    assert cluster.tree.registered() == sorted(cluster.brokers)
    assert all(broker.is_running for broker in cluster.brokers.values())
