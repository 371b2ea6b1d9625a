"""Where a fetch begins in a closed segment is looked up in files that may not be in the page cache:
they are read beside the loop, once, and the fetch goes on (S3)."""

import errno
from collections.abc import Callable
from typing import Any

import pytest

from support.brokers import DELETE_TOPICS, SimClient, SimNode, one_batch
from tidelog.log.truncation import truncate_suffix
from tidelog.records.reference import Record, encode_batch
from tidelog.world.sim.disk import SimFile

RECORDS = 30


class Reading:
    """Notes what is read in the loop, and what beside it."""

    def __init__(self, node: SimNode, monkeypatch: pytest.MonkeyPatch) -> None:
        self.in_loop: list[tuple[str, int]] = []
        self.beside: list[tuple[str, int]] = []
        self.held: list[Callable[[], None]] | None = None
        """Work that is not begun, if any is held back."""
        self._is_beside = False
        offload, pread = node.loop.offload, SimFile.pread

        def note(lane: str, work: Callable[[], Any], done: Any) -> None:
            def run() -> Any:
                self._is_beside = True
                try:
                    return work()
                finally:
                    self._is_beside = False

            if self.held is not None and lane.startswith("warm"):
                self.held.append(lambda: offload(lane, run, done))
            else:
                offload(lane, run, done)

        def read(file: SimFile, size: int, offset: int) -> bytes:
            path: str = file._path
            (self.beside if self._is_beside else self.in_loop).append((path, offset))
            return pread(file, size, offset)

        monkeypatch.setattr(node.loop, "offload", note)
        monkeypatch.setattr(SimFile, "pread", read)

    def index_reads(self) -> tuple[list[tuple[str, int]], list[tuple[str, int]]]:
        return tuple(  # type: ignore[return-value]
            [place for place in places if place[0].endswith(".index")]
            for places in (self.in_loop, self.beside)
        )


def filled() -> SimNode:
    """Logs of several closed segments, of which a new process knows nothing by heart."""
    node = SimNode(log_segment_bytes=1 << 20)
    client = node.client()
    client.create("events", 2)
    for number in range(RECORDS):
        for index in (0, 1):
            batch = one_batch(f"{number:03}" + "x" * 100_000)
            assert client.produce("events", batch, index=index).base_offset == number
    node.stop()
    node.start()
    for partition in node.broker.partitions:
        for segment in partition.log.segments.all:
            segment.offset_index.blocks.clear()
    return node


def first_at(client: SimClient, offset: int) -> bytes:
    answer = client.fetch("events", offset, max_bytes=200_000)
    assert answer.error_code.name == "none"
    return bytes(answer.records)


def test_cold_indexes_are_read_beside_the_loop_and_then_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node = filled()
    client = node.client()
    reading = Reading(node, monkeypatch)
    node.disk.cold_share = 1.0
    for offset in (2, 13, 3, 12):
        assert f"{offset:03}x".encode() in first_at(client, offset)
    in_loop, beside = reading.index_reads()
    assert len({path for path, _ in beside}) == 2, "of each segment that was read from"
    assert set(in_loop) <= set(beside), "in the loop only what had been read beside it"


def test_hot_indexes_are_read_in_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    node = filled()
    client = node.client()
    reading = Reading(node, monkeypatch)
    node.disk.cold_share = 0.0
    assert b"002x" in first_at(client, 2)
    in_loop, beside = reading.index_reads()
    assert in_loop
    assert not beside


def test_many_cold_lookups_of_one_fetch_are_done_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node = filled()
    client, other = node.client(), node.client()
    reading = Reading(node, monkeypatch)
    node.disk.cold_share = 1.0
    reading.held = []
    client.send_fetch([("events", 0, 2), ("events", 1, 13)], max_bytes=4 << 20)
    client.until(lambda: bool(reading.held))
    assert other.produce("events", one_batch("meanwhile")).base_offset == RECORDS, "others go on"
    (work,), reading.held = reading.held, None
    work()
    ((first, second),) = (topic.partitions for topic in client.wait().responses)
    assert b"002x" in first.records
    assert b"013x" in second.records


