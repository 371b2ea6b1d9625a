"""Looking up times does not hold the loop, whatever was produced (B4, S3)."""

import errno
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import cramjam
import pytest

from support.brokers import DELETE_TOPICS, LIST_OFFSETS, SimClient, SimNode, one_batch
from support.servers import PEER, TidelogServer
from support.wire_client import WireClient, loop_cpu_seconds
from support.witness import MIB, SETTINGS, check_log, witnessed
from tidelog.records.batch import BatchHeader, read_header, seal
from tidelog.records.reference import Record, encode_batch

RECORD = b"\x0e\0\0\0\x02k\0\0"
"""Eight bytes: a record of the batch's own time and first offset, with the key `k`."""
SECONDS_MAX = 0.15
"""Of the loop's, for lookups that would take it a second each."""


def claiming(count: int, body: bytes, *, youngest: int = 1_000_000) -> bytes:
    """A batch in zstd that says that one of its records is from that time."""
    header = BatchHeader(
        base_offset=0,
        length=0,
        partition_leader_epoch=-1,
        magic=2,
        crc=0,
        attributes=4,
        last_offset_delta=count - 1,
        base_timestamp=1_000,
        max_timestamp=youngest,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        record_count=count,
    )
    return bytes(seal(header, bytes(cramjam.zstd.compress(body))))


def at_time(client: WireClient | SimClient, timestamp: int, *, topic: str = "times") -> Any:
    answer = client.ask(LIST_OFFSETS, 7, **asking(timestamp, topic))
    return answer.topics[0].partitions[0]


def asking(timestamp: int, topic: str = "times") -> dict[str, Any]:
    asked = {"partition_index": 0, "timestamp": timestamp, "current_leader_epoch": -1}
    topics = [{"name": topic, "partitions": [asked]}]
    return {"replica_id": -1, "isolation_level": 0, "topics": topics}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[TidelogServer]:
    server = TidelogServer(tmp_path, SETTINGS)
    server.start()
    try:
        with WireClient(server.address) as client:
            client.create("witness")
            client.create("times")
        yield server
        check_log(server)
        server.stop()
    finally:
        server.close()


@pytest.mark.skipif(PEER != "", reason="looks into tidelog's own process")
def test_a_small_batch_of_millions_of_records_is_searched_beside_the_loop(
    server: TidelogServer,
) -> None:
    """B4: it has two kilobytes, and twenty megabytes when it is decompressed."""
    batch = claiming(2_500_000, RECORD * 2_500_000)
    assert len(batch) < 4_000
    with WireClient(server.address) as client:
        assert client.produce("times", batch).error_code.name == "none"
        # The first one starts the worker.
        assert at_time(client, 1_000_000).offset == -1
        with witnessed(server, growth_max=16 * MIB):
            before = loop_cpu_seconds(server.process_id)
            for _ in range(5):
                assert at_time(client, 1_000_000).offset == -1
            assert at_time(client, 1_000).offset == 0
            assert loop_cpu_seconds(server.process_id) - before < SECONDS_MAX


def filled(node: SimNode, batch: bytes) -> SimClient:
    client = node.client()
    client.create("times")
    assert client.produce("times", batch).error_code.name == "none"
    return client


MANY = bytes(encode_batch([Record(offset=n, timestamp=1_000 + n) for n in range(6_000)]))
LARGE = bytes(
    encode_batch(
        [Record(offset=n, timestamp=1_000 + n, value=bytes(9_000)) for n in range(50)],
        compression=4,
    )
)


@pytest.mark.parametrize("batch", [MANY, LARGE])
def test_what_a_worker_finds_is_the_answer(batch: bytes) -> None:
    client = filled(SimNode(), batch)
    row = at_time(client, 1_040)
    assert (row.error_code.name, row.offset, row.timestamp) == ("none", 40, 1_040)
    assert at_time(client, 10_000).offset == -1
    assert at_time(client, -3).offset == read_header(batch).last_offset_delta


