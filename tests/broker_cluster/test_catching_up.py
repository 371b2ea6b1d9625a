"""A follower that was away takes in what it missed while it comes (R1, I3), and loses nothing.

Whole brokers on the simulated network: answers are cut into pieces, connections and leaders end in
the middle of one.
"""

import errno
from collections.abc import Callable
from typing import Any

import pytest

from support.brokers import one_batch
from support.cluster_calls import assert_alike, write
from support.sim_cluster import SimCluster
from support.sim_machines import ProcessLoop
from tidelog.base.ports import Level
from tidelog.log.files import LOG
from tidelog.world.sim.pressure import SimPressure
from tidelog.write_gauge import BELIEVED_MS

BATCHES, BATCH_BYTES = 60, 60_000
"""Several answers, the larger of which come in several parts."""


def left_behind(seed: int, **settings: int) -> SimCluster:
    """Broker 3 was away while all this was written."""
    cluster = SimCluster(seed=seed, **settings)
    cluster.create("events", replicas=[[1, 2, 3]])
    write(cluster, "events", "first")
    cluster.wait_caught_up("events")
    cluster.stop(3)
    client = cluster.client(1)
    for number in range(BATCHES):
        client.send_produce("events", one_batch(f"{number}" * BATCH_BYTES))
    client.wait()
    return cluster


def end_at(cluster: SimCluster, broker_id: int) -> int:
    held = cluster.replica(broker_id, "events")
    return 0 if held is None else held.log.log_end_offset


@pytest.mark.parametrize("seed", range(3))
def test_a_log_grows_while_an_answer_comes_and_no_leader_is_told_before(seed: int) -> None:
    cluster = left_behind(seed, replica_fetch_max_bytes=600_000)
    cluster.start(3)
    leader = cluster.held(1, "events")
    whole = leader.log.log_end_offset
    ends: list[int] = []

    def has_all() -> bool:
        end = end_at(cluster, 3)
        if not ends or end != ends[-1]:
            ends.append(end)
        remote = leader.replica.remotes[3]
        assert not remote.has_fetched or remote.log_end_offset <= end
        return end == whole

    cluster.wait(has_all, "it has everything")
    assert ends == sorted(ends)
    assert len(ends) > 6, "answers are taken in by parts"
    cluster.wait(lambda: cluster.isr("events") == [1, 2, 3], "it is in sync")
    cluster.wait_caught_up("events")
    assert len(assert_alike(cluster, "events")) > BATCHES * BATCH_BYTES


@pytest.mark.parametrize("seed", range(3))
def test_the_leader_may_die_in_the_middle_of_an_answer(seed: int) -> None:
    cluster = left_behind(seed)
    cluster.start(3)
    cluster.wait(lambda: end_at(cluster, 3) > 3 + 7 * seed, "a part has come")
    assert end_at(cluster, 3) < BATCHES
    cluster.kill(1)
    cluster.wait(lambda: end_at(cluster, 3) == end_at(cluster, 2) > BATCHES, "another one goes on")
    cluster.start(1)
    cluster.wait(lambda: cluster.isr("events") == [1, 2, 3], "all are in sync")
    write(cluster, "events", "last")
    cluster.wait_caught_up("events")
    assert len(assert_alike(cluster, "events")) > BATCHES * BATCH_BYTES


@pytest.mark.parametrize("seed", range(3))
def test_the_follower_may_die_in_the_middle_of_an_answer(seed: int) -> None:
    cluster = left_behind(seed)
    cluster.start(3)
    cluster.wait(lambda: end_at(cluster, 3) > 3 + 7 * seed, "a part has come")
    cluster.lose_power(3)
    cluster.run_for(20_000)
    cluster.start(3)
    cluster.wait(lambda: cluster.isr("events") == [1, 2, 3], "it is in sync")
    cluster.wait_caught_up("events")
    assert len(assert_alike(cluster, "events")) > BATCHES * BATCH_BYTES


def test_segments_end_in_the_middle_of_an_answer() -> None:
    cluster = left_behind(1, log_segment_bytes=1_048_576)
    cluster.start(3)
    cluster.wait(lambda: cluster.isr("events") == [1, 2, 3], "it is in sync")
    cluster.wait_caught_up("events")
    assert len(cluster.held(3, "events").log.segments.all) >= 3
    assert_alike(cluster, "events")


@pytest.mark.parametrize("seed", range(5))
def test_what_was_being_written_when_the_connection_was_lost_is_not_written_twice(
    seed: int, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SimPressure, "level", lambda _: Level.high)
    cluster = left_behind(seed)
    cluster.start(3)

    def is_writing() -> bool:
        held = cluster.replica(3, "events")
        return held is not None and held.is_busy

    for _ in range(3):
        cluster.wait(is_writing, "a part is being written")
        fetchers = cluster.broker(3)._fetchers
        assert fetchers is not None
        for fetcher in fetchers._fetchers.values():
            fetcher._link.drop("the test cuts it")
        cluster.wait(lambda: not is_writing(), "it is written")
    cluster.wait(lambda: cluster.isr("events") == [1, 2, 3], "it is in sync")
    cluster.wait_caught_up("events")
    assert len(assert_alike(cluster, "events")) > BATCHES * BATCH_BYTES
    assert "not replicated" not in caplog.text


