"""A cluster of three brokers on loopback, whoever made them: what the benchmark asks of each.

A `Node` is one broker process that may be stopped, killed and started again with its data where it
was. `Cluster.start` returns when every node knows all of them.
"""

import os
import shutil
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path

from bench.load.processes import family
from bench.load.target import Target

BROKERS = 3
SETTINGS = {
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
}
"""Otherwise the defaults, where leaders are killed or nothing is done."""
TIDIES_AT_ONCE = {
    "log.segment.delete.delay.ms": "100",
    "log.retention.check.interval.ms": "300",
    "log.initial.task.delay.ms": "300",
    "log.cleaner.backoff.ms": "500",
    **SETTINGS,
}
"""Deleted topics and dirty logs are seen to at once, so that no round pays for another."""
Settings = Mapping[str, str]
_MEMBERS_SECONDS_MAX = 180
_DELETE_SECONDS_MAX = 60


class Node(ABC):
    number: int
    address: tuple[str, int]
    logs: Path

    @property
    @abstractmethod
    def pid(self) -> int: ...

    @property
    @abstractmethod
    def has_ended(self) -> bool:
        """By itself."""

    @abstractmethod
    def start(self) -> None:
        """Returns at once."""

    @abstractmethod
    def end(self, number: signal.Signals) -> None:
        """Returns when the process is gone."""

    def kill_alone(self) -> None:
        """As when a process dies: whatever watches over it lives on."""
        self.end(signal.SIGKILL)

    def kill_all(self) -> None:
        """As when a machine dies: first it stands still, so that it replaces none of its own."""
        os.kill(self.pid, signal.SIGSTOP)
        for child in family(self.pid)[1:]:
            os.kill(child, signal.SIGKILL)
        self.end(signal.SIGKILL)


class Cluster:
    name = ""

    def __init__(self, folder: Path) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        self.folder = folder
        self.nodes: dict[int, Node] = {}
        self._running: set[int] = set()

    @property
    def pids(self) -> list[int]:
        """Of the brokers that run; their guards and children descend from them."""
        return [self.nodes[number].pid for number in self.running]

    @property
    def running(self) -> list[int]:
        return sorted(self._running)

    @property
    def coordination_pids(self) -> list[int]:
        """Of what the brokers need beside them."""
        return []

    def start(self) -> float:
        """Seconds until every node knows all of them."""
        began = time.monotonic()
        for number in self.nodes:
            self.start_node(number)
        self.await_members()
        return time.monotonic() - began

    def start_node(self, number: int) -> None:
        self.nodes[number].start()
        self._running.add(number)

    def stop_node(self, number: int) -> None:
        self._running.discard(number)
        self.nodes[number].end(signal.SIGTERM)

    def kill_node(self, number: int, *, with_guard: bool) -> None:
        self._running.discard(number)
        node = self.nodes[number]
        node.kill_all() if with_guard else node.kill_alone()

    def await_members(self) -> None:
        deadline = time.monotonic() + _MEMBERS_SECONDS_MAX
        for node in self.nodes.values():
            while self._known_to(node) < len(self.nodes):
                if time.monotonic() > deadline:
                    raise RuntimeError(f"{self.name}: broker {node.number} does not know the rest")
                time.sleep(0.02)

    def await_deleted(self, topic: str) -> None:
        """So that whoever writes next finds the memory that its pages had."""
        deadline = time.monotonic() + _DELETE_SECONDS_MAX
        while any(any(node.logs.glob(f"{topic}-*")) for node in self.nodes.values()):
            if time.monotonic() > deadline:
                raise RuntimeError(f"{self.name} has not deleted the files of {topic}")
            time.sleep(0.02)

    def stop(self) -> None:
        """At once: nobody needs its data any more."""
        for number in self.running:
            self.nodes[number].end(signal.SIGKILL)
        self._running.clear()

    def _known_to(self, node: Node) -> int:
        try:
            with Target(*node.address, timeout_seconds=5) as target:
                return len(target.metadata().addresses)
        except (OSError, RuntimeError, KeyError) as error:
            if node.has_ended:
                raise RuntimeError(f"{self.name}: broker {node.number} has ended") from error
            return 0
