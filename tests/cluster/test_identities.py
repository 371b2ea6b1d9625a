"""Brokers that are not who they say, or whose data is somebody else's, do not start (F15)."""

import shutil
import time
from pathlib import Path

from support.cluster_processes import QUICK, SAFE, BrokerProcess, Cluster

STRANGER = 9
UNKNOWN_CLUSTER = "AAAAAAAAAAAAAAAAAAAAAA"
ENDS_WITHIN_S = 20.0


def refusal(broker: BrokerProcess) -> str:
    """What a broker says that ends instead of starting."""
    broker.launch()
    try:
        status = broker.wait_until_ended(ENDS_WITHIN_S)
    finally:
        broker.close()
    assert status != 0
    return broker.words


def copied_data(source: BrokerProcess, target: BrokerProcess) -> Path:
    target.log_dir.mkdir(parents=True)
    shutil.copy(source.log_dir / "meta.properties", target.log_dir)
    return target.log_dir / "meta.properties"


def test_a_second_broker_with_the_same_number_does_not_start(cluster: Cluster) -> None:
    """It waits first, in case that the other one is its own past."""
    registered = cluster.tree.get("/brokers/ids/1")
    second = cluster.new_broker(1, QUICK | SAFE, "impostor")
    words = refusal(second)
    assert "broker.id" in words or "broker 1" in words, words
    assert "Traceback" not in words
    assert cluster.tree.get("/brokers/ids/1") == registered
    assert cluster.brokers[1].is_running


def test_a_broker_does_not_start_with_the_data_of_another(cluster: Cluster) -> None:
    stranger = cluster.new_broker(STRANGER, QUICK | SAFE, "stranger")
    copied_data(cluster.brokers[2], stranger)
    words = refusal(stranger)
    assert "broker.id" in words, words
    assert "Traceback" not in words
    assert STRANGER not in cluster.tree.registered()


def test_a_broker_does_not_start_with_the_data_of_another_cluster(cluster: Cluster) -> None:
    stranger = cluster.new_broker(STRANGER, QUICK | SAFE, "other-cluster")
    path = copied_data(cluster.brokers[2], stranger)
    lines = path.read_text().splitlines()
    changed = [_replaced(line) for line in lines]
    assert changed != lines
    path.write_text("\n".join(changed) + "\n")
    words = refusal(stranger)
    assert UNKNOWN_CLUSTER in words, words
    assert "Traceback" not in words
    assert STRANGER not in cluster.tree.registered()


def _replaced(line: str) -> str:
    if line.startswith("cluster.id="):
        return f"cluster.id={UNKNOWN_CLUSTER}"
    return f"broker.id={STRANGER}" if line.startswith("broker.id=") else line


def test_two_processes_do_not_share_a_log_dir(cluster: Cluster) -> None:
    second = cluster.new_broker(2, QUICK | SAFE, "same-place")
    second.settings["log.dirs"] = str(cluster.brokers[2].log_dir)
    began = time.monotonic()
    words = refusal(second)
    assert str(cluster.brokers[2].log_dir) in words, words
    assert "Traceback" not in words
    assert time.monotonic() - began < ENDS_WITHIN_S
    assert cluster.brokers[2].is_running
