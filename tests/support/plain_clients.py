"""A few records written and read at once, for tests that say beforehand what there will be."""

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from support.log_ends import log_end
from support.workload import PATIENT

ACKNOWLEDGED = "acknowledged"
_SECONDS_MAX = 90.0


def write(
    bootstrap: str, topic: str, values: Sequence[str], acks: str = "all", **settings: Any
) -> dict[str, str]:
    """What became of each: acknowledged, or the name of the error. Nothing is tried twice."""
    found: dict[str, str] = {}

    def report(value: str, error: Any, _: Any) -> None:
        found[value] = ACKNOWLEDGED if error is None else error.name()

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": acks,
            "retries": 0,
            "linger.ms": 1,
            "message.timeout.ms": 10_000,
            **PATIENT,
            **settings,
        }
    )
    for value in values:
        produced = partial(report, value)
        producer.produce(topic, value.encode(), partition=0, on_delivery=produced)
    assert producer.flush(_SECONDS_MAX) == 0
    return found


def acknowledge(bootstrap: str, topic: str, values: Sequence[str], acks: str = "all") -> None:
    """All of them, in order; each once, unless acks=1 leaves that open."""
    again = {
        "retries": 100,
        "enable.idempotence": acks == "all",
        "message.timeout.ms": 60_000,
    }
    found = write(bootstrap, topic, values, acks, **again)
    assert found == dict.fromkeys(values, ACKNOWLEDGED)


def read(bootstrap: str, topic: str) -> list[str]:
    """All there is, to the high watermark."""
    return _read(bootstrap, topic, log_end)


def read_first(bootstrap: str, topic: str, count: int) -> list[str]:
    """At least so many, whether or not the leader knows its high watermark."""
    return _read(bootstrap, topic, lambda _reader, _place: count)


def _read(
    bootstrap: str, topic: str, end_of: Callable[[Consumer, TopicPartition], int]
) -> list[str]:
    reader = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "none",
            "auto.offset.reset": "error",
            "check.crcs": True,
            "fetch.wait.max.ms": 50,
            **PATIENT,
        }
    )
    place = TopicPartition(topic, 0, OFFSET_BEGINNING)
    end = end_of(reader, place)
    reader.assign([place])
    found: list[str] = []
    deadline = time.monotonic() + _SECONDS_MAX
    while len(found) < end:
        assert time.monotonic() < deadline, f"{len(found)} of {end} records were read"
        for message in reader.consume(500, 0.1):
            assert message.error() is None, message.error()
            found.append(message.value().decode())
    reader.close()
    return found
