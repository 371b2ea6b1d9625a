"""Disks that fail under a whole broker, and races between what is done beside the loop and
what happens meanwhile to its topics."""

import errno
from typing import Any

import pytest

from support.brokers import (
    CREATE_TOPICS,
    DELETE_TOPICS,
    LIST_OFFSETS,
    SimClient,
    SimNode,
    one_batch,
)
from tidelog.base.errors import ChildDied, NotStarted, TaskError
from tidelog.broker import Broker
from tidelog.handlers.wide_fetch import ROWS_MAX
from tidelog.records.reference import Record, encode_batch
from tidelog.world.sim.disk import SimDisk
from tidelog.world.sim.workers import SimJob

DELETE_RECORDS, INCREMENTAL_ALTER_CONFIGS = 21, 44
CLEAN = "/data/.kafka_cleanshutdown"


def delete_records(client: SimClient, topic: str, offset: int, index: int = 0) -> Any:
    partitions = [{"partition_index": index, "offset": offset}]
    answer = client.ask(
        DELETE_RECORDS, 2, topics=[{"name": topic, "partitions": partitions}], timeout=1000
    )
    return answer.topics[0].partitions[0]


def delete(client: SimClient, topic: str) -> Any:
    return client.ask(DELETE_TOPICS, 5, topic_names=[topic], timeout=60_000).responses[0]


def two_dirs() -> SimNode:
    return SimNode(log_dirs="/data,/more")


def dir_of(node: SimNode, topic: str, index: int = 0) -> str:
    return str(node.broker.partitions.find(topic, index).log.home.path)


def test_a_start_that_is_interrupted_costs_nothing_however_far_it_was() -> None:
    """S9: what a crash left has to be looked at, and what was deleted stays so."""
    node = SimNode()
    client = node.client()
    client.create("events")
    for number in range(10):
        client.produce("events", one_batch(f"v{number}"))
    delete_records(client, "events", 4)
    node.kill()
    crashed: SimDisk = node.disk

    for turns in range(1, 40):
        disk: SimDisk = crashed.fork()
        if interrupted_start(node, disk, turns) is None:
            break
        node._begin_anew()
        node.start()
        log = node.broker.partitions.find("events", 0).log
        assert (log.log_start_offset, log.log_end_offset) == (4, 10), f"after {turns} turns"
    assert turns > 2, "there are turns in a start"


def interrupted_start(node: SimNode, disk: SimDisk, turns: int) -> Broker | None:
    """A broker that is stopped before it has started; None if it was quicker."""
    node.disk, node.clock = disk, disk.clock
    node._begin_anew()
    broker = node.new_broker()
    outcomes: list[Exception | None] = []
    broker.start(outcomes.append)
    for _ in range(turns):
        node.loop.turn()
        if outcomes:
            return None
    ended: list[bool] = []
    broker.stop(lambda: ended.append(True))
    assert node.loop.run_until(lambda: bool(ended))
    return broker


@pytest.mark.parametrize("operation", ["sync", "rename", "create", "pwrite"])
def test_deleting_records_on_a_disk_that_fails_is_answered(operation: str) -> None:
    node = two_dirs()
    client = node.client()
    client.create("events", partitions=2)
    index = next(i for i in range(2) if dir_of(node, "events", i) == "/more")
    client.produce("events", one_batch("a", "b", "c"), index=index)
    node.disk.fail(errno.EIO, operations=[operation], path="/more/*")
    answer = delete_records(client, "events", 2, index)
    assert answer.error_code.name in ("kafka_storage_error", "none")
    node.loop.run_for(10_000)
    client.produce("events", one_batch("a"), index=1 - index)
    client.produce("events", one_batch("a"), index=index)
    if operation != "pwrite":
        again = delete_records(client, "events", 3, index)
        assert again.error_code.name == "kafka_storage_error"


