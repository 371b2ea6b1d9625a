"""What a reader of ranges makes of answers without records: a hole that compaction left is passed
over, and nothing else is (P1).
"""

import socket
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

import pytest

from support.bulk import batch_of, read_all, whole
from support.scripted_brokers import scripted
from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.client.client import Client
from tidelog.client.fetching import RangeReader

END: Final = 10
SHORT_MS: Final = 5_000
LITTLE_MS: Final = 1_000
WAIT_SECONDS: Final = 0.02
PARTITION: Final = {
    "partition_index": 0,
    "error_code": ErrorCode.none,
    "leader_id": 1,
    "leader_epoch": 3,
    "replica_nodes": [1],
    "isr_nodes": [1],
}
TOPIC: Final = {"name": "old", "error_code": ErrorCode.none, "partitions": [PARTITION]}
RECORDS: Final = bytes(batch_of(b"%d" % number for number in range(END)))
FIRST: Final = bytes(batch_of(b"%d" % number for number in range(END // 2)))
SECOND: Final = (END // 2).to_bytes(8) + FIRST[8:]
"""A batch behind the first: its checksum does not cover where it begins."""


class Broker:
    """Has ten records in a batch, if any, and says so; at an offset before the last it hands them
    out only when it was asked often enough, as one that must fetch them from elsewhere."""

    def __init__(self, *, asked_min: float, is_empty: bool = False) -> None:
        self._asked_min = asked_min
        self._is_empty = is_empty
        self.offsets: list[int] = []

    def answer(self, _broker: int, _api: int, body: Any) -> Mapping[str, Any]:
        offset = body.topics[0].partitions[0].fetch_offset
        self.offsets.append(offset)
        is_at_hand = offset == END - 1 or self.offsets.count(offset) > self._asked_min
        records = self.records(offset) if is_at_hand and not self._is_empty else None
        if records is None:
            time.sleep(WAIT_SECONDS)  # As brokers do that have nothing.
        partition = {
            "partition_index": 0,
            "error_code": ErrorCode.none,
            "high_watermark": END,
            "last_stable_offset": END,
            "log_start_offset": 0,
            "aborted_transactions": None,
            "records": records,
        }
        topics = [{"topic": "old", "partitions": [partition]}]
        return {"error_code": ErrorCode.none, "session_id": 0, "responses": topics}

    def records(self, _offset: int) -> bytes:
        return RECORDS


def read_from(broker: Broker) -> list[tuple[int, bytes]]:
    with (
        scripted(broker.answer, [TOPIC]) as brokers,
        Client(brokers.addresses[1], timeout_ms=SHORT_MS) as client,
        RangeReader(client) as reader,
    ):
        return read_all(reader, whole("old", END))


def test_records_that_come_late_are_waited_for() -> None:
    broker = Broker(asked_min=8)
    assert [offset for offset, _ in read_from(broker)] == list(range(END))
    assert END - 1 in broker.offsets, "the end of the log was looked at"


def test_records_that_never_come_are_an_error_and_no_hole() -> None:
    with pytest.raises(KafkaError, match="nothing came from offset 0 on, and more is there") as no:
        read_from(Broker(asked_min=float("inf")))
    assert no.value.code is ErrorCode.request_timed_out


def test_a_log_whose_last_records_are_gone_too_is_passed_over() -> None:
    broker = Broker(asked_min=0, is_empty=True)
    assert read_from(broker) == []
    assert broker.offsets == [0, 0, 0, END - 1]


def test_a_leader_that_never_answers_is_left_for_the_next_one() -> None:
    """As one that has lost its power: nothing on the connection says so."""
    topics = [dict(TOPIC)]
    is_over = threading.Event()
    other = Broker(asked_min=0)

    def answer(broker: int, api: int, body: Any) -> Mapping[str, Any]:
        if broker == 1:
            topics[0] = {**TOPIC, "partitions": [{**PARTITION, "leader_id": 2, "leader_epoch": 4}]}
            is_over.wait(60)
        return other.answer(broker, api, body)

    with (
        scripted(answer, topics) as brokers,
        Client(brokers.addresses[1], timeout_ms=1_000) as client,
        RangeReader(client, patience_ms=60_000) as reader,
    ):
        found = read_all(reader, whole("old", END))
        is_over.set()
    assert [offset for offset, _ in found] == list(range(END))


def test_a_leader_that_was_deposed_and_has_not_heard_of_it_is_left_for_the_next_one() -> None:
    """It answers, and its log ends before the range does: no record is lost by that."""
    topics = [dict(TOPIC)]
    other = Broker(asked_min=0)

    def answer(broker: int, api: int, body: Any) -> Mapping[str, Any]:
        if broker == 2:
            return other.answer(broker, api, body)
        topics[0] = {**TOPIC, "partitions": [{**PARTITION, "leader_id": 2, "leader_epoch": 4}]}
        time.sleep(WAIT_SECONDS)
        partition = {
            "partition_index": 0,
            "error_code": ErrorCode.none,
            "high_watermark": 0,
            "last_stable_offset": 0,
            "log_start_offset": 0,
            "aborted_transactions": None,
            "records": None,
        }
        rows = [{"topic": "old", "partitions": [partition]}]
        return {"error_code": ErrorCode.none, "session_id": 0, "responses": rows}

    with (
        scripted(answer, topics) as brokers,
        Client(brokers.addresses[1], timeout_ms=SHORT_MS) as client,
        RangeReader(client) as reader,
    ):
        found = read_all(reader, whole("old", END))
    assert [offset for offset, _ in found] == list(range(END))


def test_who_takes_long_over_a_chunk_is_given_the_next_one_though_the_connection_is_gone() -> None:
    """Brokers close connections on which nothing happens."""
    broker = InTwo()
    with (
        scripted(broker.answer, [TOPIC]) as brokers,
        Client(brokers.addresses[1], timeout_ms=SHORT_MS) as client,
        RangeReader(client, patience_ms=LITTLE_MS) as reader,
    ):
        broker.lost = brokers.lose_connections
        chunks = reader.read(whole("old", END))
        assert next(chunks) == FIRST
        time.sleep((LITTLE_MS + 100) / 1000)
        assert list(map(bytes, chunks)) == [SECOND]
    assert broker.offsets == [0, END // 2, END // 2], "the second was asked for again"


def test_an_answer_that_comes_slowly_is_waited_for_as_long_as_it_comes() -> None:
    """As over a network that many share: asked for again, it would come as slowly."""
    broker = Broker(asked_min=0)

    def send(connection: socket.socket, answer: bytes) -> None:
        size = len(answer) // 10 if RECORDS in answer else len(answer)
        for at in range(0, len(answer), size):
            connection.sendall(answer[at : at + size])
            time.sleep(0.4 if size < len(answer) else 0)

    with (
        scripted(broker.answer, [TOPIC]) as brokers,
        Client(brokers.addresses[1], timeout_ms=3_000) as client,
        RangeReader(client, wait_ms_max=0, patience_ms=6_000) as reader,
    ):
        brokers.send = send
        assert [offset for offset, _ in read_all(reader, whole("old", END))] == list(range(END))


class InTwo(Broker):
    """Hands out one batch at a time, and loses who asks for the second for the first time."""

    def __init__(self) -> None:
        super().__init__(asked_min=0)
        self.lost: Callable[[], None] = lambda: None

    def records(self, offset: int) -> bytes:
        if self.offsets.count(END // 2) == 1:
            self.lost()
        return FIRST if offset == 0 else SECOND
