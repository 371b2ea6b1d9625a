"""Random histories of a whole broker on virtual time, and the model they are compared with.

A history is a list of moves drawn from a seed: produces of all kinds, fetches, topics made,
grown, changed and deleted, records deleted, time that passes, disks that fail, and ends of the
process and of the machine, in the middle of anything. The model knows what was promised: a
record that was acknowledged is at its offset until somebody takes it away; a topic whose
making was answered is there. What was under way at a crash may have happened or not.
"""

import errno
from random import Random
from typing import Any

from support.brokers import (
    CREATE_TOPICS,
    DELETE_TOPICS,
    INCREMENTAL_ALTER_CONFIGS,
    METADATA,
    SimClient,
    SimNode,
)
from tidelog.base.errors import KafkaError
from tidelog.records.reference import Record, encode_batch, read_records
from tidelog.serving.fetch_sessions import Position

DELETE_RECORDS, INIT_PRODUCER_ID, CREATE_PARTITIONS = 21, 22, 37
TOPICS = ("a", "b", "durable")
CLIENTS = 4
EXPECTED = {
    "none",
    "unknown_topic_or_partition",
    "topic_already_exists",
    "invalid_partitions",
    "offset_out_of_range",
    "kafka_storage_error",
    "not_leader_or_follower",
}
ODDS = {
    "produce": 40,
    "produce_large": 6,
    "produce_again": 8,
    "fetch": 14,
    "wait_for_more": 6,
    "in_session": 10,
    "create": 8,
    "delete": 3,
    "grow": 3,
    "alter": 4,
    "delete_records": 5,
    "pass_time": 8,
}

Partition = tuple[str, int]


class Model:
    """What was promised, and what may be."""

    def __init__(self) -> None:
        self.topics: dict[str, int] = {}
        """How many partitions each has, at least, of those that are there for certain."""
        self.unsure: set[str] = set()
        """Those of which it is not known whether they are there, or which of that name."""
        self.acknowledged: dict[Partition, dict[int, str]] = {}
        self.starts: dict[Partition, int] = {}
        self.sent: dict[Partition, set[str]] = {}

    def forget(self, topic: str) -> None:
        for key in [key for key in self.acknowledged if key[0] == topic]:
            del self.acknowledged[key]
        for key in [key for key in self.starts if key[0] == topic]:
            del self.starts[key]


