"""Followers fetch on (R1, D6) whatever happens to the network, to leaders and to settings."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.fetching_stage import LEADER, OTHER, Stage, keys
from support.scripted_leader import RECORD, Key
from tidelog.base.errors import ErrorCode


@pytest.fixture(params=range(5))
def stage(request: pytest.FixtureRequest) -> Stage:
    return Stage(request.param)


# The network, and leaders that come and go.


def test_a_leader_that_restarts_at_another_address_is_found(stage: Stage) -> None:
    wanted = keys(20)
    stage.leader.lead(*wanted, end=3)
    stage.follow(*wanted)
    stage.until()
    for restart, port in enumerate((9093, 9092, 9094), 4):
        stage.network.host("leader").die()
        stage.loop.run_for(restart * 100)
        stage.leader = stage.start(LEADER, port)
        stage.leader.lead(*wanted, end=restart)
        stage.until(5_000)
    assert len(stage.leader.sessions) == 1


def test_a_leader_whose_machine_came_back_is_found_through_a_new_epoch(stage: Stage) -> None:
    """The old connection is half open: its fetch would wait for replica.socket.timeout.ms."""
    wanted = keys(3)
    stage.leader.lead(*wanted, end=3)
    stage.follow(*wanted)
    stage.until()
    stage.network.host("leader").vanish()
    stage.loop.run_for(500)
    stage.leader = stage.start(LEADER)
    stage.leader.lead(*wanted, end=4, epoch=2)
    began_ms = stage.now_ms()
    stage.follow(*wanted, epoch=2)
    stage.until()
    assert stage.now_ms() - began_ms < 1_500


def test_partitions_move_to_another_leader(stage: Stage) -> None:
    wanted = keys(10)
    stage.leader.lead(*wanted, end=3)
    stage.other.lead(*wanted, end=8, epoch=2)
    stage.follow(*wanted)
    stage.until()
    stage.network.host("leader").vanish()
    stage.follow(*wanted, leader_id=OTHER, epoch=2)
    stage.leader = stage.other
    began_ms = stage.now_ms()
    stage.until()
    assert stage.now_ms() - began_ms < 100
    stage.loop.run_for(60_000)
    assert list(stage.fetchers._fetchers) == [(OTHER, 0)], "nobody asks the old one any more"


def test_what_a_lost_fetch_would_have_told_is_told_again(stage: Stage) -> None:
    """The session may have survived on the leader's side; it does not know the second one."""
    first, second = keys(2)
    stage.leader.lead(first, second, end=2)
    stage.follow(first)
    stage.until()
    stage.loop.run_for(1_000)
    stage.leader.is_silent = True
    stage.follow(second)
    stage.loop.run_for(1_000)
    stage.network.host("leader").reset()
    stage.leader.is_silent = False
    began_ms = stage.now_ms()
    stage.until()
    assert stage.now_ms() - began_ms < 200


def test_a_cut_is_survived(stage: Stage) -> None:
    (key,) = keys(1)
    stage.leader.lead(key, end=3)
    stage.follow(key)
    stage.until()
    stage.network.cut("me", "leader")
    stage.leader.append(key, 3)
    stage.loop.run_for(100_000)
    stage.network.mend()
    stage.until()
    assert stage.leader.parked_most <= 2, "the leader may not know of a connection's end"


def test_an_answer_that_cannot_be_read_makes_no_storm(stage: Stage) -> None:
    (key,) = keys(1)
    stage.leader.lead(key, end=3)
    stage.leader.broker.on_request = lambda asked: asked.answer(b"\x00garbage")
    stage.follow(key)
    stage.loop.run_for(10_000)
    assert 5 <= len(stage.leader.broker.requests) <= 12
    stage.leader.broker.on_request = stage.leader._take
    stage.until()


def test_a_leader_that_refuses_everything_is_asked_rarely(stage: Stage) -> None:
    (key,) = keys(1)
    stage.leader.lead(key, end=3)
    stage.leader.refuses_with = [int(ErrorCode.cluster_authorization_failed)] * 5
    stage.follow(key)
    stage.loop.run_for(3_500)
    assert len(stage.leader.fetches) == 4
    stage.until()


def test_a_leader_that_knows_no_session_even_when_it_begins_makes_no_storm(stage: Stage) -> None:
    (key,) = keys(1)
    stage.leader.lead(key, end=3)
    stage.leader.refuses_with = [int(ErrorCode.fetch_session_id_not_found)] * 100
    stage.follow(key)
    stage.loop.run_for(5_500)
    assert len(stage.leader.fetches) <= 6


def test_after_the_end_nothing_is_asked(stage: Stage) -> None:
    stage.leader.lead(*keys(3), end=3)
    stage.follow(*keys(3))
    stage.loop.run_for(5)
    for log in stage.logs.values():
        log.is_over = True
    stage.fetchers.close()
    stage.loop.run_for(5_000)
    fetches = len(stage.leader.fetches)
    stage.loop.run_for(60_000)
    assert len(stage.leader.fetches) == fetches


# Several fetchers.


def test_partitions_are_spread_over_fetchers_and_stay_with_theirs() -> None:
    stage = Stage(values={"num.replica.fetchers": "3"})
    wanted = keys(30)
    stage.leader.lead(*wanted, end=1)
    stage.follow(*wanted)
    stage.until()
    assert len(stage.leader.broker.connections) == 3
    named = [{row[1] for row in fetch.partitions} for fetch in stage.leader.fetches[:3]]
    assert sorted(map(len, named)) == [10, 10, 10]
    stage.follow(*wanted)
    stage.leader.append(wanted[7])
    stage.until()
    assert len(stage.leader.broker.connections) == 3