class Offloading:
    """Notes what is done beside a loop, and keeps it waiting where a lane is held."""

    def __init__(self, node: SimNode, monkeypatch: pytest.MonkeyPatch, *held: str) -> None:
        self.lanes: list[str] = []
        self._held = held
        self._waiting: list[Callable[[], None]] = []
        self._offload = node.loop.offload
        monkeypatch.setattr(node.loop, "offload", self._note)

    def _note(self, lane: str, *work_and_done: Any) -> None:
        self.lanes.append(lane)
        start = partial(self._offload, lane, *work_and_done)
        if lane in self._held:
            self._waiting.append(start)
        else:
            start()

    def go_on(self) -> None:
        assert self._waiting
        for start in self._waiting:
            start()


def test_only_what_is_cold_or_large_is_searched_beside_the_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node = SimNode()
    client = filled(node, one_batch("a", timestamp=1_000))
    client.create("large")
    assert client.produce("large", LARGE).error_code.name == "none"
    beside = Offloading(node, monkeypatch)
    for cold_share, topic, lanes in (
        (0.0, "times", []),
        (1.0, "times", ["warm times"]),
        (0.0, "large", ["find time"]),
    ):
        node.disk.cold_share = cold_share
        assert at_time(client, 1_000, topic=topic).offset == 0
        assert [lane for lane in beside.lanes if not lane.startswith("disk")] == lanes
        beside.lanes.clear()


def test_indexes_that_are_cold_are_read_beside_the_loop_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And nothing that was read there is read again in vain: a lookup comes to its end."""
    node = SimNode(log_segment_bytes=1 << 20)
    client = node.client()
    client.create("times")
    for number in range(30):
        client.produce("times", one_batch("x" * 100_000, timestamp=1_000 + number))
    node.stop()
    node.start()
    client = node.client()
    beside = Offloading(node, monkeypatch)
    node.disk.cold_share = 1.0
    assert [at_time(client, 1_000 + number).offset for number in (3, 17, 29)] == [3, 17, 29]
    times = [lane for lane in beside.lanes if not lane.startswith("disk")]
    assert set(times) == {"warm times"}
    assert len(times) > 3 * len(node.broker.partitions.find("times", 0).log.segments.all)
    beside.lanes.clear()
    node.disk.cold_share = 0.0
    assert at_time(client, 1_012).offset == 12
    assert not [lane for lane in beside.lanes if not lane.startswith("disk")]


def test_an_index_that_cannot_be_read_takes_its_disk_offline() -> None:
    """S10"""
    node = SimNode(log_segment_bytes=1 << 20)
    client = node.client()
    client.create("times")
    for number in range(30):
        client.produce("times", one_batch("x" * 100_000, timestamp=1_000 + number))
    node.disk.cold_share = 1.0
    node.disk.fail(errno.EIO, operations=("pread",), path="*.timeindex")
    assert at_time(client, 1_003).error_code.name == "kafka_storage_error"
    assert node.broker.logs.online == []


def test_nothing_is_searched_of_a_topic_that_is_deleted_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its files have gone, or are to go: that is no fault of the disk's."""
    node = SimNode(log_segment_bytes=1 << 20)
    client = filled(node, claiming(6_000, RECORD * 6_000))
    for _ in range(12):
        client.produce("times", one_batch("x" * 100_000, timestamp=1_000))
    beside = Offloading(node, monkeypatch, "find time")
    client.send(LIST_OFFSETS, 7, **asking(1_000_000))
    assert node.loop.run_until(lambda: "find time" in beside.lanes)
    node.client().ask(DELETE_TOPICS, 4, topic_names=["times"], timeout=1_000)
    node.loop.run_for(120_000)
    beside.go_on()
    found = client.wait().topics[0].partitions[0]
    assert found.error_code.name == "unknown_topic_or_partition"
    assert len(node.broker.logs.online) == 1


def test_a_disk_that_fails_while_a_batch_is_searched_is_told_and_goes_offline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """S10"""
    node = SimNode()
    client = filled(node, LARGE)
    beside = Offloading(node, monkeypatch, "find time")
    client.send(LIST_OFFSETS, 7, **asking(1_040))
    assert node.loop.run_until(lambda: "find time" in beside.lanes)
    node.disk.fail(errno.EIO, operations=("pread",), path="*.log")
    beside.go_on()
    assert client.wait().topics[0].partitions[0].error_code.name == "kafka_storage_error"
    assert node.broker.logs.online == []