class History:
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.node = SimNode(
            seed,
            log_dirs="/data,/more",
            connections_max_idle_ms=1 << 40,
            log_segment_bytes=1_048_576,
            log_retention_check_interval_ms=60_000,
            log_segment_delete_delay_ms=1_000,
        )
        self.node.disk.cold_share = self.random.choice((0.0, 0.2, 1.0))
        self.model = Model()
        self.has_fault = False
        self.values = 0
        self.last: dict[SimClient, tuple[Partition, bytes, str, int]] = {}
        self.producers: dict[SimClient, list[int]] = {}
        self.sessions: dict[SimClient, tuple[int, int, dict[Partition, int]]] = {}
        self.meet()

    def meet(self) -> None:
        """New clients, for those of a broker that is gone are gone too."""
        self.clients = [self.node.client() for _ in range(CLIENTS)]
        self.producers.clear()
        self.sessions.clear()
        self.last.clear()

    # -- running

    def run(self, moves: int) -> None:
        for _ in range(moves):
            self.one_turn()
        if self.has_fault:
            self.end("stop")
        self.verify()
        self.check_nothing_is_left()

    def one_turn(self) -> None:
        """Several clients do something at a time; they are waited for, or something ends."""
        draw = self.random
        clients = draw.sample(self.clients, draw.randint(1, CLIENTS))
        asked = [(client, *self.ask(client)) for client in clients]
        how = draw.choices(
            ["wait", "stop", "kill", "lose_power", "fail"],
            [100, 2, 4, 2, 0 if self.has_fault else 2],
        )[0]
        if how in ("wait", "fail"):
            if how == "fail":
                self.fail_a_disk()
            for client, take in [(row[0], row[-1]) for row in asked]:
                if take is not None:
                    take(client.wait())
        else:
            self.node.loop.run_for(draw.choice((0, 1, 3, 10, 30)))
            for client, take in [(row[0], row[-1]) for row in asked]:
                if take is not None and len(client.answers) > client_had(client):
                    take(client.answers[-1])
            self.end(how)
            self.verify()

    def fail_a_disk(self) -> None:
        self.has_fault = True
        number = self.random.choice((errno.EIO, errno.ENOSPC))
        self.node.disk.fail(number, path="/more/*", skip=self.random.randint(0, 20))

    def end(self, how: str) -> None:
        node = self.node
        loses = self.has_fault
        if how == "stop":
            node.stop()
            node._begin_anew()
        elif how == "kill":
            node.kill()
        else:
            loses = True
            node.lose_power(self.random.choice(("all", "some", "none")))
        node.disk.heal()
        self.has_fault = False
        node.start()
        self.meet()
        self.resolve()
        if loses:
            self.accept_losses()

    def resolve(self) -> None:
        """Finds out what has become of the topics that nobody was told of."""
        found = self.clients[0].ask(
            METADATA, 12, topics=None, include_topic_authorized_operations=False
        )
        counts = {topic.name: len(topic.partitions) for topic in found.topics}
        for topic, count in self.model.topics.items():
            if topic not in self.model.unsure:
                assert counts.get(topic, 0) >= count, f"{topic} of {count} partitions is there"
        for topic in self.model.unsure:
            self.model.forget(topic)
        self.model.unsure.clear()
        self.model.topics = counts

    def accept_losses(self) -> None:
        """What was not synced may be gone, from the end of a log; never what was flushed."""
        for key, records in self.model.acknowledged.items():
            end = self.log_end(key)
            if key[0] == "durable" and records:
                assert end > max(records), f"{key} was flushed before it was acknowledged"
            for offset in [offset for offset in records if offset >= end]:
                del records[offset]

    def log_end(self, key: Partition) -> int:
        return int(self.node.broker.partitions.find(*key).log.log_end_offset)

    # -- what clients do

    def ask(self, client: SimClient) -> tuple[Any, ...]:
        """Sends something; returns what is to be done with the answer."""
        _had[client] = len(client.answers)
        name = self.random.choices(list(ODDS), list(ODDS.values()))[0]
        return (getattr(self, f"ask_{name}")(client),)

    def some_partition(self) -> Partition:
        topic = self.random.choice(TOPICS)
        return topic, self.random.randrange(max(1, self.model.topics.get(topic, 1)))

    def ask_produce(self, client: SimClient, size: int = 5) -> Any:
        key = self.some_partition()
        self.values += 1
        value = f"{self.values:06}" + "x" * self.random.randrange(size)
        fields: dict[str, Any] = {}
        producer = self.producers.get(client)
        if producer is not None and self.random.random() < 0.5:
            producer_id, epoch, at = producer[0], producer[1], 2 + TOPICS.index(key[0]) * 8 + key[1]
            fields = {"producer_id": producer_id, "producer_epoch": epoch}
            fields["base_sequence"] = producer[at]
            producer[at] += 1
        timestamp = self.node.clock.now_ms()
        record = Record(offset=0, timestamp=timestamp, key=b"k", value=value.encode())
        batch = bytes(encode_batch([record], **fields))
        self.model.sent.setdefault(key, set()).add(value)
        client.send_produce(key[0], batch, index=key[1])
        unsure = key[0] in self.model.unsure

        def take(answer: Any) -> None:
            row = answer.responses[0].partition_responses[0]
            name = row.error_code.name
            if fields:
                if name != "none":
                    self.producers.pop(client, None)
                assert name in EXPECTED | {"out_of_order_sequence_number"}, name
            else:
                assert name in EXPECTED, name
            if name == "none":
                self.acknowledge(key, row.base_offset, value, unsure)
                self.last[client] = (key, batch, value, row.base_offset) if fields else _NOTHING

        return take

    def acknowledge(self, key: Partition, offset: int, value: str, unsure: bool) -> None:
        if not unsure and key[0] not in self.model.unsure:
            known = self.model.acknowledged.setdefault(key, {})
            assert known.get(offset, value) == value, f"two records at {key} {offset}"
            known[offset] = value

    def ask_produce_large(self, client: SimClient) -> Any:
        return self.ask_produce(client, 600_000)

    def ask_produce_again(self, client: SimClient) -> Any:
        """The same batch of an idempotent producer has the same offset (P3)."""
        if client not in self.producers:
            client.send(
                INIT_PRODUCER_ID,
                4,
                transactional_id=None,
                transaction_timeout=1000,
                producer_id=-1,
                producer_epoch=-1,
            )

            def know(answer: Any) -> None:
                if answer.error_code.name == "none":
                    sequences = [0] * (len(TOPICS) * 8)
                    self.producers[client] = [answer.producer_id, answer.producer_epoch, *sequences]

            return know
        key, batch, _, offset = self.last.get(client, _NOTHING)
        if not batch or key[0] in self.model.unsure:
            return None
        client.send_produce(key[0], batch, index=key[1])

        def take(answer: Any) -> None:
            row = answer.responses[0].partition_responses[0]
            if row.error_code.name == "none" and key[0] not in self.model.unsure:
                assert row.base_offset == offset, "a batch is appended once"

        return take

    def ask_fetch(self, client: SimClient, max_wait: int = 0) -> Any:
        key = self.some_partition()
        known = self.model.acknowledged.get(key, {})
        start = self.random.choice([0, *known]) if not max_wait else len(known)
        client.send_fetch([(key[0], key[1], start)], max_wait=max_wait)

        def take(answer: Any) -> None:
            found = answer.responses[0].partitions[0]
            assert found.error_code.name in EXPECTED, found.error_code
            self.check_fetched(key, found)

        return take

    def ask_in_session(self, client: SimClient) -> Any:
        """A consumer of everything that goes on from where it was told it is."""
        if client not in self.sessions or self.random.random() < 0.1:
            session_id, _, places = self.sessions.get(client, (0, 0, {}))
            places = {(topic, index): 0 for topic in TOPICS for index in range(3)}
            self.sessions[client] = (session_id, 0, places)
        session_id, epoch, places = self.sessions[client]
        moved = places if epoch == 0 else dict(self.random.sample(list(places.items()), 2))
        wanted = [(topic, index, offset) for (topic, index), offset in moved.items()]
        wait_ms = self.random.choice((0, 30))
        client.send_fetch(wanted, session_id=session_id, session_epoch=epoch, max_wait=wait_ms)

        def take(answer: Any) -> None:
            if answer.error_code.name != "none":
                del self.sessions[client]
                return
            self.sessions[client] = (answer.session_id, epoch + 1, places)
            for topic in answer.responses:
                for found in topic.partitions:
                    assert found.error_code.name in EXPECTED, found.error_code
                    self.check_fetched((topic.topic, found.partition_index), found)
                    if found.error_code.name == "offset_out_of_range":
                        places[topic.topic, found.partition_index] = found.log_start_offset
                    for offset, _ in records_of(found.records):
                        places[topic.topic, found.partition_index] = offset + 1

        return take

    def check_fetched(self, key: Partition, found: Any) -> None:
        known = self.model.acknowledged.get(key, {})
        if found.error_code.name == "none" and key[0] not in self.model.unsure:
            for offset, value in records_of(found.records):
                assert offset < found.high_watermark, "nobody sees what is not committed"
                assert known.get(offset, value) == value, f"{key} {offset}"

    def ask_wait_for_more(self, client: SimClient) -> Any:
        return self.ask_fetch(client, self.random.choice((1, 20, 500)))

    def ask_create(self, client: SimClient) -> Any:
        topic = self.random.choice(TOPICS)
        configs = [{"name": "flush.messages", "value": "1"}] if topic == "durable" else []
        new = {"name": topic, "num_partitions": self.random.randint(1, 3)}
        new |= {"replication_factor": 1, "assignments": [], "configs": configs}
        client.send(CREATE_TOPICS, 7, topics=[new], timeout=60_000, validate_only=False)
        if topic not in self.model.topics:
            self.model.unsure.add(topic)

        def take(answer: Any) -> None:
            code = answer.topics[0].error_code.name
            assert code in EXPECTED | {"unknown_server_error"}, code
            self.learn(topic)

        return take

    def ask_delete(self, client: SimClient) -> Any:
        topic = self.random.choice(TOPICS)
        client.send(DELETE_TOPICS, 5, topic_names=[topic], timeout=60_000)
        self.model.unsure.add(topic)

        def take(answer: Any) -> None:
            assert answer.responses[0].error_code.name in EXPECTED
            self.learn(topic)

        return take

    def learn(self, topic: str) -> None:
        """Looks into the broker itself: a topic that was made or deleted side by side with
        others is what it is."""
        info = self.node.broker.metadata.image.topics.get(topic)
        if topic in self.model.unsure:
            self.model.forget(topic)
            self.settle(topic, 0 if info is None else len(info.partitions))

    def settle(self, topic: str, count: int) -> None:
        self.model.topics.pop(topic, None)
        if count:
            self.model.topics[topic] = count

    def ask_grow(self, client: SimClient) -> Any:
        topic = self.random.choice(TOPICS)
        count = self.model.topics.get(topic, 1) + 1
        if count > 6:
            return None
        new = {"name": topic, "count": count, "assignments": None}
        client.send(CREATE_PARTITIONS, 3, topics=[new], timeout=60_000, validate_only=False)

        def take(answer: Any) -> None:
            code = answer.results[0].error_code.name
            assert code in EXPECTED, code
            if code == "none" and topic in self.model.topics and topic not in self.model.unsure:
                self.model.topics[topic] = max(count, self.model.topics[topic])

        return take

    def ask_alter(self, client: SimClient) -> Any:
        name, values = self.random.choice(
            [("segment.bytes", ("1048576", "2000000")), ("message.timestamp.type", ("CreateTime",))]
        )
        change = {"name": name, "config_operation": 0, "value": self.random.choice(values)}
        resource = {"resource_type": 2, "resource_name": self.random.choice(TOPICS)}
        client.send(
            INCREMENTAL_ALTER_CONFIGS,
            1,
            resources=[resource | {"configs": [change]}],
            validate_only=False,
        )
        return lambda _: None

    def ask_delete_records(self, client: SimClient) -> Any:
        key = self.some_partition()
        known = self.model.acknowledged.get(key)
        offset = self.random.choice(list(known)) if known else 0
        asked = [{"partition_index": key[1], "offset": offset}]
        client.send(
            DELETE_RECORDS, 2, topics=[{"name": key[0], "partitions": asked}], timeout=60_000
        )

        def take(answer: Any) -> None:
            row = answer.topics[0].partitions[0]
            assert row.error_code.name in EXPECTED
            if row.error_code.name == "none" and key[0] not in self.model.unsure:
                self.model.starts[key] = max(self.model.starts.get(key, 0), row.low_watermark)

        return take

    def ask_pass_time(self, _client: SimClient) -> Any:
        self.node.loop.run_for(self.random.choice((100, 5_000, 70_000, 700_000)))

    # -- what must hold

    def verify(self) -> None:
        """Reads everything there is."""
        for topic, count in self.model.topics.items():
            for index in range(count):
                self.verify_partition((topic, index))

    def verify_partition(self, key: Partition) -> None:
        try:
            partition = self.node.broker.partitions.find(*key)
        except KafkaError:
            if not self.has_fault:
                raise
            return
        start, end = partition.log.log_start_offset, partition.high_watermark
        assert start >= self.model.starts.get(key, 0), "what was deleted does not come back"
        found = dict(self.read_all(key, start, end))
        assert list(found) == list(range(start, end)), f"{key}: offsets without gaps"
        assert len(set(found.values())) == len(found), f"{key}: nothing is there twice"
        assert set(found.values()) <= self.model.sent.get(key, set())
        for offset, value in self.model.acknowledged.get(key, {}).items():
            if offset >= start:
                assert found.get(offset) == value, f"{key} {offset}: was acknowledged"

    def read_all(self, key: Partition, start: int, end: int) -> list[tuple[int, str]]:
        client, found = self.clients[0], []
        while start < end:
            client.send_fetch([(key[0], key[1], start)])
            row = client.wait().responses[0].partitions[0]
            assert row.error_code.name == "none", row.error_code
            found += [item for item in records_of(row.records) if item[0] >= start]
            start = found[-1][0] + 1
        return found

    def check_nothing_is_left(self) -> None:
        broker = self.node.broker
        for client in self.clients:
            client.link.close()
        self.node.loop.run_for(2_000)
        assert not broker.doors.connections
        assert broker.doors.owed_bytes == 0
        assert broker.slow_appends.is_idle
        live = broker.sessions._by_id
        for partition in broker.partitions:
            for waiter in partition.waiters:
                assert isinstance(waiter, Position)
                assert live.get(waiter.session.id) is waiter.session, "a session that is over waits"


_NOTHING: tuple[Partition, bytes, str, int] = (("", 0), b"", "", 0)
_had: dict[SimClient, int] = {}


def client_had(client: SimClient) -> int:
    """How many answers it had when it last asked."""
    return _had[client]


def records_of(data: bytes | None) -> list[tuple[int, str]]:
    """Offset and value of every record in a run of whole batches."""
    found: list[tuple[int, str]] = []
    rest = memoryview(data or b"")
    while len(rest) > 12:
        size = 12 + int.from_bytes(rest[8:12], "big")
        if size > len(rest):
            break
        found += [(r.offset, (r.value or b"").decode()) for r in read_records(rest[:size])]
        rest = rest[size:]
    return found