def test_a_partition_deleted_during_a_large_append_takes_nobody_with_it() -> None:
    for seed in range(20):
        node = SimNode(seed)
        client, other = node.client(), node.client()
        client.create("events", max_message_bytes=10_000_000)
        for _ in range(3):
            client.send_produce("events", one_batch("x" * 400_000))
        node.loop.run_for(seed % 7)
        delete(other, "events")
        other.create("events")
        client.wait()
        assert other.produce("events", one_batch("new")).error_code.name == "none"
        node.loop.run_for(100_000)
        node.stop()


def test_records_of_many_partitions_are_deleted_in_one_request() -> None:
    """One that is named twice is answered once, with the offset that came last, as in Kafka."""
    node = SimNode()
    client = node.client()
    client.create("events", partitions=8)
    for index in range(8):
        client.produce("events", one_batch("a", "b"), index=index)
    partitions = [{"partition_index": index % 8, "offset": index // 8} for index in range(16)]
    answer = client.ask(
        DELETE_RECORDS, 2, topics=[{"name": "events", "partitions": partitions}], timeout=1000
    )
    rows = answer.topics[0].partitions
    assert [(row.partition_index, row.low_watermark) for row in rows] == [(i, 1) for i in range(8)]


def test_deleting_records_behind_a_flush_that_takes_the_disk_offline_is_answered() -> None:
    node = two_dirs()
    client = node.client()
    client.create("events", partitions=2, flush_messages=1)
    index = next(i for i in range(2) if dir_of(node, "events", i) == "/more")
    client.produce("events", one_batch("a", "b"), index=index)
    node.disk.fail(errno.EIO, operations=["sync"], path="/more/*")
    other = node.client()
    other.send_produce("events", one_batch("c"), index=index)
    node.loop.run_for(3)
    assert delete_records(client, "events", 1, index).error_code.name == "kafka_storage_error"
    other.wait()


def test_a_topic_made_again_while_the_old_one_is_being_flushed_is_answered() -> None:
    """Appends that wait for a flush are told of its end, whoever else waits by that name."""
    for seed in range(30):
        node = SimNode(seed)
        old, admin, new = node.client(), node.client(), node.client()
        admin.create("events", flush_messages=1)
        admin.create("other", flush_messages=1)
        for _ in range(4):
            old.send_produce("other", one_batch("a"))
            old.send_produce("events", one_batch("a"))
        node.loop.run_for(seed % 5)
        admin.send(DELETE_TOPICS, 5, topic_names=["events"], timeout=60_000)
        admin.wait()
        admin.create("events", flush_messages=1)
        for _ in range(4):
            old.send_produce("other", one_batch("a"))
        assert new.produce("events", one_batch("b")).error_code.name == "none"
        old.wait()


def test_a_log_on_a_disk_that_cannot_be_read_at_a_start_is_not_begun_anew_elsewhere() -> None:
    """S10: its records are not lost, so offsets must not be given out a second time."""
    node = two_dirs()
    client = node.client()
    client.create("events", partitions=2)
    index = next(i for i in range(2) if dir_of(node, "events", i) == "/more")
    for _ in range(5):
        client.produce("events", one_batch("a"), index=index)
    node.stop()
    node._begin_anew()
    node.disk.fail(errno.EIO, operations=["list", "pread"], path="/more*")
    node.start()
    client = node.client()
    answer = client.produce("events", one_batch("b"), index=index)
    assert answer.error_code.name in ("kafka_storage_error", "unknown_topic_or_partition")
    assert client.produce("events", one_batch("b"), index=1 - index).error_code.name == "none"
    node.stop()
    node._begin_anew()
    node.disk.heal()
    node.start()
    assert node.client().produce("events", one_batch("c"), index=index).base_offset == 5


def test_a_topic_with_a_partition_on_a_failed_disk_can_be_deleted() -> None:
    node = two_dirs()
    client = node.client()
    client.create("events", partitions=4)
    index = next(i for i in range(4) if dir_of(node, "events", i) == "/more")
    node.disk.fail(errno.EIO, path="/more/*")
    answer = client.produce("events", one_batch("b"), index=index)
    assert answer.error_code.name == "kafka_storage_error"
    assert delete(client, "events").error_code.name == "none"
    assert [name for name in node.disk.list("/data") if name.startswith("events-")] == [
        name for name in node.disk.list("/data") if name.endswith("-delete")
    ]
    client.create("events", partitions=4)
    for at in range(4):
        assert client.produce("events", one_batch("b"), index=at).base_offset == 0
    node.stop()


def test_a_topic_whose_folder_cannot_be_made_in_one_dir_is_made_in_another() -> None:
    node = two_dirs()
    client = node.client()
    node.disk.fail(errno.EIO, operations=["make_folder", "create"], path="/more/*")
    client.create("events", partitions=4)
    for at in range(4):
        assert client.produce("events", one_batch("b"), index=at).error_code.name == "none"


@pytest.mark.parametrize("left", [b"", b"ver", b"version: 0\ntopic_id: 4b"])
def test_a_note_of_whose_log_it_is_that_a_power_loss_has_torn_keeps_nobody_out(left: bytes) -> None:
    """S9: it is durable with the first flush only."""
    node = SimNode()
    client = node.client()
    client.create("events")
    client.produce("events", one_batch("a"))
    node.kill()
    file = node.disk.open("/data/events-0/partition.metadata", "write")
    file.truncate(0)
    file.pwrite(left, 0)
    node.kill()
    node.start()
    assert node.client().produce("events", one_batch("b")).base_offset == 1


def test_a_time_that_is_asked_for_on_a_failed_disk_is_refused() -> None:
    node = two_dirs()
    client = node.client()
    client.create("events", partitions=2)
    index = next(i for i in range(2) if dir_of(node, "events", i) == "/more")
    client.produce("events", one_batch("a"), index=index)
    node.disk.fail(errno.EIO, operations=["pread"], path="/more/*")
    asked = {"partition_index": index, "timestamp": 5, "current_leader_epoch": -1}
    answer = client.ask(
        LIST_OFFSETS,
        7,
        replica_id=-1,
        isolation_level=0,
        topics=[{"name": "events", "partitions": [asked]}],
    )
    assert answer.topics[0].partitions[0].error_code.name == "kafka_storage_error"


def test_reads_from_a_disk_that_fails_are_answered_with_its_error() -> None:
    for cold_share in (0.0, 1.0):
        node = two_dirs()
        node.disk.cold_share = cold_share
        client = node.client()
        client.create("events", partitions=2, segment_bytes=20_000)
        index = next(i for i in range(2) if dir_of(node, "events", i) == "/more")
        for _ in range(20):
            client.produce("events", one_batch("a" * 5_000), index=index)
        node.disk.fail(errno.EIO, operations=["pread"], path="/more/*.log")
        client.send_fetch([("events", index, 2)])
        found = client.wait().responses[0].partitions[0]
        assert found.error_code.name == "kafka_storage_error"
        assert client.produce("events", one_batch("b"), index=1 - index).error_code.name == "none"


@pytest.mark.parametrize("others", [0, ROWS_MAX])
def test_older_readers_of_a_disk_that_has_failed_are_told_in_a_way_they_know(others: int) -> None:
    """S10: who does not know the error would not look for another leader, as in Kafka."""
    node = two_dirs()
    client = node.client()
    client.create("events", partitions=2)
    index = next(i for i in range(2) if dir_of(node, "events", i) == "/more")
    client.produce("events", one_batch("a"), index=index)
    node.disk.fail(errno.EIO, operations=["pread"], path="/more/*.log", times=None)
    wanted = [("nowhere", at, 0) for at in range(others)]
    for version in range(4, 13):
        client.send_fetch([*wanted, ("events", index, 0)], version=version)
        told = client.wait().responses[-1].partitions[0].error_code.name
        assert told == ("not_leader_or_follower" if version < 6 else "kafka_storage_error"), version


def filled(node: SimNode, count: int = 20) -> tuple[SimClient, int, int]:
    """A client, and a partition in each of two dirs with several segments: the first in /data."""
    client = node.client()
    client.create("events", partitions=2, segment_bytes=40_000)
    for index in range(2):
        for _ in range(count):
            client.produce("events", one_batch("a" * 12_000), index=index)
    second = next(index for index in range(2) if dir_of(node, "events", index) == "/more")
    return client, 1 - second, second


@pytest.mark.parametrize("session_epoch", [-1, 0])
def test_a_disk_that_does_not_even_say_what_is_in_memory_is_offline(session_epoch: int) -> None:
    """S10: where a record lies is known, so nothing else looks at the disk before it is sent."""
    node = two_dirs()
    node.disk.cold_share = 0.0
    client, good, bad = filled(node)
    client.send_fetch([("events", bad, 2)])
    assert client.wait().responses[0].partitions[0].records
    node.disk.fail(errno.EIO, operations=["resident", "pread"], path="/more/*.log", times=None)
    client.send_fetch([("events", bad, 2)], session_epoch=session_epoch)
    answer = client.wait().responses[0].partitions[0]
    assert answer.error_code.name == "kafka_storage_error"
    assert node.broker.partitions.find("events", bad).log.home.failure is not None
    assert client.produce("events", one_batch("b"), index=good).error_code.name == "none"


def test_a_fetch_that_waits_is_answered_also_if_the_disk_fails_meanwhile() -> None:
    """S10: a reader of committed records who wants more than there is before a transaction that is
    open; where they lie is known already."""
    node = two_dirs()
    node.disk.cold_share = 0.0
    client = node.client()
    client.create("events", partitions=2, segment_bytes=40_000)
    index = next(i for i in range(2) if dir_of(node, "events", i) == "/more")
    for _ in range(3):
        client.produce("events", one_batch("a" * 12_000), index=index)
    now_ms = node.clock.now_ms()
    opening = encode_batch(
        [Record(offset=0, timestamp=now_ms, key=b"k", value=b"v")],
        producer_id=7,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )
    partition = node.broker.partitions.find("events", index)
    partition.append(bytearray(opening), now_ms)
    for _ in range(20):
        client.produce("events", one_batch("a" * 12_000), index=index)
    assert len(partition.log.segments.all) > 1
    wanted = [("events", index, 2)]
    client.send_fetch(wanted, isolation_level=1)
    assert client.wait().responses[0].partitions[0].records
    answered = len(client.answers)
    client.send_fetch(wanted, isolation_level=1, min_bytes=1_000_000, max_wait=1_000)
    node.loop.run_for(500)
    assert len(client.answers) == answered, "it is parked"
    node.disk.fail(errno.EIO, operations=["resident", "pread"], path="/more/*.log", times=None)
    answer = client.wait().responses[0].partitions[0]
    assert answer.error_code.name == "kafka_storage_error"


def test_a_dir_does_not_go_offline_with_another_that_was_read_for_the_same_answer() -> None:
    """S10."""
    node = two_dirs()
    client, good, bad = filled(node)
    node.disk.cold_share = 1.0
    partition = node.broker.partitions.find("events", bad)
    client.send_fetch([("events", good, 2), ("events", bad, 2)])
    assert node.loop.run_until(lambda: partition.bytes_out > 0), "its records were found"
    node.disk.fail(errno.EIO, operations=["pread"], path="/more/*.log", times=None)
    rows = {row.partition_index: row for t in client.wait().responses for row in t.partitions}
    assert rows[bad].error_code.name == "kafka_storage_error"
    assert (rows[good].error_code.name, bool(rows[good].records)) == ("none", True)
    assert client.produce("events", one_batch("b"), index=good).error_code.name == "none"


def test_a_fetch_is_answered_also_if_another_of_its_session_finds_nobody_who_leads() -> None:
    """S10: while the disk is read for it."""
    assert sum(nobody_leads_while_a_disk_fails(seed) for seed in range(20)) > 0


def nobody_leads_while_a_disk_fails(seed: int) -> bool:
    """Whether that was found out before the disk had been read."""
    node = SimNode(seed=seed, log_dirs="/data,/more")
    node.disk.cold_share = 0.0
    client, _, bad = filled(node)
    other = node.client()
    client.send_fetch([("events", bad, 2)], session_epoch=0)
    session_id = client.wait().session_id
    partition = node.broker.partitions.find("events", bad)
    before, answered = partition.bytes_out, len(client.answers)
    node.disk.cold_share = 1.0
    client.send_fetch([("events", bad, 3)], session_id=session_id, session_epoch=1)
    assert node.loop.run_until(lambda: partition.bytes_out > before), "its records were found"
    node.disk.fail(errno.EIO, operations=["pread"], path="/more/*.log", times=None)
    partition.resign()
    node.broker.partitions.set_led(partition)
    other.send_fetch([], session_id=session_id, session_epoch=2)
    told = other.wait().responses[0].partitions[0].error_code.name
    is_first = len(client.answers) == answered and told == "not_leader_or_follower"
    assert client.wait().responses[0].partitions[0].error_code.name == "kafka_storage_error"
    assert partition.log.home.failure is not None
    return is_first


def test_creating_with_all_disks_gone_is_refused() -> None:
    node = two_dirs()
    client = node.client()
    client.create("before", partitions=2)
    node.disk.fail(errno.EIO, path="/more/*")
    node.disk.fail(errno.EIO, path="/data/before*")
    for index in range(2):
        client.produce("before", one_batch("a"), index=index)
    answer = client.ask(
        CREATE_TOPICS,
        7,
        topics=[
            {
                "name": "after",
                "num_partitions": 1,
                "replication_factor": 1,
                "assignments": [],
                "configs": [],
            }
        ],
        timeout=1000,
        validate_only=False,
    )
    assert answer.topics[0].error_code.name in ("none", "kafka_storage_error")
    assert client.produce("after", one_batch("a")).error_code.name != "none"


def test_what_a_failed_dir_has_of_a_topic_that_was_made_again_elsewhere_is_no_twin() -> None:
    """S10, T6: its topic was deleted while it was offline; the broker starts with it and serves
    the new one."""
    node = two_dirs()
    client = node.client()
    client.create("events", partitions=2)
    index = next(i for i in range(2) if dir_of(node, "events", i) == "/more")
    client.produce("events", one_batch("old"), index=index)
    node.disk.fail(errno.EIO, operations=["pwrite"], path="/more/*")
    client.produce("events", one_batch("lost"), index=index)
    delete(client, "events")
    client.create("events", partitions=2)
    assert client.produce("events", one_batch("new", "newer"), index=index).base_offset == 0
    assert dir_of(node, "events", index) == "/data"
    node.disk.heal()
    node.kill()
    node.start()
    assert dir_of(node, "events", index) == "/data"
    assert node.client().produce("events", one_batch("newest"), index=index).base_offset == 2
    assert node.disk.stat(f"/more/events-{index}") is None


@pytest.mark.parametrize("error", [ChildDied, NotStarted])
def test_a_batch_whose_inspector_has_died_is_to_be_sent_again(
    monkeypatch: pytest.MonkeyPatch, error: type[TaskError]
) -> None:
    """F17: a producer gives up on what it is not told to send again, and nothing was written."""
    node = SimNode()
    client = node.client()
    client.create("table", cleanup_policy="compact")
    real, fails = SimJob.result, [True, False]

    def result(job: SimJob) -> dict[str, Any]:
        if fails.pop(0):
            raise error("inspect: the worker process was killed by signal 9")
        return real(job)

    monkeypatch.setattr(SimJob, "result", result)
    refused = client.produce("table", one_batch("a"))
    assert (refused.error_code.name, refused.error_code.retriable) == ("not_enough_replicas", True)
    assert client.produce("table", one_batch("a")).base_offset == 0
