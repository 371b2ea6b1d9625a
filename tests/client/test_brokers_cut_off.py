"""A broker that is cut off from the others goes on telling who led before: whoever asks it first
finds the leader all the same, as the others know (P1, P5)."""

import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final
from uuid import UUID

import pytest

from support import scripted_brokers
from support.bulk import batch_of, read_all, whole
from support.scripted_brokers import METADATA, ScriptedBrokers
from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.base.ids import TopicPartition
from tidelog.client.client import Client
from tidelog.client.fetching import DataLost, RangeReader
from tidelog.client.offsets import LATEST, committed_offsets, list_offsets
from tidelog.client.writing import BatchWriter

CUT_OFF, DEPOSED, LEADER = 1, 2, 3
PRODUCE, LIST_OFFSETS, OFFSET_FETCH, FIND_COORDINATOR = 0, 2, 9, 10
RECORDS: Final = bytes(batch_of([b"a", b"b"]))
END: Final = 2
SHORT_MS: Final = 3_000


class Brokers(ScriptedBrokers):
    believed = DEPOSED
    """Who leads by what the one says that is cut off."""
    former_id = UUID(int=7)
    """Of the topic, by what it says."""
    has_heard = True
    """Whether it knows of the topic at all."""
    tells_ends = True
    """Whether there is anything in answers to ListOffsets."""

    def __init__(self) -> None:
        super().__init__(self._answer_of, ())

    def _values(self, number: int, key: int, body: Any) -> Any:
        values = super()._values(number, key, body)
        if key != METADATA:
            return values
        leader, epoch = (self.believed, 0) if number == CUT_OFF else (LEADER, 1)
        partition = {
            "error_code": ErrorCode.none,
            "partition_index": 0,
            "leader_id": leader,
            "leader_epoch": epoch,
            "replica_nodes": [CUT_OFF, DEPOSED, LEADER],
            "isr_nodes": [CUT_OFF, DEPOSED, LEADER],
        }
        is_known = number != CUT_OFF or self.has_heard
        topic = {
            "error_code": ErrorCode.none if is_known else ErrorCode.unknown_topic_or_partition,
            "name": "t",
            "topic_id": self.former_id if number == CUT_OFF else UUID(int=7),
            "is_internal": False,
            "partitions": [partition],
        }
        return {**values, "cluster_id": "c", "topics": [topic]}

    def _answer_of(self, number: int, key: int, _body: Any) -> Mapping[str, Any]:
        code = ErrorCode.none if number == LEADER else ErrorCode.not_leader_or_follower
        if number == CUT_OFF:
            # It waits for followers that went elsewhere.
            time.sleep(0.05)
            code = ErrorCode.request_timed_out
        row: dict[str, Any] = {"index": 0, "partition_index": 0, "error_code": code}
        if key == FIND_COORDINATOR:
            place = self.believed if number == CUT_OFF else LEADER
            row |= {"key": "g", "node_id": place, "error_code": ErrorCode.none}
            return {"coordinators": [row]}
        if key == OFFSET_FETCH:
            return {"groups": [self._group(number)]}
        if key == PRODUCE:
            return {"responses": [{"name": "t", "partition_responses": [row]}]}
        if key == LIST_OFFSETS:
            row |= {"timestamp": -1, "offset": END, "leader_epoch": 1}
            return {"topics": [{"name": "t", "partitions": [row]}] if self.tells_ends else []}
        row |= {"high_watermark": END, "last_stable_offset": END, "log_start_offset": 0}
        row |= {"aborted_transactions": None, "records": RECORDS}
        topics = [{"topic": "t", "partitions": [row]}]
        return {"error_code": ErrorCode.none, "session_id": 0, "responses": topics}

    def _group(self, number: int) -> Mapping[str, Any]:
        code = {CUT_OFF: ErrorCode.coordinator_not_available, DEPOSED: ErrorCode.not_coordinator}
        row: dict[str, Any] = {"partition_index": 0, "committed_offset": END, "metadata": ""}
        row |= {"committed_leader_epoch": -1, "error_code": ErrorCode.none}
        topics = [{"name": "t", "partitions": [row]}]
        return {"group_id": "g", "topics": topics, "error_code": code.get(number, ErrorCode.none)}


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> Iterator[Brokers]:
    monkeypatch.setattr(scripted_brokers, "BROKERS", (CUT_OFF, DEPOSED, LEADER))
    monkeypatch.setitem(scripted_brokers._SERVED_MAX, LIST_OFFSETS, 7)
    monkeypatch.setitem(scripted_brokers._SERVED_MAX, PRODUCE, 9)
    made = Brokers()
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def client(brokers: Brokers) -> Iterator[Client]:
    with Client(brokers.addresses[CUT_OFF], timeout_ms=SHORT_MS) as connected:
        yield connected


