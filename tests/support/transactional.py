"""A transactional producer and a reader of committed records that speak to simulated brokers.

Like a client they ask again where they are told to, and look for the coordinator and the leaders
anew. A producer of version 1 names its partitions; one of version 2 leaves that to the brokers and
goes on in the epoch that each end gives it.
"""

from collections.abc import Callable
from typing import Any, Protocol

from support.brokers import LIST_OFFSETS, PRODUCE, SimClient
from tidelog.records.batch import read_header
from tidelog.records.reference import Record, encode_batch, read_records

FIND_COORDINATOR, INIT_PRODUCER_ID, ADD_PARTITIONS, ADD_OFFSETS = 10, 22, 24, 25
END_TXN, WRITE_MARKERS, TXN_OFFSET_COMMIT = 26, 27, 28
DESCRIBE_TRANSACTIONS, LIST_TRANSACTIONS = 65, 66
COME_AGAIN = (
    "concurrent_transactions",
    "coordinator_not_available",
    "coordinator_load_in_progress",
    "not_coordinator",
    "not_leader_or_follower",
    "not_enough_replicas",
    "not_enough_replicas_after_append",
    "unknown_topic_or_partition",
    "request_timed_out",
    "offset_not_available",
)


class Reach(Protocol):
    """Brokers that can be asked."""

    def leader(self, topic: str, index: int) -> SimClient: ...

    def coordinator(self, transactional_id: str) -> SimClient: ...

    def run_for(self, duration_ms: int) -> None: ...


def patiently(reach: Reach, ask: Callable[[], tuple[str, Any]]) -> tuple[str, Any]:
    """Asks until something else is said than to come again."""
    for _ in range(400):
        code, answer = ask()
        if code not in COME_AGAIN:
            return code, answer
        reach.run_for(50)
    raise AssertionError(f"told to come again for ever: {code}")


class TxnProducer:
    def __init__(
        self, reach: Reach, name: str, *, version: int = 1, timeout_ms: int = 60_000
    ) -> None:
        self.reach = reach
        self.name = name
        self.version = version
        self.timeout_ms = timeout_ms
        self.producer_id = self.epoch = -1
        self.sequences: dict[tuple[str, int], int] = {}

    # -- the coordinator

    def init(self) -> str:
        code, answer = patiently(self.reach, self._init)
        if code == "none":
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            self.sequences.clear()
        return code

    def _init(self) -> tuple[str, Any]:
        values = {"transactional_id": self.name, "transaction_timeout": self.timeout_ms}
        answer = self.reach.coordinator(self.name).ask(INIT_PRODUCER_ID, 4, **values)
        return answer.error_code.name, answer

    def add(self, *partitions: tuple[str, int]) -> str:
        return patiently(self.reach, lambda: self._add(partitions))[0]

    def _add(self, partitions: tuple[tuple[str, int], ...]) -> tuple[str, Any]:
        answer = self.reach.coordinator(self.name).ask(
            ADD_PARTITIONS,
            3,
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[
                {"name": topic, "partitions": [index]} for topic, index in partitions
            ],
        )
        rows = [
            r for topic in answer.results_by_topic_v3_and_below for r in topic.results_by_partition
        ]
        return rows[0].partition_error_code.name, answer

    def end(self, *, commit: bool = True) -> str:
        version = 5 if self.version == 2 else 3
        code, answer = patiently(self.reach, lambda: self._end(version, commit))
        if code == "none" and self.version == 2:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            self.sequences.clear()
        return code

    def _end(self, version: int, commit: bool) -> tuple[str, Any]:
        answer = self.reach.coordinator(self.name).ask(
            END_TXN,
            version,
            transactional_id=self.name,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=commit,
        )
        return answer.error_code.name, answer

    # -- the leaders

    def batch(self, topic: str, index: int, *values: str) -> bytes:
        """The next batch for a partition; each counts once, also if it is sent twice."""
        sequence = self.sequences.get((topic, index), 0)
        self.sequences[topic, index] = sequence + len(values)
        records = [
            Record(offset=number, timestamp=1_700_000_000_000, key=b"k", value=value.encode())
            for number, value in enumerate(values)
        ]
        return bytes(
            encode_batch(
                records,
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                base_sequence=sequence,
                transactional=True,
            )
        )

    def send(self, client: SimClient, topic: str, batch: bytes, index: int = 0) -> None:
        client.send(
            PRODUCE,
            12 if self.version == 2 else 9,
            transactional_id=self.name,
            acks=-1,
            timeout=5_000,
            topic_data=[{"name": topic, "partition_data": [{"index": index, "records": batch}]}],
        )

    def write(self, topic: str, *values: str, index: int = 0) -> str:
        """Adds the partition, if that is to be done, and writes a batch."""
        if self.version == 1:
            code = self.add((topic, index))
            if code != "none":
                return code
        batch = self.batch(topic, index, *values)
        return patiently(self.reach, lambda: self._write(topic, batch, index))[0]

    def _write(self, topic: str, batch: bytes, index: int) -> tuple[str, Any]:
        client = self.reach.leader(topic, index)
        self.send(client, topic, batch, index)
        row = client.wait().responses[0].partition_responses[0]
        return row.error_code.name, row


def fetch_committed(
    client: SimClient, topic: str, offset: int, index: int = 0, **values: Any
) -> Any:
    """What a reader of committed records is answered."""
    client.send_fetch([(topic, index, offset)], isolation_level=1, **values)
    return client.wait().responses[0].partitions[0]


def read_committed(reach: Reach, topic: str, index: int = 0) -> list[str]:
    """Every value that a reader of committed records is shown, as far as there is anything."""
    client = reach.leader(topic, index)
    found: list[str] = []
    offset = 0
    while True:
        row = fetch_committed(client, topic, offset, index)
        assert row.error_code.name in ("none", *COME_AGAIN), row.error_code
        if not row.records:
            return found
        aborted = sorted((a.first_offset, a.producer_id) for a in row.aborted_transactions or ())
        dropped: set[int] = set()
        left = memoryview(row.records)
        while left:
            header = read_header(left)
            while aborted and aborted[0][0] <= header.last_offset:
                dropped.add(aborted.pop(0)[1])
            if header.is_control:
                dropped.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in dropped):
                found += [
                    (record.value or b"").decode()
                    for record in read_records(left)
                    if record.offset >= offset
                ]
            offset = max(offset, header.next_offset)
            left = left[header.size :]


def last_stable_offset(client: SimClient, topic: str, index: int = 0) -> int:
    """As ListOffsets tells it to a reader of committed records."""
    answer = client.ask(
        LIST_OFFSETS,
        6,
        replica_id=-1,
        isolation_level=1,
        topics=[
            {
                "name": topic,
                "partitions": [
                    {"partition_index": index, "current_leader_epoch": -1, "timestamp": -1}
                ],
            }
        ],
    )
    return int(answer.topics[0].partitions[0].offset)
