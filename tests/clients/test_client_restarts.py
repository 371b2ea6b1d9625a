"""A broker that is stopped or killed while confluent-kafka writes to it has everything again
that it acknowledged: records at their offsets, topics and their ids, settings (R5, A1)."""

import threading
import time
from typing import Any

import pytest
from confluent_kafka import Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from clients.confluent import consumer, send, take
from clients.samples import Sample, stored_batches
from clients.settling import settled
from support.servers import Server

PARTITIONS = 3
ACKNOWLEDGED_BEFORE_THE_END = 300


class Writer:
    """Writes numbers with acks=all from its own thread until `finish`, and keeps what was
    acknowledged: partition and offset of each number. An idempotent producer that sends a batch
    again may be told that it was there already, without its offset: then that is -1."""

    def __init__(self, bootstrap: str, topic: str, *, idempotent: bool) -> None:
        self.acknowledged: dict[int, tuple[int, int]] = {}
        self.sent = 0
        self._topic = topic
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "enable.idempotence": idempotent,
                "linger.ms": 1,
                "batch.num.messages": 20,
                "reconnect.backoff.max.ms": 200,
                "retry.backoff.ms": 20,
                "log_level": 0,
            }
        )
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._write)
        self._thread.start()

    def await_acknowledged(self, count: int) -> None:
        deadline = time.monotonic() + 60
        while len(self.acknowledged) < count:
            assert time.monotonic() < deadline, f"{len(self.acknowledged)} of {count} acknowledged"
            time.sleep(0.005)

    def finish(self) -> None:
        self._is_over.set()
        self._thread.join(120)
        assert not self._thread.is_alive()

    def _write(self) -> None:
        while not self._is_over.is_set():
            number = self.sent
            self._producer.produce(
                self._topic,
                value=b"%d" % number,
                partition=number % PARTITIONS,
                on_delivery=self._delivered,
            )
            self.sent += 1
            self._producer.poll(0.001)
        assert self._producer.flush(60) == 0

    def _delivered(self, error: Any, message: Any) -> None:
        if error is None:
            self.acknowledged[int(message.value())] = (message.partition(), message.offset())


def everything(bootstrap: str, topic: str) -> dict[tuple[int, int], int]:
    """What the topic has, by partition and offset."""
    with consumer(bootstrap) as reader:
        places = [TopicPartition(topic, n, 0) for n in range(PARTITIONS)]
        ends = [reader.get_watermark_offsets(place, timeout=60)[1] for place in places]
        reader.assign(places)
        found = take(reader, sum(ends))
    return {(message.partition(), message.offset()): int(message.value()) for message in found}


def topic_state(admin: AdminClient, topic: str) -> tuple[str, int, dict[str, str]]:
    """Its id, the number of its partitions, and its own settings."""
    (described,) = admin.describe_topics(TopicCollection([topic])).values()
    resource = ConfigResource(ResourceType.TOPIC, topic)
    (configs,) = admin.describe_configs([resource]).values()
    description = described.result(60)
    settings = {
        name: entry.value for name, entry in configs.result(60).items() if not entry.is_default
    }
    return str(description.topic_id), len(description.partitions), settings


def changes(admin: AdminClient) -> tuple[int, str | None, str | None]:
    """Of the topic that is changed after it was made: its partitions and two settings."""
    _, count, settings = topic_state(admin, "changed")
    return count, settings.get("retention.ms"), settings.get("max.message.bytes")


def make_topics(admin: AdminClient) -> None:
    """One for the records, one that is changed after it was made, one that is deleted."""
    topics = [
        NewTopic("written", PARTITIONS, 1, config={"segment.bytes": "1048576"}),
        NewTopic("changed", 1, 1, config={"retention.ms": "1234567"}),
        NewTopic("deleted", 1, 1),
    ]
    for made in admin.create_topics(topics).values():
        made.result(60)
    for grown in admin.create_partitions([NewPartitions("changed", 4)]).values():
        grown.result(60)
    entry = ConfigEntry("max.message.bytes", "77777", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, "changed", incremental_configs=[entry])
    for changed in admin.incremental_alter_configs([resource]).values():
        changed.result(60)
    for deleted in admin.delete_topics(["deleted"]).values():
        deleted.result(60)


@pytest.mark.parametrize("idempotent", [True, False], ids=["idempotent", "plain"])
@pytest.mark.parametrize("end", ["stop", "kill"])
def test_restart_keeps_all_that_was_acknowledged(
    own_broker: Server, end: str, idempotent: bool
) -> None:
    own_broker.start()
    admin = AdminClient({"bootstrap.servers": own_broker.address, "log_level": 0})
    make_topics(admin)
    assert settled(lambda: changes(admin) == (4, "1234567", "77777")), changes(admin)
    cluster_id = admin.describe_cluster().result(60).cluster_id
    states = {topic: topic_state(admin, topic) for topic in ("written", "changed")}
    writer = Writer(own_broker.address, "written", idempotent=idempotent)
    try:
        writer.await_acknowledged(ACKNOWLEDGED_BEFORE_THE_END)
        (own_broker.stop if end == "stop" else own_broker.kill)()
        at_the_end = len(writer.acknowledged)
        own_broker.start()
        writer.await_acknowledged(at_the_end + ACKNOWLEDGED_BEFORE_THE_END)
    finally:
        writer.finish()

    found = everything(own_broker.address, "written")
    numbers = set(found.values())
    for number, place in writer.acknowledged.items():
        assert found.get(place) == number or (place[1] < 0 and number in numbers), (number, place)
    for partition in range(PARTITIONS):
        offsets = sorted(offset for where, offset in found if where == partition)
        assert offsets == list(range(len(offsets)))
    if idempotent:
        assert sorted(found.values()) == list(range(writer.sent)), "each number is there once"
    assert {topic: topic_state(admin, topic) for topic in states} == states
    assert "deleted" not in admin.list_topics(timeout=60).topics
    assert admin.describe_cluster().result(60).cluster_id == cluster_id


def test_restart_keeps_the_start_of_a_log_whose_records_were_deleted(own_broker: Server) -> None:
    """S5"""
    own_broker.start()
    admin = AdminClient({"bootstrap.servers": own_broker.address, "log_level": 0})
    make_topics(admin)
    writer = Producer({"bootstrap.servers": own_broker.address, "log_level": 0})
    send(writer, "written", [Sample(key=None, value=b"")] * 20, partition=0)
    for deleted in admin.delete_records([TopicPartition("written", 0, 7)]).values():
        assert deleted.result(60).low_watermark == 7
    own_broker.stop()
    own_broker.start()
    with consumer(own_broker.address) as reader:
        watermarks = reader.get_watermark_offsets(TopicPartition("written", 0), timeout=60)
    assert watermarks == (7, 20)


def test_restarted_broker_gives_no_producer_id_twice(own_broker: Server) -> None:
    own_broker.start()
    before = [_producer_id(own_broker, f"before-{n}") for n in range(2)]
    own_broker.kill()
    own_broker.start()
    after = [_producer_id(own_broker, f"after-{n}") for n in range(2)]
    assert len({*before, *after}) == 4


def _producer_id(server: Server, topic: str) -> int:
    """That of a new producer, which writes to a new topic."""
    writer = Producer(
        {"bootstrap.servers": server.address, "enable.idempotence": True, "log_level": 0}
    )
    send(writer, topic, [Sample(key=None, value=b"")])
    (batch,) = stored_batches(server.log_dir, topic)
    return batch.producer_id