@pytest.mark.parametrize("believed", [CUT_OFF, DEPOSED])
def test_a_writer_finds_the_leader(brokers: Brokers, client: Client, believed: int) -> None:
    brokers.believed = believed
    with BatchWriter(client, is_idempotent=False, timeout_ms=SHORT_MS) as writer:
        writer.send("t", 0, batch_of([b"x"]))
        writer.flush()
        assert writer.acknowledged() == [("t", 0, 0, 1)]
    assert brokers.asked[-1] == (LEADER, PRODUCE)


def test_an_end_is_told_by_the_next_leader_where_the_one_before_has_just_left(
    brokers: Brokers, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P5: by the time the next broker is asked, the one it named is none of the cluster's."""
    assert client.cluster(["t"]).topic("t").partitions[0].leader == DEPOSED

    def leave(number: int, _key: int, _body: Any) -> Mapping[str, Any]:
        assert number == DEPOSED
        monkeypatch.setattr(scripted_brokers, "BROKERS", (CUT_OFF, LEADER))
        monkeypatch.setattr(brokers, "believed", LEADER)
        monkeypatch.setattr(brokers, "_answer", brokers._answer_of)
        brokers.lose_connections()
        raise ConnectionError

    monkeypatch.setattr(brokers, "_answer", leave)
    assert list_offsets(client, "t", {0: LATEST}) == {0: END}


def test_a_reader_finds_the_leader(client: Client) -> None:
    with RangeReader(client) as reader:
        assert read_all(reader, whole("t", END)) == [(0, b"a"), (1, b"b")]


def test_a_topic_that_was_made_again_is_read_though_one_broker_knows_the_former(
    brokers: Brokers, client: Client
) -> None:
    """It is not lost: with `failOnDataLoss=false` Spark would go on behind it."""
    brokers.former_id = UUID(int=6)
    wanted = replace(whole("t", END), topic_id=UUID(int=7).bytes)
    with RangeReader(client) as reader:
        assert read_all(reader, wanted) == [(0, b"a"), (1, b"b")]
        with pytest.raises(DataLost, match="deleted and made again"):
            read_all(reader, replace(wanted, topic_id=UUID(int=5).bytes))


@pytest.mark.parametrize("is_known", [False, True])
def test_a_topic_is_read_though_one_broker_has_not_heard_of_it(
    brokers: Brokers, client: Client, is_known: bool
) -> None:
    """It was made since that one was cut off."""
    brokers.has_heard = False
    wanted = replace(whole("t", END), topic_id=UUID(int=7).bytes if is_known else None)
    with RangeReader(client) as reader:
        assert read_all(reader, wanted) == [(0, b"a"), (1, b"b")]


def test_where_a_partition_ends_the_leader_says(client: Client) -> None:
    assert list_offsets(client, "t", {0: LATEST}) == {0: END}


def test_a_leader_that_says_nothing_is_not_asked_for_ever(brokers: Brokers, client: Client) -> None:
    brokers.believed, brokers.tells_ends = LEADER, False
    with pytest.raises(KafkaError, match="broker 3 says nothing of t-0"):
        list_offsets(client, "t", {0: LATEST})


@pytest.mark.parametrize("believed", [CUT_OFF, DEPOSED])
def test_a_group_finds_its_coordinator(brokers: Brokers, client: Client, believed: int) -> None:
    brokers.believed = believed
    assert committed_offsets(client, "g") == {TopicPartition("t", 0): END}
