"""A topic that is compacted while it is written to, and what must hold of it whatever happens.

`Updates` writes mostly to the same keys over and over. Each replica is compacted by its own broker
at its own time; `check` says what is wrong with all of them once everything was acknowledged (R6).
"""

import time
from functools import partial
from itertools import cycle
from threading import Event, Thread
from typing import Any, Final

from confluent_kafka import Producer

from support.cluster_processes import BrokerProcess, Cluster, wait_until
from support.compacted_files import Content, check_compacted, read_compacted
from support.workload import PATIENT

KEYS: Final = 40
BURST: Final = 40
ONCE_EVERY: Final = 50
"""Some keys have one value only, which must outlast every compaction."""
ENOUGH: Final = 1500
"""Several segments."""
SETTLED_SECONDS_MAX: Final = 60
COMPACTED: Final = {
    "cleanup.policy": "compact",
    "segment.bytes": "60000",
    "min.cleanable.dirty.ratio": "0.01",
}


class Updates:
    """Sends values, and now and then none. After `stop` everything sent is in `acknowledged`, under
    its offset."""

    def __init__(self, cluster: Cluster, topic: str, pause_s: float = 0.02) -> None:
        self.cluster = cluster
        self.topic = topic
        self.acknowledged: dict[int, Content] = {}
        self.errors: list[str] = []
        self._pause_s = pause_s
        self._ended = Event()
        cluster.create(topic, configs=COMPACTED)
        self._producer = Producer(
            {
                "bootstrap.servers": cluster.bootstrap,
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

    def stop(self, seconds_max: float = 90) -> int:
        """How many records remain unanswered."""
        self._ended.set()
        self._thread.join()
        left: int = self._producer.flush(seconds_max)
        return left

    def _run(self) -> None:
        for number, key in enumerate(cycle(range(KEYS))):
            value = None if number % 97 == 0 else b"%d " % number * 20
            name = b"once-%d" % number if number % ONCE_EVERY == 0 else b"key-%d" % key
            content = (name, value)
            answered = partial(self._answered, content)
            self._producer.produce(self.topic, value, content[0], 0, on_delivery=answered)
            if number % BURST == 0:
                self._producer.poll(0)
                while len(self._producer) > 10 * BURST and not self._ended.is_set():
                    self._producer.poll(0.05)
                if self._ended.wait(self._pause_s):
                    return

    def _answered(self, content: Content, error: Any, message: Any) -> None:
        if error is not None:
            self.errors.append(error.name())
        else:
            self.acknowledged[message.offset()] = content

    def check(self) -> int:
        """Ends it when there is enough to compact, and looks at all replicas once they have been
        compacted; how many records were sent."""
        wait_until(lambda: len(self.acknowledged) >= ENOUGH, "there is enough to compact")
        assert self.stop() == 0
        assert self.errors == []
        end = max(self.acknowledged) + 1
        assert sorted(self.acknowledged) == list(range(end)), "no offset twice, none left out"
        deadline = time.monotonic() + SETTLED_SECONDS_MAX
        while (wrong := self._wrong_now(end)) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert wrong == [], wrong
        return end

    def _wrong_now(self, end: int) -> list[str]:
        """Segments may be replaced while they are read: then it is to be looked at again."""
        replicas = self.cluster.tree.replicas(self.topic)[0]
        dirs = {number: self.cluster.brokers[number].log_dir for number in replicas}
        try:
            found = {n: read_compacted(log_dir, self.topic, 0) for n, log_dir in dirs.items()}
        except FileNotFoundError as error:
            return [str(error)]
        whole = [number for number, replica in found.items() if len(replica.records) >= end]
        unready = [f"not compacted on broker {number}" for number in whole]
        return unready + check_compacted(found, self.acknowledged, end)


def first_to_clean(cluster: Cluster, topic: str, seconds_max: float) -> BrokerProcess | None:
    """Whoever is seen to compact the partition first."""
    deadline = time.monotonic() + seconds_max
    while time.monotonic() < deadline:
        for broker in cluster.brokers.values():
            if broker.is_running and unfinished(broker, topic):
                return broker
        time.sleep(0.001)
    return None


def unfinished(broker: BrokerProcess, topic: str) -> list[str]:
    """Files of a compaction that goes on, or was interrupted."""
    names = [path.name for path in broker.log_dir.glob(f"{topic}-0/*")]
    return [name for name in names if name.endswith((".cleaned", ".swap"))]
