"""A broker that was cut off takes itself for the leader still: no record is lost by that (P3)."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final
from uuid import UUID

import pytest

from support import scripted_brokers
from support.scripted_brokers import METADATA, ScriptedBrokers
from tidelog.base.errors import ErrorCode
from tidelog.client.cluster import NO_LEADER, text_of_id
from tidelog.client.sockets import now_ms
from tidelog.spark.logs import BrokerLogs
from tidelog.spark.losses import DataLoss
from tidelog.spark.options import SourceOptions
from tidelog.spark.stream_planning import IDLE_MS, StreamPlanner

DEPOSED, LEADER, OTHER = 1, 2, 3
LIST_OFFSETS, DESCRIBE_LOG_DIRS, LATEST, EARLIEST = 2, 35, -1, -2
ENDS = {DEPOSED: 1, LEADER: 3}
UNKNOWN: Final = {
    "error_code": ErrorCode.unknown_topic_or_partition,
    "name": "t",
    "topic_id": UUID(int=0),
    "is_internal": False,
    "partitions": [],
}


class Brokers(ScriptedBrokers):
    added = 0
    """So many partitions were added since one of them was cut off."""
    former_id = UUID(int=7)
    """Of the topic, by what that one says."""
    has_heard = True
    """Whether that one knows of the topic at all."""
    is_deleted = False
    """By what the others say."""
    leaderless = 0
    """So many times yet nobody is known to lead."""

    def _values(self, number: int, key: int, body: Any) -> Any:
        values = super()._values(number, key, body)
        if key != METADATA:
            return values
        is_known = self.has_heard if number == DEPOSED else not self.is_deleted
        if not is_known:
            return {**values, "cluster_id": "c", "topics": [UNKNOWN]}
        leader, epoch = (DEPOSED, 0) if number == DEPOSED else (LEADER, 1)
        if self.leaderless:
            self.leaderless -= 1
            leader = NO_LEADER
        partitions = [
            {
                "error_code": ErrorCode.none,
                "partition_index": index,
                "leader_id": leader,
                "leader_epoch": epoch,
                "replica_nodes": [DEPOSED, LEADER, OTHER],
                "isr_nodes": [leader],
            }
            for index in range(1 if number == DEPOSED else 1 + self.added)
        ]
        topic = {
            "error_code": ErrorCode.none,
            "name": "t",
            "topic_id": self.former_id if number == DEPOSED else UUID(int=7),
            "is_internal": False,
            "partitions": partitions,
        }
        return {**values, "cluster_id": "c", "topics": [topic]}

    def die(self, number: int) -> None:
        self._listeners[number].shutdown(socket.SHUT_RDWR)
        self._listeners[number].close()
        self.lose_connections()


def answer(number: int, key: int, body: Any) -> dict[str, Any]:
    assert key == LIST_OFFSETS
    rows = [
        {
            "partition_index": asked.partition_index,
            "error_code": ErrorCode.none,
            "timestamp": -1,
            "offset": ENDS[number] if asked.timestamp == LATEST else 0,
            "leader_epoch": 0,
        }
        for asked in body.topics[0].partitions
    ]
    return {"topics": [{"name": "t", "partitions": rows}]}


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> Iterator[Brokers]:
    monkeypatch.setattr(scripted_brokers, "BROKERS", (DEPOSED, LEADER, OTHER))
    monkeypatch.setitem(scripted_brokers._SERVED_MAX, LIST_OFFSETS, 7)
    made = Brokers(answer, ())
    try:
        yield made
    finally:
        made.close()


class Clock:
    def __init__(self) -> None:
        self._passed_ms = 0

    def now_ms(self) -> int:
        self._passed_ms += IDLE_MS
        return now_ms() + self._passed_ms


@contextmanager
def planner(brokers: Brokers, *order: int, **more: str) -> Iterator[StreamPlanner]:
    given = {
        "kafka.bootstrap.servers": ",".join(brokers.addresses[number] for number in order),
        "subscribe": "t",
        "startingOffsets": "earliest",
        "fetchOffset.retryIntervalMs": "10",
        **more,
    }
    options = SourceOptions.parse(given, is_stream=True)
    logs = BrokerLogs(options.connecting, options.subscription)
    try:
        yield StreamPlanner(options, logs, Clock().now_ms)
    finally:
        logs.close()


def test_a_leader_that_was_deposed_is_not_believed_again(brokers: Brokers) -> None:
    """The one that was asked so far dies, and the next one has not heard of the new leader."""
    with planner(brokers, OTHER, DEPOSED, LEADER) as query:
        first = query.next(query.initial(), is_limited=False)
        assert first["to"]["t"]["partitions"] == {"0": 3}
        brokers.die(OTHER)
        assert query.next(first, is_limited=False) == first


def test_a_partition_is_not_gone_where_a_broker_has_not_heard_of_it(brokers: Brokers) -> None:
    """The one that was asked so far dies, and the next one does not know that the topic grew."""
    brokers.added = 1
    with planner(brokers, OTHER, DEPOSED, LEADER) as query:
        first = query.next(query.initial(), is_limited=False)
        assert first["to"]["t"]["partitions"] == {"0": 3, "1": 3}
        brokers.die(OTHER)
        assert query.next(first, is_limited=False) == first


@pytest.mark.parametrize("is_bounded", [False, True])
def test_a_query_that_comes_back_asks_all_which_partitions_there_are(
    brokers: Brokers, is_bounded: bool
) -> None:
    """Before it says that one is gone; also where nothing was read of the others yet."""
    brokers.added = 1
    with planner(brokers, LEADER) as query:
        first = query.next(query.initial(), is_limited=False)
    first["to"]["t"]["partitions"]["0"] = ENDS[DEPOSED]
    with planner(brokers, DEPOSED, OTHER, LEADER) as later:
        if is_bounded:
            later.stop_at_what_is_there()
        second = later.next(first, is_limited=False)
    assert second["from"]["t"]["partitions"] == {"0": ENDS[DEPOSED], "1": 3}
    assert second["to"]["t"]["partitions"] == {"0": 3, "1": 3}


@pytest.mark.parametrize("is_bounded", [False, True])
def test_a_query_that_comes_back_asks_all_who_leads(brokers: Brokers, is_bounded: bool) -> None:
    """Before it says that a log was cut off; also where it ends with what is there."""
    with planner(brokers, LEADER) as query:
        first = query.next(query.initial(), is_limited=False)
    with planner(brokers, DEPOSED, OTHER, LEADER) as later:
        if is_bounded:
            later.stop_at_what_is_there()
        assert later.next(first, is_limited=False) == first


@pytest.mark.parametrize("is_bounded", [False, True])
def test_a_topic_is_not_another_one_where_a_broker_knows_the_former(
    brokers: Brokers, is_bounded: bool
) -> None:
    """The topic was made again when that one was cut off already."""
    brokers.former_id = UUID(int=6)
    with planner(brokers, LEADER) as query:
        first = query.next(query.initial(), is_limited=False)
    with planner(brokers, DEPOSED, OTHER, LEADER) as later:
        if is_bounded:
            later.stop_at_what_is_there()
        assert later.next(first, is_limited=False) == first


@pytest.mark.parametrize("is_bounded", [False, True])
def test_a_topic_is_not_gone_where_a_broker_has_not_heard_of_it(
    brokers: Brokers, is_bounded: bool
) -> None:
    """The topic was made when that one was cut off already, or that one has just started."""
    brokers.has_heard = False
    with planner(brokers, LEADER) as query:
        first = query.next(query.initial(), is_limited=False)
    with planner(brokers, DEPOSED, OTHER, LEADER) as later:
        if is_bounded:
            later.stop_at_what_is_there()
        assert later.next(first, is_limited=False) == first


def test_a_new_query_finds_a_topic_of_which_a_broker_has_not_heard(brokers: Brokers) -> None:
    brokers.has_heard = False
    with planner(brokers, DEPOSED, OTHER, LEADER) as query:
        first = query.next(query.initial(), is_limited=False)
    assert first["to"]["t"]["partitions"] == {"0": 3}


def test_a_topic_of_which_one_broker_alone_has_not_heard_that_it_was_deleted_is_gone(
    brokers: Brokers,
) -> None:
    with planner(brokers, LEADER) as query:
        first = query.next(query.initial(), is_limited=False)
        brokers.is_deleted = True
        with pytest.raises(DataLoss, match="topic t is gone"):
            query.next(first, is_limited=False)


def test_a_topic_that_was_made_again_is_a_loss_where_no_broker_knows_the_former(
    brokers: Brokers,
) -> None:
    with planner(brokers, LEADER) as query:
        first = query.next(query.initial(), is_limited=False)
        first["to"]["t"]["id"] = text_of_id(UUID(int=5).bytes)
        with pytest.raises(DataLoss, match="topic t was deleted and made again"):
            query.next(first, is_limited=False)


def test_sizes_are_waited_for_while_a_leader_is_elected(
    brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P2: the leader has told where the log begins and ends, and dies. The query is not ended by
    that, as if brokers could not tell of sizes at all."""
    monkeypatch.setitem(scripted_brokers._SERVED_MAX, DESCRIBE_LOG_DIRS, 1)
    begun = 0

    def dying(number: int, key: int, body: Any) -> dict[str, Any]:
        nonlocal begun
        if key == DESCRIBE_LOG_DIRS:
            row = {"partition_index": 0, "partition_size": 300, "offset_lag": 0}
            topics = [{"name": "t", "partitions": [{**row, "is_future_key": False}]}]
            results = [{"error_code": ErrorCode.none, "log_dir": "/data", "topics": topics}]
            return {"results": results}
        if body.topics[0].partitions[0].timestamp == EARLIEST:
            # First for where the query begins, then beside the sizes.
            begun += 1
            brokers.leaderless = 2 if begun == 2 else 0
        return answer(number, key, body)

    monkeypatch.setattr(brokers, "_answer", dying)
    with planner(brokers, LEADER, maxBytesPerTrigger="200") as query:
        found = query.next(query.initial(), is_limited=True)
    assert begun >= 2
    assert found["to"]["t"]["partitions"] == {"0": 2}
