"""Bytes that rot on the disk below the recovery point, of a broker that has no others (F12)."""

import logging

import pytest

from support.brokers import SimNode, one_batch
from tidelog.log import retention
from tidelog.log.files import read_whole
from tidelog.records.batch import HEADER_SIZE
from tidelog.records.reference import read_records

LOG = "/data/events-0/00000000000000000000.log"
BATCHES = 6
SIZE = len(one_batch("v0"))


@pytest.fixture
def node() -> SimNode:
    """It holds some batches of one record each, stopped."""
    made = SimNode()
    made.disk.cold_share = 0.0
    client = made.client()
    client.create("events")
    for number in range(BATCHES):
        client.produce("events", one_batch(f"v{number}"))
    made.stop()
    return made


def spoil(node: SimNode, number: int) -> None:
    """In the records of one batch, where only the CRC shows it."""
    node.disk.flip_bit(LOG, number * SIZE + HEADER_SIZE + 3)


def values(records: bytes | None, size: int = SIZE) -> list[bytes | None]:
    data = records or b""
    parts = [data[at : at + size] for at in range(0, len(data), size)]
    return [record.value for part in parts for record in read_records(part)]


def test_a_bad_batch_is_refused_and_all_others_are_served(
    node: SimNode, caplog: pytest.LogCaptureFixture
) -> None:
    spoil(node, 3)
    node.start()
    client = node.client()
    before = client.fetch("events", 0)
    assert before.error_code.name == "none"
    assert values(before.records) == [b"v0", b"v1", b"v2"]
    for _ in range(3):
        refused = client.fetch("events", 3, max_wait=1_000)
        assert refused.error_code.name == "kafka_storage_error"
        assert not refused.records
    behind = client.fetch("events", 4)
    assert values(behind.records) == [b"v4", b"v5"]
    client.produce("events", one_batch("v6"))
    assert values(client.fetch("events", 4).records) == [b"v4", b"v5", b"v6"]
    errors = [r.getMessage() for r in caplog.records if r.levelno >= logging.ERROR]
    (told,) = [line for line in errors if line.startswith("damaged")]
    assert f"events-0 file={LOG} position={3 * SIZE} from_offset=3" in told


def test_it_goes_on_leading_and_what_is_written_is_served(node: SimNode) -> None:
    """Nobody else has what it has."""
    spoil(node, 0)
    node.start()
    client = node.client()
    assert client.fetch("events", 0).error_code.name == "kafka_storage_error"
    assert node.broker.partitions.find("events", 0).is_led
    assert client.produce("events", one_batch("new")).base_offset == BATCHES
    assert values(client.fetch("events", BATCHES).records, 1 << 20) == [b"new"]


def test_what_was_looked_at_once_is_not_looked_at_again(node: SimNode) -> None:
    node.start()
    client = node.client()
    partition = node.broker.partitions.find("events", 0)
    unverified = partition.log.segments.active.unverified
    assert unverified is not None
    assert unverified.end == BATCHES * SIZE
    assert len(client.fetch("events", 0).records) == BATCHES * SIZE
    assert unverified.end == 0
    spoil(node, 3)
    answer = client.fetch("events", 0)
    assert len(answer.records) == BATCHES * SIZE, "and so what rots later is not seen"


def test_what_this_process_wrote_is_never_looked_at() -> None:
    node = SimNode()
    node.disk.cold_share = 0.0
    client = node.client()
    client.create("events")
    for number in range(BATCHES):
        client.produce("events", one_batch(f"v{number}"))
    assert node.broker.partitions.find("events", 0).log.segments.active.unverified is None
    spoil(node, 3)
    assert len(client.fetch("events", 0).records) == BATCHES * SIZE


def test_what_is_appended_after_a_start_is_served_with_what_was_there(node: SimNode) -> None:
    node.start()
    client = node.client()
    client.produce("events", one_batch("v6"))
    spoil(node, BATCHES)
    answer = client.fetch("events", 0)
    assert len(answer.records) == (BATCHES + 1) * SIZE, "only the part that was there is checked"


