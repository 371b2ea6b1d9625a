"""Small helpers around confluent-kafka: send and wait for every report, read partitions by
`assign`. Other clients' tests use them too, as the reader that is known to be right."""

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Producer, TopicPartition

from clients.samples import Sample, as_sample

_SECONDS_MAX = 60


def send(
    producer: Producer, topic: str, records: Iterable[Sample], **arguments: Any
) -> list[tuple[int, int]]:
    """The partition and offset of each record, in the order they were sent; raises the error of
    the first that was refused."""
    reports: dict[int, Any] = {}

    def report(index: int, error: Any, message: Any) -> None:
        reports[index] = error or (message.partition(), message.offset())

    for index, record in enumerate(records):
        producer.produce(
            topic,
            key=record.key,
            value=record.value,
            headers=list(record.headers),
            on_delivery=partial(report, index),
            **arguments,
        )
        producer.poll(0)
    assert producer.flush(_SECONDS_MAX) == 0, "every record was reported on in time"
    in_order = [found for _, found in sorted(reports.items())]
    for found in in_order:
        if not isinstance(found, tuple):
            raise KafkaException(found)
    return in_order


@contextmanager
def consumer(bootstrap: str, **settings: Any) -> Iterator[Consumer]:
    """A consumer that commits nothing; settings with `_` for `.`, but for callbacks."""
    made = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "none",
            "enable.auto.commit": False,
            **{
                name if callable(value) else name.replace("_", "."): value
                for name, value in settings.items()
            },
        }
    )
    try:
        yield made
    finally:
        made.close()


def take(reader: Consumer, count: int, seconds_max: float = _SECONDS_MAX) -> list[Any]:
    """The next `count` messages; raises the first error that comes instead."""
    taken: list[Any] = []
    deadline = time.monotonic() + seconds_max
    while len(taken) < count:
        left = deadline - time.monotonic()
        assert left > 0, f"{len(taken)} of {count} messages came in {seconds_max} s"
        for message in reader.consume(count - len(taken), min(left, 1.0)):
            if message.error():
                raise KafkaException(message.error())
            taken.append(message)
    return taken


def read(
    bootstrap: str, topic: str, count: int, *, partitions: int = 1, **settings: Any
) -> list[Any]:
    """The first `count` messages of a topic."""
    with consumer(bootstrap, **settings) as reader:
        reader.assign([TopicPartition(topic, n, OFFSET_BEGINNING) for n in range(partitions)])
        return take(reader, count)


def samples(messages: Iterable[Any]) -> list[Sample]:
    return [as_sample(message.key(), message.value(), message.headers()) for message in messages]


def result_of(futures: dict[Any, Any]) -> Any:
    """The one result of a call about one thing."""
    (future,) = futures.values()
    return future.result(60)


def refusal(futures: dict[Any, Any]) -> str:
    """The name of the error with which a call about one thing is refused."""
    with pytest.raises(KafkaException) as raised:
        result_of(futures)
    name: str = raised.value.args[0].name()
    return name
