"""Members of groups, of confluent-kafka, and what they are to read."""

import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

_numbers = itertools.count()
SECONDS_MAX = 60
SESSION_MS = 30_000
"""No member is lost because the machine is busy with other tests."""


def new_topic(bootstrap: str, partitions: int, records: int) -> tuple[str, list[bytes]]:
    """A topic that no other test uses, and the values of the records in it, spread over it."""
    name = f"grouped-{next(_numbers)}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    (made,) = admin.create_topics([NewTopic(name, partitions, 1)]).values()
    made.result(SECONDS_MAX)
    values = numbered(records)
    produce(bootstrap, name, values, partitions)
    return name, values


def numbered(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def produce(bootstrap: str, topic: str, values: list[bytes], partitions: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number, value in enumerate(values):
        producer.produce(topic, value=value, partition=number % partitions)
    assert producer.flush(SECONDS_MAX) == 0


class Reader:
    """A member that reads, and remembers what it was given and what was taken from it."""

    def __init__(self, bootstrap: str, group: str, topic: str, **settings: Any) -> None:
        self.values: list[bytes] = []
        self.changes: list[tuple[str, list[int]]] = []
        self.consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": SESSION_MS,
                "heartbeat.interval.ms": 200,
                "log_level": 0,
                **{name.replace("_", "."): value for name, value in settings.items()},
            }
        )
        self.consumer.subscribe(
            [topic],
            on_assign=lambda _, given: self._note("given", given),
            on_revoke=lambda _, taken: self._note("taken", taken),
            on_lost=lambda _, lost: self._note("lost", lost),
        )

    def _note(self, what: str, partitions: list[TopicPartition]) -> None:
        self.changes.append((what, sorted(found.partition for found in partitions)))

    @property
    def partitions(self) -> list[int]:
        return sorted(found.partition for found in self.consumer.assignment())

    def step(self) -> None:
        for message in self.consumer.consume(500, 0.02):
            if message.error():
                raise KafkaException(message.error())
            self.values.append(message.value())

    def commit(self) -> None:
        if self.values:
            self.consumer.commit(asynchronous=False)


def run_until(readers: list[Reader], holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not holds():
        shown = [(reader.partitions, len(reader.values)) for reader in readers]
        assert time.monotonic() < deadline, f"it did not come to that: {shown}"
        for reader in readers:
            reader.step()


def is_shared(readers: list[Reader], count: int) -> bool:
    """Whether each partition has one reader, and each reader about as many as any other."""
    owned = [reader.partitions for reader in readers]
    everything = sorted(itertools.chain.from_iterable(owned))
    sizes = [len(partitions) for partitions in owned]
    return everything == list(range(count)) and max(sizes) - min(sizes) <= 1


@contextmanager
def readers(
    bootstrap: str, group: str, topic: str, count: int, **settings: Any
) -> Iterator[list[Reader]]:
    made = [Reader(bootstrap, group, topic, **settings) for _ in range(count)]
    try:
        yield made
    finally:
        for reader in made:
            reader.consumer.close()
