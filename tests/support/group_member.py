# mypy: disable-error-code="import-untyped"
"""A member of a group as a process of its own, of one of the Python clients, to be told to leave
(SIGTERM), to be slow for once (SIGUSR2), to be stopped and killed:

    python group_member.py CLIENT BOOTSTRAP GROUP TOPIC SESSION_MS

It prints `ready` when it can be told. For whatever it has read it prints `PARTITION FIRST LAST`,
and commits only then: so what was committed was printed by somebody. confluent-kafka says what was
acknowledged, and so `committed PARTITION OFFSET` is printed too. `kafkajs_member.js` does the same
in Node.
"""

import asyncio
import signal
import sys
import time
from collections.abc import Iterable
from typing import Any

from aiokafka import AIOKafkaConsumer
from aiokafka.errors import KafkaError as AiokafkaError
from confluent_kafka import Consumer, KafkaException, TopicPartition
from kafka import KafkaConsumer
from kafka.errors import KafkaError as KafkaPythonError

HEARTBEAT_MS = 300
SLOW_SESSIONS = 3
"""For so many of its sessions a slow one does not come back for more."""


class Orders:
    """What the process was told by signals."""

    def __init__(self, session_ms: int) -> None:
        self._slow_seconds = session_ms / 1000 * SLOW_SESSIONS
        self._is_slow = False
        self.goes_on = True
        signal.signal(signal.SIGTERM, self._leave)
        signal.signal(signal.SIGUSR2, self._be_slow)
        print("ready", flush=True)

    def _leave(self, *_: object) -> None:
        self.goes_on = False

    def _be_slow(self, *_: object) -> None:
        self._is_slow = True

    def seconds_to_lose(self) -> float:
        lost, self._is_slow = self._slow_seconds if self._is_slow else 0.0, False
        return lost


def tell(records: Iterable[tuple[int, int]]) -> None:
    """Of partitions and offsets, which grow within each partition."""
    spans: dict[int, list[list[int]]] = {}
    for partition, offset in records:
        known = spans.setdefault(partition, [])
        if known and known[-1][1] + 1 == offset:
            known[-1][1] = offset
        else:
            known.append([offset, offset])
    for partition, found in spans.items():
        for first, last in found:
            print(partition, first, last, flush=True)


def tell_commits(answered: Iterable[TopicPartition]) -> None:
    for place in answered:
        if place.error is None and place.offset >= 0:
            print("committed", place.partition, place.offset, flush=True)


def run_confluent(protocol: str, names: tuple[str, str, str], session_ms: int) -> None:
    bootstrap, group, topic = names
    orders = Orders(session_ms)
    settings: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "group.protocol": protocol,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "max.poll.interval.ms": 2 * session_ms,
        "session.timeout.ms": session_ms,
        "log_level": 0,
    }
    if protocol == "classic":
        settings["heartbeat.interval.ms"] = HEARTBEAT_MS
    else:
        del settings["session.timeout.ms"]
    consumer = Consumer(settings)
    consumer.subscribe([topic])
    while orders.goes_on:
        try:
            messages = [found for found in consumer.consume(500, 0.2) if not found.error()]
            tell((found.partition(), found.offset()) for found in messages)
            time.sleep(orders.seconds_to_lose())
            if messages:
                tell_commits(consumer.commit(asynchronous=False))
        except KafkaException as error:
            # Somebody else has the partitions by now, or there is no coordinator for a while.
            if error.args[0].fatal():
                raise
    consumer.close()


def settings_of(names: tuple[str, str, str], session_ms: int) -> dict[str, Any]:
    """aiokafka and kafka-python call them the same."""
    bootstrap, group, _ = names
    return {
        "bootstrap_servers": bootstrap.split(","),
        "group_id": group,
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "session_timeout_ms": session_ms,
        "heartbeat_interval_ms": HEARTBEAT_MS,
        "max_poll_interval_ms": 2 * session_ms,
        "retry_backoff_ms": 100,
    }


async def run_aiokafka(names: tuple[str, str, str], session_ms: int) -> None:
    orders = Orders(session_ms)
    consumer = AIOKafkaConsumer(names[2], **settings_of(names, session_ms))
    await consumer.start()
    while orders.goes_on:
        try:
            found = await consumer.getmany(timeout_ms=200)
            tell((record.partition, record.offset) for part in found.values() for record in part)
            await asyncio.sleep(orders.seconds_to_lose())
            if found:
                await consumer.commit()
        except AiokafkaError as error:
            print(type(error).__name__, file=sys.stderr, flush=True)
    await consumer.stop()


def run_kafka_python(names: tuple[str, str, str], session_ms: int) -> None:
    orders = Orders(session_ms)
    consumer = KafkaConsumer(names[2], **settings_of(names, session_ms))
    while orders.goes_on:
        try:
            found = consumer.poll(timeout_ms=200)
            tell((record.partition, record.offset) for part in found.values() for record in part)
            time.sleep(orders.seconds_to_lose())
            if found:
                consumer.commit()
        except KafkaPythonError as error:
            print(type(error).__name__, file=sys.stderr, flush=True)
    consumer.close(autocommit=False)


def main(client: str, bootstrap: str, group: str, topic: str, session_ms: str) -> None:
    names = bootstrap, group, topic
    if client == "aiokafka":
        asyncio.run(run_aiokafka(names, int(session_ms)))
    elif client == "kafka-python":
        run_kafka_python(names, int(session_ms))
    else:
        protocol = "consumer" if client == "confluent-newer" else "classic"
        run_confluent(protocol, names, int(session_ms))


if __name__ == "__main__":
    main(*sys.argv[1:])