def test_one_bad_partition_does_not_hold_up_the_others_of_its_fetch(node: SimNode) -> None:
    spoil(node, 0)
    node.start()
    client = node.client()
    client.create("others")
    client.produce("others", one_batch("a"))
    client.send_fetch([("events", 0, 0), ("others", 0, 0)])
    answer = client.wait()
    rows = {topic.topic: topic.partitions[0] for topic in answer.responses}
    assert rows["events"].error_code.name == "kafka_storage_error"
    assert values(rows["others"].records, 1 << 20) == [b"a"]


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_after_the_next_start_it_is_found_again(node: SimNode, how: str) -> None:
    spoil(node, 1)
    node.start()
    assert node.client().fetch("events", 1).error_code.name == "kafka_storage_error"
    node.client().produce("events", one_batch("x" * 5000))
    node.client().produce("events", one_batch("y"))
    if how == "stop":
        node.stop()
    else:
        node.kill()
    node.start()
    client = node.client()
    refused = client.fetch("events", 1)
    assert refused.error_code.name == "kafka_storage_error"
    assert not refused.records


def test_a_length_that_is_wrong_hides_nothing_for_ever(node: SimNode) -> None:
    """An index is made anew where the log does not agree with it; what a wrong length hides
    then must not be written over."""
    node.start()
    client = node.client()
    for number in range(30):
        client.produce("events", one_batch("x" * 9000, f"{number}"))
    node.stop()
    log = node.disk.view()[LOG]
    at = BATCHES * SIZE
    positions = []
    while at < len(log):
        positions.append(at)
        at += 12 + int.from_bytes(log[at + 8 : at + 12], "big")
    assert len(positions) == 30
    node.disk.flip_bit(LOG, positions[9] + 9, 6)
    node.start()
    client = node.client()
    codes = {}
    for offset in range(BATCHES + 14, BATCHES + 24):
        codes[offset] = client.fetch("events", offset).error_code.name
    assert [offset for offset, code in codes.items() if code != "none"] == [24, 25]
    assert set(codes.values()) == {"none", "kafka_storage_error"}
    end = node.broker.partitions.find("events", 0).log.log_end_offset
    assert client.produce("events", one_batch("new")).base_offset == end
    after = node.disk.view()[LOG]
    assert after[positions[9] + 12 : len(log)] == log[positions[9] + 12 :], "nothing is lost"


def test_a_length_that_goes_wrong_while_the_broker_runs_is_told_of() -> None:
    """What this process wrote is not looked at; but a length is seen when it is needed."""
    node = SimNode()
    node.disk.cold_share = 0.0
    client = node.client()
    client.create("events")
    for number in range(30):
        client.produce("events", one_batch("x" * 9000, f"{number}"))
    partition = node.broker.partitions.find("events", 0)
    position, _ = partition.log.segments.active.locate(18)
    partition.log.roll()
    node.disk.flip_bit(LOG, position + 9, 6)
    for _ in range(2):
        assert client.fetch("events", 18).error_code.name == "kafka_storage_error"
    assert client.fetch("events", 4).records, "what lies before it is there"
    assert client.fetch("events", 24).records, "and what lies behind it"
    assert client.produce("events", one_batch("new")).base_offset == 60


def test_a_node_alone_says_at_every_start_that_it_has_lost_its_first_segments(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Its checkpoint does not say that they were deleted, whoever looks at it."""
    node = SimNode()
    client = node.client()
    client.create("events", segment_bytes=2 * SIZE)
    for number in range(BATCHES):
        client.produce("events", one_batch(f"v{number}"))
    node.stop()
    node.disk.remove(LOG)
    for _ in range(3):
        caplog.clear()
        node.start()
        log = node.broker.partitions.find("events", 0).log
        assert (log.log_start_offset, log.log_end_offset) == (2, BATCHES)
        node.loop.run_for(120_000)
        lines = [r.getMessage() for r in caplog.records if r.levelno == logging.ERROR]
        assert lines == ["lost segments log=/data/events-0 from_offset=0 to_offset=2"]
        assert b"events" not in read_whole(node.disk, "/data/log-start-offset-checkpoint")
        node.stop()
    node.start()
    retention.advance_log_start(node.broker.partitions.find("events", 0).log, 3)
    node.loop.run_for(120_000)
    assert b"events 0 3" in read_whole(node.disk, "/data/log-start-offset-checkpoint")
