"""Writes a record to partitions of a topic through whatever happens to the brokers, as clients do.

It asks any broker that runs who leads, sends each leader one request for all that is still to be
written there, and tries again at once. Only records that were acknowledged without an error count.
"""

import select
import time

from bench.load.cluster_side import ClusterSide
from bench.load.contest import tell
from bench.load.frames import ACKS_ALL, PRODUCE, Topic, batch, produce
from bench.load.metadata import Metadata
from bench.load.target import Target

PROBE_TIMEOUT_MS = 1000
"""A partition that waits for a dead follower keeps the rest of its request waiting so long."""
ASKING_SECONDS = 0.02
"""Between two looks at who leads, and only while something is not on its way."""
SECONDS_MAX = 90


class Prober:
    def __init__(self, side: ClusterSide, topic: Topic) -> None:
        self._side, self._topic = side, topic
        self._targets: dict[int, Target] = {}
        self._asked: Target | None = None
        self._waiting: dict[int, list[int]] = {}
        """The partitions that each leader was sent records for, and has not answered yet."""
        self._record = batch(100)

    def write(self, wanted: set[int]) -> None:
        """Returns when each of the partitions has acknowledged a record."""
        pending, deadline = set(wanted), time.monotonic() + SECONDS_MAX
        while pending:
            self._send_all(pending)
            pending -= self._acknowledged()
            if time.monotonic() > deadline:
                raise RuntimeError(
                    f"{self._side.name}: {len(pending)} partitions take no records "
                    f"after {SECONDS_MAX} s"
                )

    def close(self) -> None:
        for target in (*self._targets.values(), *([self._asked] if self._asked else [])):
            target.close()

    def _send_all(self, pending: set[int]) -> None:
        sent = {number for numbers in self._waiting.values() for number in numbers}
        found = self._metadata() if pending - sent else None
        for leader in self._side.cluster.running if found else ():
            if found and leader not in self._waiting:
                self._send(leader, [n for n in found.led_by(leader) if n in pending - sent])

    def _send(self, leader: int, numbers: list[int]) -> None:
        if not numbers:
            return
        try:
            if leader not in self._targets:
                self._targets[leader] = self._connected(leader)
            target = self._targets[leader]
            batches = [(number, self._record) for number in numbers]
            version = target.versions[PRODUCE]
            target.send(produce(self._topic, batches, version, ACKS_ALL, PROBE_TIMEOUT_MS))
        except (OSError, RuntimeError) as error:
            self._drop(leader, error)
        else:
            self._waiting[leader] = numbers

    def _acknowledged(self) -> set[int]:
        """What came within the time until the next look at who leads."""
        waiting = {self._targets[leader].fileno(): leader for leader in sorted(self._waiting)}
        readable, _, _ = select.select(list(waiting), [], [], ASKING_SECONDS)
        return {number for descriptor in readable for number in self._take(waiting[descriptor])}

    def _take(self, leader: int) -> list[int]:
        del self._waiting[leader]
        try:
            answer = self._targets[leader].produce_answer()
        except (OSError, RuntimeError) as error:
            self._drop(leader, error)
            return []
        return [number for number, error in answer.items() if not error]

    def _metadata(self) -> Metadata | None:
        for number in self._side.cluster.running:
            try:
                self._asked = self._asked or self._connected(number)
                return self._asked.metadata(self._topic.name)
            except (OSError, RuntimeError) as error:
                tell(f"{self._side.name}: asking broker {number}: {error}")
                if self._asked is not None:
                    self._asked.close()
                self._asked = None
        return None

    def _connected(self, number: int) -> Target:
        return Target(*self._side.cluster.nodes[number].address, timeout_seconds=10)

    def _drop(self, number: int, error: Exception) -> None:
        """The next try connects anew."""
        tell(f"{self._side.name}: writing to broker {number}: {error}")
        self._waiting.pop(number, None)
        if number in self._targets:
            self._targets.pop(number).close()
