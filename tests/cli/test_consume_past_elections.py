"""`tidelog consume --exit` while another broker begins to lead: it prints all that was there."""

import time
from collections.abc import Mapping
from typing import Any, Final

from support.bulk import batch_of
from support.command_line import run
from support.scripted_brokers import scripted
from tidelog.base.errors import ErrorCode

FETCH, LIST_OFFSETS = 1, 2
END, KNOWN = 5, 3
"""Where the log ends, and how far its new leader knows it to be committed."""
LATEST: Final = -1
PARTITION: Final = {
    "partition_index": 0,
    "error_code": ErrorCode.none,
    "leader_id": 1,
    "leader_epoch": 3,
    "replica_nodes": [1],
    "isr_nodes": [1],
}
TOPIC: Final = {"name": "moved", "error_code": ErrorCode.none, "partitions": [PARTITION]}
FIRST: Final = bytes(batch_of(b"%d" % number for number in range(KNOWN)))
SECOND: Final = KNOWN.to_bytes(8) + bytes(batch_of([b"3", b"4"]))[8:]


class NewLeader:
    """Its predecessor said where the log ends. It knows that when its followers have asked it, and
    until then it says that it does not."""

    def __init__(self, end: int = END) -> None:
        self._end = end
        self._is_old = True
        self._refusals_left = 3

    def answer(self, _broker: int, api: int, body: Any) -> Mapping[str, Any]:
        if api == LIST_OFFSETS:
            return self._offset(body.topics[0].partitions[0].timestamp)
        if api == FETCH:
            return self._fetched(body)
        coordinator = {"error_code": ErrorCode.coordinator_not_available, "error_message": None}
        return {**coordinator, "node_id": -1, "host": "", "port": -1}

    def _offset(self, timestamp: int) -> Mapping[str, Any]:
        code, offset = ErrorCode.none, 0
        if timestamp == LATEST and self._is_old:
            self._is_old, offset = False, END
        elif timestamp == LATEST and self._refusals_left:
            self._refusals_left -= 1
            code, offset = ErrorCode.offset_not_available, -1
        elif timestamp == LATEST:
            offset = self._end
        row = {"partition_index": 0, "error_code": code, "offset": offset}
        row |= {"timestamp": -1, "leader_epoch": 3}
        return {"topics": [{"name": "moved", "partitions": [row]}]}

    def _fetched(self, body: Any) -> Mapping[str, Any]:
        known = KNOWN if self._refusals_left else self._end
        batches = {0: FIRST, KNOWN: SECOND}
        rows = []
        for asked in [one for topic in body.topics for one in topic.partitions]:
            records = batches[asked.fetch_offset] if asked.fetch_offset < known else b""
            if not records:
                time.sleep(0.02)  # As brokers do that have nothing.
            rows.append(
                {
                    "partition_index": 0,
                    "error_code": ErrorCode.none,
                    "high_watermark": known,
                    "last_stable_offset": known,
                    "log_start_offset": 0,
                    "aborted_transactions": None,
                    "records": records,
                }
            )
        topics = [{"topic": "moved", "partitions": rows}] if rows else []
        return {"error_code": ErrorCode.none, "session_id": 0, "responses": topics}


def printed_by(leader: NewLeader) -> tuple[int, str, str]:
    with scripted(leader.answer, [TOPIC]) as brokers:
        return run("consume", "moved", "-f", "--exit", "-b", brokers.addresses[1])


def test_a_leader_that_does_not_know_the_end_yet_is_waited_for() -> None:
    assert printed_by(NewLeader()) == (0, "0\n1\n2\n3\n4\n", "")


def test_what_an_unclean_election_has_lost_is_not_waited_for() -> None:
    assert printed_by(NewLeader(end=KNOWN)) == (0, "0\n1\n2\n", "")
