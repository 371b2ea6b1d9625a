"""Fetches that name very many partitions: served in slices, and answered as if they had not been
(R3, rule B3)."""

from typing import Any

import pytest

from support.brokers import FETCH, SimNode, one_batch
from tidelog.broker import STOP_MS_MAX
from tidelog.handlers import fetch as fetch_handler
from tidelog.handlers.wide_fetch import ROWS_MAX, STEP_ROWS
from tidelog.serving import fetch_sessions
from tidelog.slices import SLICE_STEPS
from tidelog.wire import codec

WIDE = ROWS_MAX + 5 * SLICE_STEPS * STEP_ROWS
FETCHED = 4
"""Of the partitions that are there, those with records."""
Wanted = list[tuple[str, int, int]]


def fetching(wanted: Wanted, **values: Any) -> dict[str, Any]:
    """Neighbours of one topic are its partitions."""
    topics: list[dict[str, Any]] = []
    for topic, index, offset in wanted:
        if not topics or topics[-1]["topic"] != topic:
            topics.append({"topic": topic, "partitions": []})
        row = {"partition": index, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
        topics[-1]["partitions"].append(row | {"current_leader_epoch": -1})
    usual = {"replica_id": -1, "max_wait": 0, "min_bytes": 1, "session_epoch": -1}
    return usual | {"topics": topics, "forgotten_topics_data": []} | values


def rows(answer: Any) -> list[tuple[str, int, str, bytes]]:
    return [
        (topic.topic, row.partition_index, row.error_code.name, bytes(row.records or b""))
        for topic in answer.responses
        for row in topic.partitions
    ]


def nowhere(count: int) -> Wanted:
    return [("nowhere", index, 0) for index in range(count)]


def everywhere(count: int) -> Wanted:
    return [(f"no-{number}", 0, 0) for number in range(count)]


@pytest.fixture
def node() -> SimNode:
    made = SimNode()
    client = made.client()
    client.create("events", FETCHED + 1)
    for index in range(FETCHED):
        client.produce("events", one_batch(f"value {index}"), index=index)
    return made


EVENTS: Wanted = [("events", index, 0) for index in range(FETCHED + 1)]


@pytest.mark.parametrize("version", [4, 5, 7, 9, 11, 12])
@pytest.mark.parametrize("others", [nowhere, everywhere])
def test_a_wide_fetch_is_answered_as_a_narrow_one(
    node: SimNode, monkeypatch: pytest.MonkeyPatch, version: int, others: Any
) -> None:
    """Byte for byte."""
    client = node.client()
    asked = fetching([*others(ROWS_MAX), *EVENTS], isolation_level=1)
    client.send(FETCH, version, **asked)
    sliced = client.wait()
    assert [row[3][-8:-1] for row in rows(sliced)[ROWS_MAX:]] == [
        *(b"value %d" % index for index in range(FETCHED)),
        b"",
    ]
    monkeypatch.setattr(fetch_handler, "ROWS_MAX", 2 * ROWS_MAX)
    client.send(FETCH, version, **asked)
    assert client.wait() == sliced
    assert client.frames[-1][4:] == client.frames[-2][4:]
    assert codec.read_response(FETCH, version, client.frames[-2])[1] == sliced


def test_others_are_served_while_a_wide_fetch_is(node: SimNode) -> None:
    wide, other = node.client(), node.client()
    count = 4 * WIDE
    wide.send(FETCH, 12, **fetching([*nowhere(count), *EVENTS]))
    wide.until(lambda: not node.broker.slices.is_idle or bool(wide.answers))
    assert other.produce("events", one_batch("meanwhile"), index=FETCHED).base_offset == 0
    assert not node.broker.slices.is_idle, "the wide one is not done"
    assert not wide.answers
    found = rows(wide.wait())
    assert len(found) == count + len(EVENTS)
    assert {row[2] for row in found[:count]} == {"unknown_topic_or_partition"}
    assert b"meanwhile" in found[-1][3], "what came before it was looked at"


def test_what_comes_behind_a_wide_fetch_is_answered_behind_it(node: SimNode) -> None:
    client = node.client()
    requests = [
        client.request(FETCH, 12, **fetching([*nowhere(WIDE), *EVENTS])),
        client.request(FETCH, 12, **fetching(EVENTS[:1])),
    ]
    client.send_bytes(b"".join(requests))
    client.wait()
    assert [len(rows(answer)) for answer in client.answers] == [WIDE + len(EVENTS), 1]


def many_events(node: SimNode) -> Wanted:
    """The same few partitions cannot be named twice: a session has one position for each."""
    count = ROWS_MAX + 10
    node.client().create("quiet", count)
    return [("quiet", index, 0) for index in range(count)]


@pytest.mark.parametrize("session_epoch", [-1, 0])
def test_a_wide_fetch_waits_for_what_comes_and_lets_others_in(
    node: SimNode, session_epoch: int
) -> None:
    """R3: on its own connection too."""
    wide, other = node.client(), node.client()
    quiet = many_events(node)
    wide.send(FETCH, 12, **fetching(quiet, max_wait=60_000, session_epoch=session_epoch))
    wide.send_produce("events", one_batch("behind"), index=FETCHED)
    partition = node.broker.partitions.find("events", FETCHED)
    wide.until(lambda: partition.log.log_end_offset == 1)
    assert not wide.answers
    assert node.broker.slices.is_idle, "it waits"
    other.produce("quiet", one_batch("news"), index=7)
    wide.until(lambda: len(wide.answers) == 2)
    found = rows(wide.answers[0])
    assert len(found) == len(quiet)
    assert [row[1] for row in found if b"news" in row[3]] == [7]


def test_what_comes_while_a_wide_fetch_is_looked_at_ends_its_wait(node: SimNode) -> None:
    wide, other = node.client(), node.client()
    quiet = many_events(node)
    wide.send(FETCH, 12, **fetching(quiet, max_wait=600_000))
    first = node.broker.partitions.find("quiet", 0)
    wide.until(lambda: bool(first.waiters) and not node.broker.slices.is_idle)
    first.append(bytearray(one_batch("news")), 0)
    assert b"news" in rows(wide.wait())[0][3]
    assert other.produce("quiet", one_batch("more")).base_offset == 1


def test_a_stop_waits_for_no_wide_fetch_that_is_not_looked_at_to_its_end(node: SimNode) -> None:
    """S8: it does not begin to wait then."""
    client = node.client()
    quiet = many_events(node)
    client.send(FETCH, 12, **fetching(quiet, max_wait=600_000))
    first = node.broker.partitions.find("quiet", 0)
    client.until(lambda: bool(first.waiters) and not node.broker.slices.is_idle)
    began_ms = node.clock.monotonic_ms()
    closed: list[bool] = []
    node.broker.doors.close(lambda: closed.append(True), began_ms + STOP_MS_MAX)
    assert node.loop.run_until(lambda: bool(closed))
    assert node.clock.monotonic_ms() - began_ms < 5_000
    node.loop.run_for(1_000)
    assert [len(rows(answer)) for answer in client.answers] == [len(quiet)]


def test_a_wide_session_goes_on_with_what_has_changed(node: SimNode) -> None:
    client = node.client()
    quiet = many_events(node)
    client.send(FETCH, 12, **fetching(quiet, session_epoch=0))
    session_id = client.wait().session_id
    assert session_id > 0
    client.produce("quiet", one_batch("news"), index=3)
    going_on = {"session_id": session_id, "session_epoch": 1}
    client.send(FETCH, 12, **fetching([], **going_on))
    assert [row[:3] for row in rows(client.wait())] == [("quiet", 3, "none")]
    forgotten = [{"topic": "quiet", "partitions": [index for _, index, _ in quiet]}]
    going_on = {"session_id": session_id, "session_epoch": 2, "forgotten_topics_data": forgotten}
    client.send(FETCH, 12, **fetching(EVENTS, **going_on))
    assert [row[1] for row in rows(client.wait())] == [index for _, index, _ in EVENTS]
    (session,) = node.broker.sessions._by_id.values()
    assert len(session.positions) == len(EVENTS)


def test_a_wide_fetch_leaves_nothing_behind(node: SimNode) -> None:
    client = node.client()
    quiet = many_events(node)
    client.send(FETCH, 12, **fetching(quiet, max_wait=100))
    client.wait()
    client.send(FETCH, 12, **fetching(quiet, max_wait=60_000))
    client.until(lambda: bool(node.broker.partitions.find("quiet", 0).waiters))
    client.link.close()
    assert node.loop.run_until(
        lambda: not any(partition.waiters for partition in node.broker.partitions)
    )


def test_a_wide_fetch_of_cold_files_is_answered(node: SimNode) -> None:
    client = node.client()
    quiet = many_events(node)
    client.create("rolled", segment_bytes=1 << 20)
    for number in range(12):
        client.produce("rolled", one_batch(f"{number:03}" + "x" * 100_000))
    node.stop()
    node.start()
    client = node.client()
    log = node.broker.partitions.find("rolled", 0).log
    for segment in log.segments.all:
        segment.offset_index.blocks.clear()
    node.disk.cold_share = 1.0
    client.send(FETCH, 12, **fetching([*quiet, ("rolled", 0, 2)]))
    found = rows(client.wait())
    assert len(found) == len(quiet) + 1
    assert b"002x" in found[-1][3]


def test_a_client_that_leaves_while_its_wide_fetch_is_served_leaves_nothing_behind(
    node: SimNode,
) -> None:
    """Rule B3: whatever it said how long it would wait."""
    wanted = many_events(node)
    client = node.client()
    *_, connection = node.broker.doors.connections
    client.send(FETCH, 12, **fetching(wanted, max_wait=(1 << 31) - 1, min_bytes=1 << 30))
    client.until(lambda: not node.broker.slices.is_idle)
    connection.abort("it is gone")
    assert node.loop.run_until(lambda: node.broker.slices.is_idle, 10_000)
    assert connection not in node.broker.doors.connections
    assert not any(partition.waiters for partition in node.broker.partitions)


def test_a_session_that_ends_while_it_grows_takes_no_room_from_others(
    node: SimNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, wanted = node.client(), nowhere(WIDE)
    monkeypatch.setattr(fetch_sessions, "POSITIONS_MAX", len(wanted))
    client.send(FETCH, 12, **fetching([], session_epoch=0))
    session_id = client.wait().session_id
    client.send(FETCH, 12, **fetching(wanted, session_id=session_id, session_epoch=1))
    client.until(lambda: not node.broker.slices.is_idle)
    node.broker.sessions.open(session_id, fetch_sessions.FINAL_EPOCH, 0)
    client.wait()
    client.send(FETCH, 12, **fetching(wanted, session_epoch=0))
    assert client.wait().session_id > 0


@pytest.mark.parametrize("version", [7, 11, 12])
def test_a_wide_session_in_which_nothing_has_changed_is_answered(
    node: SimNode, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    """As a narrow one is, byte for byte: with no rows at all."""
    client = node.client()
    quiet = many_events(node)
    client.send(FETCH, version, **fetching(quiet, session_epoch=0))
    session_id = client.wait().session_id
    assert session_id > 0
    for session_epoch, rows_max in ((1, ROWS_MAX), (2, 2 * ROWS_MAX)):
        monkeypatch.setattr(fetch_handler, "ROWS_MAX", rows_max)
        going_on = {"session_id": session_id, "session_epoch": session_epoch, "max_wait": 10}
        client.send(FETCH, version, **fetching(quiet, **going_on))
        assert rows(client.wait()) == []
    assert client.frames[-1][4:] == client.frames[-2][4:]
