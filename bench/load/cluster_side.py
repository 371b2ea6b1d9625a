"""A cluster that runs, under load: topics on it, who leads them, and a stream for each leader.

Requests go to leaders only, as a client's do; changes of topics go to the controller. Connections
for asking are made when needed, because brokers come and go here.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from bench.load.frames import ACKS_ALL, PRODUCE, Frame, Topic, produce
from bench.load.generator import Generator, Load, Stream
from bench.load.metadata import Metadata
from bench.load.target import Target
from bench.peers.cluster import BROKERS, Cluster

SAFE = {"min.insync.replicas": "2"}
_WAIT_SECONDS_MAX = 90
_POLL_SECONDS, _MANY_POLL_SECONDS = 0.01, 0.1
_MANY = 100


class ClusterSide:
    def __init__(self, cluster: Cluster, generator: Generator) -> None:
        self.cluster = cluster
        self.name = cluster.name
        self.many: Topic | None = None
        """The topic with as many partitions as some scenarios need, once it was made."""
        self.generator = generator
        self._topics = 0

    @contextmanager
    def asking(self, node: int | None = None) -> Iterator[Target]:
        """A connection to this broker, or to any that runs."""
        number = node or next(iter(self.cluster.running))
        with Target(*self.cluster.nodes[number].address) as target:
            yield target

    def metadata(self, topic: Topic | None = None) -> Metadata:
        with self.asking() as target:
            return target.metadata(None if topic is None else topic.name)

    def new_topic(
        self,
        partitions: int = 1,
        replicas: int = BROKERS,
        configs: Mapping[str, str] = SAFE,
    ) -> Topic:
        self._topics += 1
        name = f"bench-{self._topics}"
        with self.asking(self.metadata().controller) as target:
            topic = target.request_topic(name, partitions, replicas, configs)
        self.await_in_sync(topic, partitions, replicas)
        return topic

    @contextmanager
    def topic(self, partitions: int, replicas: int = BROKERS) -> Iterator[Topic]:
        topic = self.new_topic(partitions, replicas)
        yield topic
        self.delete(topic)

    def delete(self, topic: Topic) -> None:
        with self.asking(self.metadata().controller) as target:
            target.delete_topic(topic)
        self.cluster.await_deleted(topic.name)

    def await_in_sync(self, topic: Topic, partitions: int, replicas: int = BROKERS) -> None:
        """Until all partitions have a leader that serves, and all their replicas follow it."""

        def is_in_sync() -> bool:
            found = self.metadata(topic)
            places = [place for place in found.places if len(place.in_sync) == replicas]
            return len(places) == partitions and self._all_serve(topic, found)

        poll_seconds = _MANY_POLL_SECONDS if partitions > _MANY else _POLL_SECONDS
        self.wait(is_in_sync, f"{topic.name} is not in sync everywhere", poll_seconds)

    def wait(
        self, holds: Callable[[], bool], otherwise: str, poll_seconds: float = _POLL_SECONDS
    ) -> None:
        deadline = time.monotonic() + _WAIT_SECONDS_MAX
        while not holds():
            if time.monotonic() > deadline:
                raise RuntimeError(f"{self.name}: {otherwise} after {_WAIT_SECONDS_MAX} s")
            time.sleep(poll_seconds)

    def frames(
        self, topic: Topic, data: bytes | Sequence[bytes], acks: int = ACKS_ALL
    ) -> dict[int, list[Frame]]:
        """For each leader requests with a batch for each partition it leads."""
        batches = [data] if isinstance(data, bytes) else data
        found = self.metadata(topic)
        leaders = sorted({place.leader for place in found.places})
        with self.asking() as target:
            version = target.versions[PRODUCE]
        return {
            leader: [
                produce(topic, [(n, one) for n in found.led_by(leader)], version, acks)
                for one in batches
            ]
            for leader in leaders
        }

    def load(self, frames: Mapping[int, Sequence[Frame]], shape: Stream, seconds: float) -> Load:
        """To all leaders at a time; the megabytes and the rate of `shape` are of all together."""
        streams = [
            replace(
                shape,
                frames=of_leader,
                address=self.cluster.nodes[leader].address,
                megabytes=shape.megabytes / len(frames),
                rate=shape.rate / len(frames),
            )
            for leader, of_leader in frames.items()
        ]
        return together(self.run(streams, seconds))

    def run(self, streams: Sequence[Stream], seconds: float, warm_up: float = 0.3) -> list[Load]:
        address = self.cluster.nodes[1].address
        pids = self.cluster.pids
        return self.generator.run(address, streams, pids=pids, seconds=seconds, warm_up=warm_up)

    def _all_serve(self, topic: Topic, found: Metadata) -> bool:
        for leader in sorted({place.leader for place in found.places}):
            led = found.led_by(leader)
            with self.asking(leader) as target:
                if target.ready(topic.name, led) < len(led):
                    return False
        return True


def together(loads: Sequence[Load]) -> Load:
    """Of streams that ran at the same time: sums, and the slowest one's latencies."""
    return replace(
        max(loads, key=lambda load: load.p99_us),
        requests=sum(load.requests for load in loads),
        bytes_out=sum(load.bytes_out for load in loads),
        bytes_in=sum(load.bytes_in for load in loads),
        batch_bytes=sum(load.batch_bytes for load in loads),
        errors=sum(load.errors for load in loads),
    )
