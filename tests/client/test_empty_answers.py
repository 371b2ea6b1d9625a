"""What a reader of ranges makes of answers without records: a hole that compaction left is passed
over, and nothing else is (P1).
"""

import time
from collections.abc import Mapping
from typing import Any, Final

import pytest

from support.bulk import batch_of, read_all, whole
from support.scripted_brokers import scripted
from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.client.client import Client
from tidelog.client.fetching import RangeReader

END: Final = 10
SHORT_MS: Final = 5_000
WAIT_SECONDS: Final = 0.02
TOPIC: Final = {
    "name": "old",
    "error_code": ErrorCode.none,
    "partitions": [
        {
            "partition_index": 0,
            "error_code": ErrorCode.none,
            "leader_id": 1,
            "leader_epoch": 3,
            "replica_nodes": [1],
            "isr_nodes": [1],
        }
    ],
}
RECORDS: Final = bytes(batch_of(b"%d" % number for number in range(END)))


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
        records = RECORDS if is_at_hand and not self._is_empty else None
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