def test_the_number_of_fetchers_changes_while_they_run(stage: Stage) -> None:
    wanted = keys(12)
    stage.leader.lead(*wanted, end=1)
    stage.follow(*wanted)
    for count in (4, 2, 1, 3):
        stage.fetchers.configure(
            stage.settings.with_changes({"num.replica.fetchers": str(count)}, cluster_wide=True)
        )
        for key in wanted:
            stage.leader.append(key, count)
        stage.until()
        stage.loop.run_for(100)
        assert len(stage.fetchers._fetchers) == count


# Throttle.


def test_throttled_partitions_are_held_to_the_rate_and_others_are_not() -> None:
    rate = 8_000
    stage = Stage(
        values={"follower.replication.throttled.rate": str(rate), "replica.fetch.max.bytes": "800"}
    )
    *held, free = keys(5)
    stage.throttled = set(held)
    stage.leader.lead(*held, end=10_000)
    stage.leader.lead(free, end=10_000)
    stage.follow(*held, free)
    began_ms = stage.now_ms()
    stage.loop.run_until(lambda: stage.logs[free].end == 10_000)
    assert stage.now_ms() - began_ms < 3_000, "it is not throttled"
    stage.loop.run_for(20_000)
    fetched = sum(stage.logs[key].end for key in held) * RECORD.size
    seconds = (stage.now_ms() - began_ms) / 1_000
    assert 0.8 * rate * seconds < fetched < 1.2 * rate * seconds + 4 * rate
    assert min(stage.logs[key].end for key in held) > 0, "each has its share"
    stage.throttled = set()
    stage.until(10_000)


def test_while_the_rate_is_used_up_nothing_comes_of_any_throttled_partition() -> None:
    """Not even of one that was idle when it was used up."""
    stage = Stage(values={"follower.replication.throttled.rate": "1000"})
    greedy, idle, free = keys(3)
    stage.throttled = {greedy, idle}
    stage.leader.lead(greedy, idle, free)
    stage.follow(greedy, idle, free)
    stage.loop.run_for(1_000)
    stage.leader.append(greedy, 1_000)
    stage.loop.run_until(lambda: stage.logs[greedy].end == 1_000)
    for _ in range(50):
        stage.leader.append(idle)
        stage.leader.append(free)
        stage.loop.run_for(100)
    assert stage.logs[idle].end == 0
    assert stage.logs[free].end >= 49
    stage.until(10_000)


def test_another_rate_counts_at_once() -> None:
    stage = Stage(
        values={"follower.replication.throttled.rate": "0", "replica.fetch.max.bytes": "8000"}
    )
    (key,) = keys(1)
    stage.throttled = {key}
    stage.leader.lead(key, end=10_000)
    stage.follow(key)
    stage.loop.run_for(10_000)
    assert stage.logs[key].end == 0
    changed = {"follower.replication.throttled.rate": "1000"}
    stage.fetchers.configure(stage.settings.with_changes(changed, cluster_wide=True))
    stage.loop.run_for(2_000)
    assert 0 < stage.logs[key].end < 3_000
    changed = {"follower.replication.throttled.rate": "10000000"}
    stage.fetchers.configure(stage.settings.with_changes(changed, cluster_wide=True))
    began_ms = stage.now_ms()
    stage.until()
    assert stage.now_ms() - began_ms < 1_000


# All of it.

EVENTS = st.sampled_from(
    ("append", "append", "append", "epoch", "unfollow", "slow", "written", "error", "well",
     "cut", "mend", "reset", "restart", "evict", "moved", "reborn")
)  # fmt: skip


@given(st.integers(0, 1 << 30), st.lists(EVENTS, min_size=10, max_size=80))
@settings(max_examples=150, deadline=None)
def test_whatever_happens_followers_get_everything_once_and_in_order(
    seed: int, events: list[str]
) -> None:
    stage = Stage(seed)
    wanted = keys(6)
    stage.leader.lead(*wanted)
    stage.follow(*wanted)
    for place, event in enumerate(events):
        happen(stage, event, wanted[seed // (place + 1) % 6])
        stage.loop.run_for(seed * (place + 1) % 30)
    stage.network.mend()
    for key in wanted:
        stage.leader.partitions[key].error = 0
        log = stage.logs[key]
        log.is_slow = False
        log.finish_writing()
        if log.is_over:
            stage.follow(key, epoch=stage.leader.partitions[key].epoch)
        else:
            stage.fetchers.ready(log)
    stage.until(120_000)


def happen(stage: Stage, event: str, key: Key) -> None:
    led, log = stage.leader.partitions[key], stage.logs[key]
    if event == "append":
        stage.leader.append(key, 1 + led.end % 7)
    elif event == "epoch":
        led.epoch += 1
        log.finish_writing()
        stage.follow(key, epoch=led.epoch)
    elif event == "unfollow" and not log.is_over:
        stage.unfollow(key)
    elif event == "slow":
        log.is_slow = True
    elif event == "written" and log.writing:
        log.finish_writing()
        stage.fetchers.ready(log)
    elif event == "moved":
        if not log.writing:
            stage.fetchers.ready(log)
    elif event == "error":
        led.error = int(ErrorCode.kafka_storage_error)
    elif event == "well":
        led.error = 0
    elif event == "reborn":
        stage.broker_epoch += 1
    else:
        disturb(stage, event)


def disturb(stage: Stage, event: str) -> None:
    if event == "cut":
        stage.network.cut("me", "leader")
    elif event == "mend":
        stage.network.mend()
    elif event == "reset":
        stage.network.host("leader").reset()
    elif event == "evict":
        stage.leader.sessions.clear()
    elif event == "restart":
        partitions = stage.leader.partitions
        stage.network.host("leader").die()
        stage.leader = stage.start(LEADER, 9092 + len(stage.leader.fetches) % 3)
        stage.leader.partitions = partitions