def test_a_session_that_another_fetch_takes_over_meanwhile_answers_both(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node = filled()
    client, other = node.client(), node.client()
    client.send_fetch([("events", 0, RECORDS)], session_epoch=0)
    session_id = client.wait().session_id
    assert session_id > 0
    reading = Reading(node, monkeypatch)
    node.disk.cold_share = 1.0
    reading.held = []
    waiting = {"session_id": session_id, "max_wait": 500, "min_bytes": 1 << 24}
    client.send_fetch([("events", 1, 2)], session_epoch=1, **waiting)
    client.until(lambda: bool(reading.held))
    node.disk.cold_share = 0.0
    other.send_fetch([("events", 1, RECORDS)], session_epoch=2, **waiting)
    node.loop.run_for(50)
    assert not other.answers, "it waits"
    (work,), reading.held = reading.held, None
    work()
    assert other.wait().error_code.name == "none"
    assert client.wait().error_code.name == "none"


def test_an_index_that_cannot_be_read_for_a_fetch_takes_its_disk_offline() -> None:
    """S10"""
    node = filled()
    client = node.client()
    node.disk.cold_share = 1.0
    node.disk.fail(errno.EIO, operations=("pread",), path="*.index")
    assert client.fetch("events", 2).error_code.name == "kafka_storage_error"
    assert node.broker.logs.online == []


def test_nothing_is_looked_up_in_a_topic_that_is_deleted_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node = filled()
    client = node.client()
    reading = Reading(node, monkeypatch)
    node.disk.cold_share = 1.0
    reading.held = []
    client.send_fetch([("events", 0, 2)])
    client.until(lambda: bool(reading.held))
    node.client().ask(DELETE_TOPICS, 4, topic_names=["events"], timeout=1_000)
    node.loop.run_for(120_000)
    (work,), reading.held = reading.held, None
    work()
    found = client.wait().responses[0].partitions[0]
    assert found.error_code.name == "unknown_topic_or_partition"
    assert len(node.broker.logs.online) == 1


def test_a_damaged_index_is_made_anew_when_it_is_cold() -> None:
    """That reads its log, of which nothing is warm either."""
    node = filled()
    client = node.client()
    log = node.broker.partitions.find("events", 0).log
    path = log.segments.all[0].path(".index")
    node.disk.open(path, "write").pwrite(b"\x7f" * 8, 0)
    node.disk.cold_share = 1.0
    assert b"002x" in first_at(client, 2)
    assert log.home.files.warmed is None


def test_a_log_that_is_cut_while_a_range_of_it_is_read_is_answered_with_a_whole_frame(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As after an unclean election: what was promised of it is not there any more."""
    node = SimNode()
    client = node.client()
    client.create("events")
    for number in range(3):
        client.produce("events", one_batch(f"{number}"))
    node.stop()
    node.start()
    client = node.client()
    reading = Reading(node, monkeypatch)
    reading.held = []
    client.send_fetch([("events", 0, 0)])
    client.until(lambda: bool(reading.held))
    truncate_suffix(node.broker.partitions.find("events", 0).log, 1, 0)
    (work,), reading.held = reading.held, None
    work()
    found = client.wait().responses[0].partitions[0]
    assert found.error_code.name == "kafka_storage_error"
    assert not found.records


def test_a_stop_waits_for_no_fetch_that_is_looked_up_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """S8: up to a transaction that is open there is too little, and it would begin to wait."""
    node = SimNode()
    client = node.client()
    client.create("events", segment_bytes=40_000)
    partition = node.broker.partitions.find("events", 0)
    batch = one_batch("x" * 12_000)
    opening = encode_batch(
        [Record(offset=0, timestamp=1, key=b"k", value=b"v")],
        producer_id=7,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )
    for produced in (batch, batch, opening, *[batch] * 20):
        partition.append(bytearray(produced), node.clock.now_ms())
    for segment in partition.log.segments.all:
        segment.offset_index.blocks.clear()
    reading = Reading(node, monkeypatch)
    node.disk.cold_share = 1.0
    reading.held = []
    client.send_fetch([("events", 0, 1)], isolation_level=1, max_wait=600_000, min_bytes=1 << 20)
    client.until(lambda: bool(reading.held))
    stopped: list[bool] = []
    node.broker.stop(lambda: stopped.append(True))
    node.loop.run_for(50)
    (work,), reading.held = reading.held, None
    began_ms = node.clock.monotonic_ms()
    work()
    assert node.loop.run_until(lambda: bool(stopped))
    assert node.clock.monotonic_ms() - began_ms < 5_000
    node.loop.run_for(1_000)
    assert client.answers[-1].responses[0].partitions[0].records
