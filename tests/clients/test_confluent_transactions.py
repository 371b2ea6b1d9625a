"""Transactions of confluent-kafka: all or nothing for who reads committed records, also with the
offsets of what was consumed, and after a broker was killed (A4, V13, V14)."""

import time
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from clients.grouping import new_topic
from support.servers import Server

SECONDS_MAX = 60
_numbers = count()


@pytest.fixture(scope="module")
def bootstrap(group_broker: Server) -> str:
    return group_broker.address


def transactional(bootstrap: str, name: str, **settings: Any) -> Producer:
    named = {key.replace("_", "."): value for key, value in settings.items()}
    quiet = {"bootstrap.servers": bootstrap, "transactional.id": name, "log_level": 0}
    made = Producer({**quiet, **named})
    made.init_transactions(SECONDS_MAX)
    return made


def read(
    bootstrap: str, topic: str, partitions: int = 2, level: str = "read_committed"
) -> list[str]:
    """Everything up to where there is nothing more for this reader."""
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": f"reader-{next(_numbers)}",
        "isolation.level": level,
        "enable.auto.commit": False,
        "enable.partition.eof": True,
    }
    reader = Consumer(settings)
    reader.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
    found: list[str] = []
    ended: set[int] = set()
    deadline = time.monotonic() + SECONDS_MAX
    try:
        while len(ended) < partitions:
            assert time.monotonic() < deadline, f"{topic}: the end of {ended} was reached"
            for message in reader.consume(500, 0.1):
                if message.error() is None:
                    found.append(message.value().decode())
                else:
                    assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                    ended.add(message.partition())
        return sorted(found)
    finally:
        reader.close()


def wait_for(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_committed_transactions_are_read_and_aborted_ones_never(bootstrap: str) -> None:
    topic, _ = new_topic(bootstrap, 2, 0)
    producer = transactional(bootstrap, topic)
    expected: list[str] = []
    for number in range(6):
        producer.begin_transaction()
        values = [f"{number}-{index}" for index in range(20)]
        for index, value in enumerate(values):
            producer.produce(topic, value, partition=index % 2)
        if number % 3 == 1:
            producer.flush()
            producer.abort_transaction(SECONDS_MAX)
        else:
            producer.commit_transaction(SECONDS_MAX)
            expected += values
    wait_for(lambda: read(bootstrap, topic) == sorted(expected))
    assert len(read(bootstrap, topic, level="read_uncommitted")) == 120


def test_a_zombie_is_shut_out(bootstrap: str) -> None:
    topic, _ = new_topic(bootstrap, 2, 0)
    zombie = transactional(bootstrap, topic)
    zombie.begin_transaction()
    zombie.produce(topic, "lost", partition=0)
    zombie.flush()
    other = transactional(bootstrap, topic)
    with pytest.raises(KafkaException, match="FENCED"):
        zombie.commit_transaction(SECONDS_MAX)
    other.begin_transaction()
    other.produce(topic, "kept", partition=0)
    other.commit_transaction(SECONDS_MAX)
    wait_for(lambda: read(bootstrap, topic) == ["kept"])


def _carry(bootstrap: str, source: str, target: str, batches: int | None, *, leave: str) -> int:
    """Copies with exactly-once, so many batches, or all there is; the last of them is committed,
    aborted or left open."""
    reader = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"carry-{source}",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    reader.subscribe([source])
    producer = transactional(bootstrap, f"carry-{source}")
    done, quiet_since = 0, time.monotonic()
    ended: set[int] = set()
    while batches is None or done < batches:
        found = reader.consume(50, 0.2)
        messages = [m for m in found if m.error() is None]
        ended |= {m.partition() for m in found if m not in messages}
        if not messages:
            if batches is None and ended == {0, 1}:
                break
            assert time.monotonic() - quiet_since < SECONDS_MAX
            continue
        quiet_since = time.monotonic()
        producer.begin_transaction()
        for message in messages:
            producer.produce(target, message.value(), partition=message.partition())
        positions = reader.position(reader.assignment())
        producer.send_offsets_to_transaction(
            positions, reader.consumer_group_metadata(), SECONDS_MAX
        )
        done += 1
        if done == batches and leave != "committed":
            producer.flush()
            if leave == "aborted":
                producer.abort_transaction(SECONDS_MAX)
            break
        producer.commit_transaction(SECONDS_MAX)
    reader.close()
    return done


def test_what_is_consumed_and_produced_counts_once_whoever_dies(bootstrap: str) -> None:
    """A4: consume, transform, produce; offsets are part of the transaction."""
    source, values = new_topic(bootstrap, 2, 400)
    target, _ = new_topic(bootstrap, 2, 0)
    for leave in ("open", "aborted", "committed"):
        assert _carry(bootstrap, source, target, 2, leave=leave) == 2
    _carry(bootstrap, source, target, None, leave="committed")
    wait_for(lambda: read(bootstrap, target) == sorted(value.decode() for value in values))


def test_transactions_go_on_after_the_broker_was_killed(own_group_broker: Server) -> None:
    """V13, V14."""
    server = own_group_broker
    topic, _ = new_topic(server.address, 2, 0)
    backoff = {"reconnect_backoff_max_ms": 100, "retry_backoff_max_ms": 100}
    producer = transactional(server.address, topic, **backoff)
    expected: list[str] = []
    for number in range(3):
        producer.begin_transaction()
        for index in range(20):
            producer.produce(topic, f"{number}-{index}", partition=index % 2)
        if number == 1:
            producer.flush()
            server.kill()
            server.start()
        producer.commit_transaction(SECONDS_MAX)
        expected += [f"{number}-{index}" for index in range(20)]
    wait_for(lambda: read(server.address, topic) == sorted(expected))
