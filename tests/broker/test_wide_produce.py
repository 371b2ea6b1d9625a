"""Produce requests of very many partitions: served in slices, in their order, and none of what is
promised changes; and requests that name a partition twice (A1, R5, rule B3)."""

import gc
from collections.abc import Callable
from typing import Any

import pytest

from support.brokers import PRODUCE, SimClient, SimNode, one_batch
from support.sim_cluster import SimCluster
from tidelog.handlers.api import Request
from tidelog.handlers.wide_produce import ROWS_MAX, STEP_ROWS
from tidelog.slices import SLICE_STEPS
from tidelog.wire import codec
from tidelog.wire.header import read_request_header
from tidelog.wire.produce import ProduceRequest

WIDE = ROWS_MAX + 5 * SLICE_STEPS * STEP_ROWS
"""Many slices, also where the clock stands still."""
Rows = list[tuple[str, int, bytes | None]]


def production(rows: Rows, acks: int = 1) -> dict[str, Any]:
    """Rows of one topic that stand together are its partitions."""
    topics: list[dict[str, Any]] = []
    for topic, index, batch in rows:
        if not topics or topics[-1]["name"] != topic:
            topics.append({"name": topic, "partition_data": []})
        topics[-1]["partition_data"].append({"index": index, "records": batch})
    return {"transactional_id": None, "acks": acks, "timeout": 1000, "topic_data": topics}


def results(answer: Any) -> list[tuple[str, int, str, int]]:
    return [
        (topic.name, row.index, row.error_code.name, row.base_offset)
        for topic in answer.responses
        for row in topic.partition_responses
    ]


def nowhere(count: int, batch: bytes | None = None) -> Rows:
    return [("nowhere", index, batch) for index in range(count)]


@pytest.fixture
def node() -> SimNode:
    made = SimNode()
    made.client().create("events", 3)
    return made


def values(client: SimClient, topic: str) -> bytes:
    return bytes(client.fetch(topic, 0).records or b"")


@pytest.mark.parametrize("version", [3, 7, 8, 9, 12])
def test_others_are_served_while_a_wide_request_is(node: SimNode, version: int) -> None:
    wide, other = node.client(), node.client()
    count = 5 * WIDE
    rows = [*nowhere(count), ("events", 1, one_batch("a")), ("events", 1, one_batch("b"))]
    wide.send(PRODUCE, version, **production(rows))
    wide.until(lambda: not node.broker.slices.is_idle or bool(wide.answers))
    assert other.produce("events", one_batch("first")).base_offset == 0
    assert not node.broker.slices.is_idle, "the wide one is not done"
    assert not wide.answers
    found = results(wide.wait())
    assert found[:count] == [
        ("nowhere", index, "unknown_topic_or_partition", -1) for index in range(count)
    ]
    assert found[count:] == [("events", 1, "none", 0), ("events", 1, "none", 1)]


@pytest.mark.parametrize("batch", [None, one_batch("x")], ids=["a small frame", "a large frame"])
def test_what_comes_behind_a_wide_request_waits_for_it(node: SimNode, batch: bytes | None) -> None:
    """Also where both came in one go."""
    wide, other = node.client(), node.client()
    rows = [*nowhere(2 * ROWS_MAX, batch), ("events", 0, one_batch("first"))]
    requests = [
        wide.request(PRODUCE, 9, **production(rows)),
        wide.request(PRODUCE, 9, **production([("events", 0, one_batch("second"))])),
        wide.request(PRODUCE, 9, **production([("events", 0, one_batch("third"))])),
    ]
    wide.send_bytes(b"".join(requests))
    wide.wait()
    assert [results(answer)[-1] for answer in wide.answers] == [
        ("events", 0, "none", offset) for offset in range(3)
    ]
    stored = values(other, "events")
    assert stored.index(b"first") < stored.index(b"second") < stored.index(b"third")