@pytest.mark.parametrize("seed", range(3))
def test_parts_are_written_by_the_loop_while_the_disk_keeps_up(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SimPressure, "level", lambda _: Level.low)
    cluster = left_behind(seed)
    cluster.start(3)
    ends: set[int] = set()

    def has_all() -> bool:
        held = cluster.replica(3, "events")
        assert held is None or not held.is_busy
        ends.add(end_at(cluster, 3))
        return end_at(cluster, 3) == end_at(cluster, 1)

    cluster.wait(has_all, "it has everything")
    assert len(ends) > 4, "answers are taken in by parts"
    cluster.wait_caught_up("events")
    assert len(assert_alike(cluster, "events")) > BATCHES * BATCH_BYTES


@pytest.mark.parametrize("level", Level)
@pytest.mark.parametrize("seed", range(3))
def test_nothing_behind_a_part_that_could_not_be_written_is_in_the_log(
    seed: int, level: Level, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S10: the disk fails once, in the middle of a part, and is well again: what came behind it
    does not count, and is fetched when the broker is back."""
    monkeypatch.setattr(SimPressure, "level", lambda _: level)
    cluster = left_behind(seed)
    cluster.start(3)
    cluster.wait(lambda: end_at(cluster, 3) > 3 + 7 * seed, "a part has come")
    held = cluster.held(3, "events")
    cluster.wait(lambda: not held.is_busy, "nothing is being written")
    cluster.machines[3].disk.fail(errno.EIO, path="/data/events-0/*.log", part=0.5)
    before = held.log.log_end_offset
    cluster.wait(lambda: held.log.home.failure is not None, "the disk fails")
    cluster.run_for(1_000)
    assert held.log.log_end_offset == before < end_at(cluster, 1)
    cluster.kill(3)
    cluster.start(3)
    cluster.wait(lambda: cluster.isr("events") == [1, 2, 3], "it is in sync")
    cluster.wait_caught_up("events")
    assert len(assert_alike(cluster, "events")) > BATCHES * BATCH_BYTES


def test_a_follower_that_wants_much_at_once_waits_at_the_end_of_no_segment() -> None:
    """R3: an answer does not go beyond it, and the high watermark waits for this follower."""
    cluster = SimCluster(2, replica_fetch_min_bytes=1 << 20, replica_fetch_wait_max_ms=2_000)
    cluster.create("events", replicas=[[1, 2]], segment_bytes=2_500)
    client = cluster.client(1)
    for number in range(8):
        client.send_produce("events", one_batch(f"{number}" + "x" * 1_000), acks=1)
    client.wait()
    last = cluster.held(1, "events").log.segments.active.base_offset
    assert last >= 6
    began_ms = cluster.clock.monotonic_ms()
    cluster.wait(lambda: end_at(cluster, 2) >= last, "it follows")
    assert cluster.clock.monotonic_ms() - began_ms < 2_000


@pytest.mark.parametrize("level", [Level.low, Level.limit])
def test_at_the_limit_a_followers_small_batches_do_not_wait_behind_large_ones(
    level: Level, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They have the thread that a leader's have; and are all there."""
    cluster = SimCluster(2)
    cluster.create("events", replicas=[[1, 2]])
    client = cluster.client(1)
    client.send_produce("events", one_batch("before"), acks=-1)
    client.wait()
    monkeypatch.setattr(SimPressure, "level", lambda _: level)
    cluster.run_for(BELIEVED_MS)
    lanes: list[str] = []
    offload = ProcessLoop.offload

    def noting(
        loop: ProcessLoop, lane: str, work: Callable[[], Any], done: Callable[[Any], None]
    ) -> None:
        if loop._name == "machine-2":
            lanes.append(lane)
        offload(loop, lane, work, done)

    monkeypatch.setattr(ProcessLoop, "offload", noting)
    for number in range(3):
        client.send_produce("events", one_batch(f"{number}"), acks=-1)
        client.wait()
    cluster.wait_caught_up("events")
    written = [lane for lane in lanes if lane.startswith("write")]
    assert written == (["write little /data"] * 3 if level is Level.limit else [])
    assert_alike(cluster, "events")


@pytest.mark.parametrize("seed", range(4))
def test_a_follower_that_stops_says_that_all_is_durable_when_nothing_is_being_written_any_more(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S8: the next start takes all that it finds for durable."""
    monkeypatch.setattr(SimPressure, "level", lambda _: Level.high)
    cluster = left_behind(seed)
    cluster.start(3)
    held = cluster.held(3, "events")
    cluster.wait(lambda: held.is_busy, "a part is being written")
    ended: list[bool] = []
    cluster.broker(3).stop(lambda: ended.append(True))
    cluster.wait(lambda: bool(ended), "it stops")
    disk, path = cluster.machines[3].disk, held.log.segments.active.path(LOG)
    before = disk.stat(path)
    cluster.run_for(100)
    assert disk.stat(path) == before, "what was begun has ended"
    cluster.lose_power(3)
    assert disk.stat(path) == before
    assert disk.stat("/data/.kafka_cleanshutdown") is not None
