"""Brokers that are killed while they compact: R6, with three replicas, min ISR 2 and acks=all.

Each replica is compacted by its own broker. After the kills, all hold the last value of every key
that was acknowledged, and nothing but what was acknowledged under the same offsets.
"""

import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import cycle
from threading import Event, Thread
from typing import Any

import pytest
from confluent_kafka import Producer

from support.cluster_processes import BrokerProcess, Cluster
from support.compacted_files import Content, check_compacted, read_compacted
from support.workload import PATIENT

Tell = Callable[[str], None]

KEYS = 40
BURST = 40
ONCE_EVERY = 50
"""Some keys have one value only, which must outlast every compaction."""
KILLS = 2
SETTLED_SECONDS_MAX = 60
CONFIGS = {
    "cleanup.policy": "compact",
    "segment.bytes": "60000",
    "min.cleanable.dirty.ratio": "0.01",
}


class Updates:
    """Sends values, and now and then none, mostly for the same keys over and over. After `stop`
    everything sent is in `acknowledged`, under its offset."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.acknowledged: dict[int, Content] = {}
        self.errors: list[str] = []
        self._topic = topic
        self._ended = Event()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 5,
                "message.timeout.ms": 120_000,
                "request.timeout.ms": 3000,
                **PATIENT,
            }
        )
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()
        assert self._producer.flush(90) == 0

    def _run(self) -> None:
        for number, key in enumerate(cycle(range(KEYS))):
            value = None if number % 97 == 0 else b"%d " % number * 20
            name = b"once-%d" % number if number % ONCE_EVERY == 0 else b"key-%d" % key
            content = (name, value)
            answered = partial(self._answered, content)
            self._producer.produce(self._topic, value, content[0], 0, on_delivery=answered)
            if number % BURST == 0:
                self._producer.poll(0)
                while len(self._producer) > 10 * BURST and not self._ended.is_set():
                    self._producer.poll(0.05)
                if self._ended.wait(0.02):
                    return

    def _answered(self, content: Content, error: Any, message: Any) -> None:
        if error is not None:
            self.errors.append(error.name())
        else:
            self.acknowledged[message.offset()] = content


@pytest.fixture
def updates(cluster: Cluster, topic: str) -> Iterator[Updates]:
    cluster.create(topic, configs=CONFIGS)
    made = Updates(cluster.bootstrap, topic)
    yield made
    made.stop()


def test_replicas_killed_while_they_are_compacted_agree(
    cluster: Cluster, topic: str, updates: Updates, tell: Tell
) -> None:
    """R6, F1."""
    interrupted = 0
    for _ in range(KILLS):
        broker = first_to_clean(cluster, topic)
        broker.kill()
        interrupted += bool(unfinished(broker, topic))
        broker.start()
        cluster.wait_in_sync(topic)
    updates.stop()
    assert updates.errors == []
    end = max(updates.acknowledged) + 1
    assert sorted(updates.acknowledged) == list(range(end)), "no offset twice, none left out"
    deadline = time.monotonic() + SETTLED_SECONDS_MAX
    while (wrong := wrong_now(cluster, topic, updates.acknowledged)) and (
        time.monotonic() < deadline
    ):
        time.sleep(0.05)
    assert wrong == []
    tell(f"R6 {interrupted} of {KILLS} kills while compacting; {end} records, all replicas agree")


def first_to_clean(cluster: Cluster, topic: str) -> BrokerProcess:
    """Whoever is seen to compact the partition first."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for broker in cluster.brokers.values():
            if unfinished(broker, topic):
                return broker
        time.sleep(0.001)
    raise AssertionError(f"nobody compacts {topic}")


def unfinished(broker: BrokerProcess, topic: str) -> list[str]:
    """Files of a compaction that goes on, or was interrupted."""
    names = [path.name for path in broker.log_dir.glob(f"{topic}-0/*")]
    return [name for name in names if name.endswith((".cleaned", ".swap"))]


def wrong_now(cluster: Cluster, topic: str, acknowledged: dict[int, Content]) -> list[str]:
    """Segments may be replaced while they are read: then it is to be looked at again."""
    brokers = cluster.brokers.items()
    try:
        replicas = {n: read_compacted(broker.log_dir, topic, 0) for n, broker in brokers}
    except FileNotFoundError as error:
        return [str(error)]
    end = max(acknowledged) + 1
    whole = [number for number, replica in replicas.items() if len(replica.records) >= end]
    unready = [f"not compacted on broker {number}" for number in whole]
    return unready + check_compacted(replicas, acknowledged, end)