def test_batches_of_a_wide_request_outlast_what_they_were_received_in(node: SimNode) -> None:
    """All connections receive into the same buffer, and others do before the last slice."""
    rows = [*nowhere(WIDE // 2), ("events", 0, one_batch("kept"))]
    frame = SimClient(node).request(PRODUCE, 9, **production(rows))[4:]
    shared = node.broker.buffers.shared
    shared[: len(frame)] = frame
    view = memoryview(shared)[: len(frame)]
    header, at = read_request_header(view)
    api = node.broker.apis[PRODUCE]
    answers = Answered()
    body = api.read(PRODUCE, 9, view, at)
    request = Request(answers, api, 9, header.correlation_id, header.client_id, body)
    assert api.handle(node.broker, request) is None
    assert not node.broker.slices.is_idle
    shared[: len(frame)] = bytes(len(frame))
    assert node.loop.run_until(lambda: bool(answers.frames))
    _, answer = codec.read_response(PRODUCE, 9, answers.frames[0][4:])
    assert results(answer)[-1] == ("events", 0, "none", 0)
    assert b"kept" in values(node.client(), "events")


class Answered:
    """A connection that keeps what it is to send."""

    listener = "PLAINTEXT"
    peer = "client:1"
    is_finishing = False

    def __init__(self) -> None:
        self.frames: list[bytes] = []

    def answered(self, request: Request) -> None:
        assert request.parts is not None
        self.frames += [part for part in request.parts if isinstance(part, bytes)]

    def go_on(self) -> None:
        """Nothing waits behind a request."""

    def close(self, why: str) -> None:
        raise AssertionError(why)

    def abort(self, why: str) -> None:
        raise AssertionError(why)


def test_a_wide_request_behind_small_ones_is_one_of_them(node: SimNode) -> None:
    client = node.client()
    small = production([("events", 0, one_batch("a")), ("events", 1, one_batch("b"))])
    requests = [
        client.request(PRODUCE, 9, **small),
        client.request(PRODUCE, 9, **small),
        client.request(PRODUCE, 9, **production([*nowhere(WIDE), ("events", 0, one_batch("c"))])),
        client.request(PRODUCE, 9, **small),
    ]
    client.send_bytes(b"".join(requests))
    client.wait()
    assert [results(answer)[-1][3] for answer in client.answers] == [0, 1, 2, 2]
    assert results(client.answers[3])[0] == ("events", 0, "none", 3)


def test_slow_batches_of_a_wide_request_are_answered_with_the_others(node: SimNode) -> None:
    """Of a compacted topic, whose keys are looked at beside the loop; one is refused for that."""
    client = node.client()
    client.create("keyed", cleanup_policy="compact")
    slow: Rows = [("keyed", 0, one_batch("a")), ("keyed", 0, one_batch("b", key=None))]
    client.send(PRODUCE, 9, **production([*slow, *nowhere(WIDE), ("events", 0, one_batch("c"))]))
    found = results(client.wait())
    assert found[:2] == [("keyed", 0, "none", 0), ("keyed", 0, "invalid_record", -1)]
    assert found[-1] == ("events", 0, "none", 0)
    assert len(found) == WIDE + 3


def test_a_wide_request_without_acks_is_not_answered_and_its_errors_close(node: SimNode) -> None:
    client = node.client()
    good: Rows = [("events", 0, one_batch(str(number))) for number in range(2 * ROWS_MAX)]
    client.send(PRODUCE, 9, **production(good, acks=0))
    assert client.produce("events", one_batch("x")).base_offset == len(good)
    assert len(client.frames) == 1
    client.send(PRODUCE, 9, **production(nowhere(WIDE), acks=0))
    assert node.loop.run_until(lambda: client.closed_why is not None)


def test_a_broker_that_stops_answers_a_wide_request_first(node: SimNode) -> None:
    client = node.client()
    rows: Rows = [("events", 0, one_batch("x"))] * (WIDE // 2)
    client.send(PRODUCE, 9, **production([*rows, ("events", 1, one_batch("kept"))]))
    client.until(lambda: not node.broker.slices.is_idle)
    node.stop()
    client.until(lambda: bool(client.answers))
    assert results(client.answers[0])[-1] == ("events", 1, "none", 0)
    node.start()
    assert node.client().produce("events", one_batch("y")).base_offset == len(rows)


def test_a_wide_request_that_nobody_waits_for_harms_nobody(node: SimNode) -> None:
    gone, other = node.client(), node.client()
    gone.send(PRODUCE, 9, **production([*nowhere(WIDE), ("events", 0, one_batch("a"))]))
    gone.until(lambda: not node.broker.slices.is_idle)
    gone.link.close()
    assert node.loop.run_until(lambda: node.broker.slices.is_idle)
    assert other.produce("events", one_batch("b"), index=1).base_offset == 0


@pytest.mark.parametrize("rows", [1, WIDE])
def test_acks_all_waits_for_the_followers_of_every_partition(rows: int) -> None:
    """R5: and for no longer than the client said."""
    cluster = SimCluster()
    cluster.create("events", replicas=[[1, 2, 3]])
    client = cluster.client(1)
    first, last = ("events", 0, one_batch("a")), ("events", 0, one_batch("b"))
    client.send(PRODUCE, 9, **production([first, *nowhere(rows), last], acks=-1))
    found = results(client.wait())
    assert (found[0], found[-1]) == (("events", 0, "none", 0), ("events", 0, "none", 1))
    cluster.wait_caught_up("events")
    cluster.cut(1, 3, one_way=True)
    began_ms = cluster.clock.monotonic_ms()
    client.send(PRODUCE, 9, **production([first, *nowhere(rows), last], acks=-1))
    found = results(client.wait())
    assert cluster.clock.monotonic_ms() - began_ms >= 1000
    late = ("events", 0, "request_timed_out", -1)
    assert (found[0], found[-1]) == (late, late)
    cluster.network.mend()


@pytest.mark.parametrize("rows", [1, WIDE])
def test_what_was_sent_is_not_kept_for_longer_than_it_is_waited_for(rows: int) -> None:
    """A1: whoever was told that it takes too long sends it again, and again, however long the
    replicas in sync are away."""
    cluster = SimCluster()
    cluster.create("events", replicas=[[1, 2, 3]])
    cluster.wait_caught_up("events")
    cluster.cut(1, 3, one_way=True)
    client = cluster.client(1)
    row = ("events", 0, one_batch("a"))
    others = produce_requests()
    client.send(PRODUCE, 9, **production([row, *nowhere(rows), row], acks=-1))
    assert results(client.wait())[0] == ("events", 0, "request_timed_out", -1)
    assert all(any(one is other for other in others) for one in produce_requests())


def produce_requests() -> list[ProduceRequest]:
    """Those of other tests in this process, too."""
    gc.collect()
    return [found for found in gc.get_objects() if isinstance(found, ProduceRequest)]


def test_what_was_too_late_stays_so_however_it_ends_while_the_answer_is_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A1, R5: a batch that is in the log after the time is over is not committed by that."""
    cluster = SimCluster()
    cluster.create("keyed", replicas=[[1, 2, 3]], cleanup_policy="compact")
    cluster.wait_caught_up("keyed")
    slices, loop = cluster.broker(1).slices, cluster.process(1).loop
    offload, held = loop.offload, []

    def holding(lane: str, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        if lane.startswith("inspect"):
            held.append(lambda: done(work()))
        else:
            offload(lane, work, done)

    monkeypatch.setattr(loop, "offload", holding)
    client = cluster.client(1)
    client.send(PRODUCE, 9, **production([*nowhere(WIDE), ("keyed", 0, one_batch("a"))], acks=-1))
    cluster.wait(lambda: bool(held) and slices.is_idle, "it waits for its last batch")
    cluster.isolate(1)
    cluster.wait(lambda: not slices.is_idle, "its time is over, and its answer is made")
    assert not client.answers
    held.pop()()
    assert cluster.held(1, "keyed").log.log_end_offset == 1
    assert results(client.wait())[-1] == ("keyed", 0, "request_timed_out", -1)


# -- a partition that is named twice


@pytest.mark.parametrize("between", [0, WIDE])
def test_a_partition_that_is_named_twice_gets_its_batches_in_order(
    node: SimNode, between: int
) -> None:
    """The first is so large that it is written beside the loop."""
    client = node.client()
    client.create("broad", max_message_bytes=4_000_000)
    large = one_batch("first" * 500_000)
    rows = [("broad", 0, large), *nowhere(between), ("broad", 0, one_batch("second"))]
    client.send(PRODUCE, 9, **production(rows))
    found = results(client.wait())
    assert (found[0], found[-1]) == (("broad", 0, "none", 0), ("broad", 0, "none", 1))
