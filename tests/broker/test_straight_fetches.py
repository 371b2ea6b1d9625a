"""Fetches of one partition without a session go straight through, and are answered as those that
go the long way (R3, R4, L6)."""

from typing import Any

import pytest

from support.brokers import FETCH, SimNode, one_batch
from tidelog.handlers.api import Part, Request
from tidelog.handlers.fetch import API
from tidelog.handlers.straight_fetch import answer_straight
from tidelog.log.partition_log import Slice
from tidelog.wire.fetch import FetchRequest

TOPIC = "events"
VERSION = 17
ENOUGH = 1 << 20
NO_SESSION, NEW_SESSION = -1, 0
SMALL, LARGE = "x" * 1_000, "x" * 120_000


class Consumer:
    """A broker with one topic, and who reads from it."""

    def __init__(self) -> None:
        self.node = SimNode(log_segment_bytes=1 << 20)
        self.node.disk.cold_share = 0.0
        self.client = self.node.client()
        self.client.create(TOPIC)
        self.topic_id = self.node.broker.partitions.find(TOPIC, 0).topic_id

    def fill(self, *values: str) -> None:
        for value in values:
            self.client.produce(TOPIC, one_batch(value))

    def fetch(self, session_epoch: int, offset: int, epoch: int, **values: Any) -> Any:
        """What is told of the partition."""
        partition = {
            "partition": 0,
            "fetch_offset": offset,
            "partition_max_bytes": values.pop("partition_max_bytes", ENOUGH),
            "current_leader_epoch": epoch,
        }
        given = {"max_wait": 0, "min_bytes": 1, "max_bytes": ENOUGH, "forgotten_topics_data": []}
        topics = [{"topic_id": self.topic_id, "partitions": [partition]}]
        answer = self.client.ask(
            FETCH, VERSION, **(given | values), topics=topics, session_epoch=session_epoch
        )
        assert (answer.session_id > 0) == (session_epoch == NEW_SESSION)
        return answer.responses

    def straight(self, *, offset: int = 0, epoch: int = -1, **fields: int) -> list[Part] | None:
        fetch = FetchRequest()
        fetch.min_bytes = 1
        for name, value in fields.items():
            setattr(fetch, name, value)
        fetch.partitions.append((self.topic_id, 0, epoch, offset, -1, -1, ENOUGH))
        broker: Any = self.node.broker
        (connection,) = broker.doors.connections
        return answer_straight(broker, Request(connection, API, VERSION, 7, "test", fetch))


@pytest.fixture
def consumer() -> Consumer:
    return Consumer()


@pytest.mark.parametrize("isolation_level", [0, 1])
@pytest.mark.parametrize("limit", [1, 3_000, 250_000, ENOUGH])
@pytest.mark.parametrize("offset", [-1, 0, 2, 3, 10, 14, 15])
def test_an_answer_without_a_session_says_what_one_with_a_session_says(
    consumer: Consumer, offset: int, limit: int, isolation_level: int
) -> None:
    consumer.fill(*[SMALL] * 10, *[LARGE] * 4)
    for limits in ({"max_bytes": limit}, {"partition_max_bytes": limit}):
        for epoch in (-1, 0, 1):
            asked = {"offset": offset, "epoch": epoch, "isolation_level": isolation_level}
            plain = consumer.fetch(NO_SESSION, **asked, **limits)
            assert plain == consumer.fetch(NEW_SESSION, **asked, **limits)


def test_what_is_there_goes_straight_through(consumer: Consumer) -> None:
    consumer.fill(*[SMALL] * 3)
    parts = consumer.straight()
    assert parts is not None
    (whole,) = parts
    assert isinstance(whole, bytes)
    assert len(whole) == 4 + int.from_bytes(whole[:4])
    consumer.fill(*[LARGE] * 3)
    parts = consumer.straight(isolation_level=1)
    assert parts is not None
    head, records, end = parts
    assert isinstance(head, bytes)
    assert isinstance(records, Slice)
    assert isinstance(end, bytes)
    assert len(head) + records.size + len(end) == 4 + int.from_bytes(head[:4])


@pytest.mark.parametrize(
    "asked",
    [
        {"offset": 1},
        {"offset": 2},
        {"epoch": 1},
        {"min_bytes": ENOUGH},
        {"replica_id": 1},
        {"session_epoch": 0},
        {"session_id": 1},
    ],
)
def test_what_has_to_wait_or_is_wrong_or_has_a_session_goes_the_long_way(
    consumer: Consumer, asked: dict[str, int]
) -> None:
    consumer.fill(SMALL)
    assert consumer.straight() is not None
    assert consumer.straight(**asked) is None


def test_cold_pages_are_not_sent_straight_through(consumer: Consumer) -> None:
    """They are read beside the loop first."""
    consumer.fill(*[LARGE] * 30)
    consumer.node.disk.cold_share = 0.0
    assert consumer.straight() is not None
    consumer.node.disk.cold_share = 1.0
    assert consumer.straight() is None


def test_a_disk_that_fails_is_told(consumer: Consumer) -> None:
    """S10."""
    consumer.fill(SMALL)
    consumer.node.disk.fail(5, operations=("pread",), path="*.log", times=2)
    ((row,),) = (topic.partitions for topic in consumer.fetch(NO_SESSION, 0, -1))
    assert row.error_code.name == "kafka_storage_error"
    assert not row.records
