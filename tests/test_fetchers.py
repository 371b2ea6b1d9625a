"""Followers fetch (R1, D6): one fetch at a time, sessions that name only what changed, no stall.

A scripted leader on the simulated network checks every request; partitions check that they are
given what comes next, and only while they want it.
"""

import pytest

from support.fetching_stage import LEADER, ME, TOPIC, WAIT_MS, Stage, keys
from support.scripted_leader import FollowedLog
from tidelog.base.errors import ErrorCode


@pytest.fixture(params=range(5))
def stage(request: pytest.FixtureRequest) -> Stage:
    return Stage(request.param)


# Sessions.


def test_a_follower_gets_what_there_is_and_what_comes(stage: Stage) -> None:
    (key,) = keys(1)
    stage.leader.lead(key, end=10)
    stage.follow(key)
    stage.until()
    for count in range(1, 20):
        stage.leader.append(key, count)
        began_ms = stage.now_ms()
        stage.until()
        assert stage.now_ms() - began_ms < 100, "it does not wait for the end of a fetch's time"
    stage.loop.run_for(2 * WAIT_MS)
    assert stage.logs[key].high_watermark == stage.logs[key].end == 200
    assert stage.leader.parked_most == 1


def test_a_fetch_says_who_asks_and_what_for(stage: Stage) -> None:
    stage.leader.lead(*keys(2))
    stage.follow(*keys(2))
    stage.loop.run_for(100)
    fetch = stage.leader.fetches[0]
    assert (fetch.replica_id, fetch.replica_epoch) == (ME, 77)
    assert (fetch.max_wait_ms, fetch.min_bytes, fetch.max_bytes) == (500, 1, 10 << 20)
    assert (fetch.session_id, fetch.session_epoch, fetch.isolation_level) == (0, 0, 0)
    assert fetch.partitions == [(TOPIC, index, 1, 0, -1, 0, 1 << 20) for index in range(2)]


def test_only_the_first_fetch_names_what_does_not_change(stage: Stage) -> None:
    wanted = keys(1_000)
    stage.leader.lead(*wanted)
    stage.follow(*wanted)
    stage.loop.run_for(3_000)
    first, *later = stage.leader.fetches
    assert len(first.partitions) == 1_000
    assert 4 <= len(later) <= 7, "idle, it asks as often as its wait is over"
    assert all(not fetch.partitions and not fetch.forgotten for fetch in later)
    stage.leader.fetches.clear()
    stage.leader.append(wanted[700])
    stage.until()
    stage.loop.run_for(3 * WAIT_MS)
    named = [row for fetch in stage.leader.fetches for row in fetch.partitions]
    assert [row[:2] for row in named] == [(TOPIC, 700)]


def test_idle_partitions_are_not_looked_at(stage: Stage) -> None:
    wanted = keys(200)
    stage.leader.lead(*wanted)
    stage.follow(*wanted)
    stage.loop.run_for(3_000)
    for log in stage.logs.values():
        log.is_over = True  # now whoever looks at it fails
    looked_at = stage.logs[wanted[5]]
    looked_at.is_over = False
    stage.leader.append(wanted[5])
    assert stage.loop.run_until(lambda: looked_at.end == 1)


def test_what_is_followed_later_joins_the_session_at_once(stage: Stage) -> None:
    """Not when the fetch that waits is over: it would be missing from the ISR for so long."""
    first, second = keys(2)
    stage.leader.lead(first)
    stage.follow(first)
    stage.loop.run_for(3_000)
    stage.leader.lead(second, end=5)
    began_ms = stage.now_ms()
    stage.follow(second)
    stage.until()
    assert stage.now_ms() - began_ms < 50
    assert len(stage.leader.sessions) == 1
    assert stage.leader.parked_most == 1


def test_one_request_behind_a_waiting_fetch_is_enough(stage: Stage) -> None:
    wanted = keys(20)
    stage.leader.lead(*wanted)
    stage.follow(wanted[0])
    stage.loop.run_for(1_000)
    stage.leader.is_silent = True
    stage.leader.broker.requests.clear()
    for key in wanted[1:]:
        stage.follow(key)
        stage.loop.run_for(10)
    nudges = [asked for asked in stage.leader.broker.requests if asked.header.api_key == 18]
    assert 1 <= len(nudges) <= 2, "one for each fetch that was under way"


def test_what_is_not_followed_any_more_is_forgotten(stage: Stage) -> None:
    wanted = keys(5)
    stage.leader.lead(*wanted)
    stage.follow(*wanted)
    stage.loop.run_for(1_000)
    stage.unfollow(wanted[2])
    stage.loop.run_for(3 * WAIT_MS)
    (session,) = stage.leader.sessions.values()
    assert list(session.positions) == [wanted[0], wanted[1], wanted[3], wanted[4]]


@pytest.mark.parametrize(
    "code", [ErrorCode.fetch_session_id_not_found, ErrorCode.invalid_fetch_session_epoch]
)
def test_a_lost_session_is_begun_anew(stage: Stage, code: ErrorCode) -> None:
    wanted = keys(10)
    stage.leader.lead(*wanted)
    stage.follow(*wanted)
    stage.loop.run_for(1_000)
    stage.leader.fetches.clear()
    stage.leader.refuses_with = [int(code)]
    stage.loop.run_for(3 * WAIT_MS)
    assert stage.leader.fetches[0].session_epoch > 0
    assert stage.leader.fetches[1].session_epoch == 0
    assert len(stage.leader.fetches[1].partitions) == 10
    assert all(not fetch.partitions for fetch in stage.leader.fetches[2:])
    stage.leader.append(wanted[3])
    stage.until()


def test_a_session_that_the_leader_evicted_is_begun_anew(stage: Stage) -> None:
    stage.leader.lead(*keys(3))
    stage.follow(*keys(3))
    stage.loop.run_for(1_000)
    stage.leader.sessions.clear()
    stage.leader.append(keys(3)[1], 4)
    stage.until()
    stage.leader.append(keys(3)[2], 4)
    stage.until()
    assert len(stage.leader.sessions) == 1


def test_a_leader_without_room_for_a_session_is_told_everything_each_time(stage: Stage) -> None:
    wanted = keys(4)
    stage.leader.grants_sessions = False
    stage.leader.lead(*wanted)
    stage.follow(*wanted)
    stage.leader.append(wanted[1], 3)
    stage.until()
    stage.loop.run_for(2_000)
    assert all(len(fetch.partitions) == 4 for fetch in stage.leader.fetches)
    assert all(fetch.session_epoch == 0 for fetch in stage.leader.fetches)


def test_another_broker_epoch_is_told_with_all_positions(stage: Stage) -> None:
    """Leaders count a follower's position under the epoch it was told with (D4, X19)."""
    stage.leader.lead(*keys(3), end=2)
    stage.follow(*keys(3))
    stage.until()
    stage.loop.run_for(1_000)
    stage.broker_epoch = 99
    stage.leader.fetches.clear()
    stage.loop.run_for(2 * WAIT_MS)
    told = [fetch for fetch in stage.leader.fetches if fetch.replica_epoch == 99]
    assert told[0].session_epoch == 0
    assert [row[3] for row in told[0].partitions] == [2, 2, 2]
    assert len(stage.leader.sessions) == 1, "the old session was ended"


# Answers.


def test_a_large_backlog_comes_in_parts_over_all_partitions() -> None:
    stage = Stage(
        values={"replica.fetch.max.bytes": "800", "replica.fetch.response.max.bytes": "1600"}
    )
    wanted = keys(5)
    stage.leader.lead(*wanted, end=1_000)
    stage.follow(*wanted)
    stage.until()


def test_a_failed_partition_rests_for_longer_and_longer_and_others_go_on(stage: Stage) -> None:
    bad, good = keys(2)
    stage.leader.lead(bad, good)
    stage.leader.partitions[bad].error = int(ErrorCode.not_leader_or_follower)
    stage.follow(bad, good)
    for _ in range(50):
        stage.leader.append(good)
        stage.loop.run_for(100)
    assert stage.logs[good].end == 50
    failures = stage.logs[bad].answers
    assert {code for _, code in failures} == {int(ErrorCode.not_leader_or_follower)}
    # 20, 40, ... 640 ms, then each second: replica.fetch.backoff.ms
    assert 8 <= len(failures) <= 11
    stage.leader.partitions[bad].error = 0
    stage.leader.append(bad, 3)
    began_ms = stage.now_ms()
    stage.until()
    assert stage.now_ms() - began_ms <= 1_100
    stage.leader.partitions[bad].error = int(ErrorCode.not_leader_or_follower)
    stage.leader.append(bad)
    stage.loop.run_for(WAIT_MS)
    stage.leader.partitions[bad].error = 0
    began_ms = stage.now_ms()
    stage.until()
    assert stage.now_ms() - began_ms < 500, "it was well meanwhile"


def test_a_leader_that_learns_late_that_it_leads_is_asked_again_soon(stage: Stage) -> None:
    (key,) = keys(1)
    stage.follow(key)
    stage.loop.run_for(30)
    stage.leader.lead(key, end=5)
    began_ms = stage.now_ms()
    stage.until()
    assert stage.now_ms() - began_ms < 100


def test_where_the_logs_part_is_passed_on(stage: Stage) -> None:
    (key,) = keys(1)
    stage.leader.lead(key, end=8)
    stage.leader.partitions[key].diverging = (0, 5)
    log = stage.logs[key] = FollowedLog(*key, 1, 7)
    stage.fetchers.follow(log, LEADER)
    stage.until()
    assert log.cuts == [(0, 5)]


def test_an_answer_asked_for_under_an_older_epoch_is_dropped_x12(stage: Stage) -> None:
    (key,) = keys(1)
    stage.leader.lead(key)
    stage.follow(key)
    stage.loop.run_for(1_000)
    for epoch in range(2, 12):
        stage.leader.append(key, 3)
        stage.loop.run_for(epoch % 4)
        stage.leader.partitions[key].epoch = epoch
        stage.follow(key, epoch=epoch)
        stage.leader.append(key, 3)
        stage.until()
        assert {asked_under for asked_under, _ in stage.logs[key].answers} == {epoch}


def test_the_same_partition_under_another_epoch_hears_what_it_was_asked_under(
    stage: Stage,
) -> None:
    (key,) = keys(1)
    stage.leader.lead(key, end=3)
    stage.follow(key)
    stage.until()
    log = stage.logs[key]
    stage.leader.partitions[key].epoch = log.leader_epoch = 2
    stage.fetchers.follow(log, LEADER)
    stage.leader.append(key, 2)
    stage.until()
    assert log.answers[-1] == (2, 0)


def test_following_again_in_the_same_epoch_changes_nothing(stage: Stage) -> None:
    (key,) = keys(1)
    stage.leader.lead(key, end=3)
    stage.follow(key)
    stage.until()
    stage.loop.run_for(1_000)
    stage.leader.fetches.clear()
    for _ in range(10):
        stage.fetchers.follow(stage.logs[key], LEADER)
        stage.loop.run_for(10)
    assert len(stage.leader.fetches) <= 1


def test_nothing_reaches_a_partition_that_is_not_followed_any_more_x12(stage: Stage) -> None:
    """At every moment while an answer is under way; the partition itself would say so."""
    first, second = keys(2)
    stage.leader.lead(first, second)
    stage.follow(first, second)
    stage.loop.run_for(1_000)
    for delay_ms in range(8):
        stage.leader.append(first, 2)
        stage.loop.run_for(delay_ms)
        stage.unfollow(first)
        stage.loop.run_for(5)
        stage.leader.append(second)
        stage.follow(first)
        stage.until()


def test_what_the_leader_says_of_a_partition_is_not_lost_with_a_dropped_answer(
    stage: Stage,
) -> None:
    """The leader has told its high watermark once: to a partition that was followed no more."""
    (key,) = keys(1)
    for delay_ms in range(6):
        stage.leader.lead(key, end=delay_ms)
        stage.follow(key)
        stage.loop.run_for(delay_ms)
        stage.follow(key)
        stage.until()
        stage.loop.run_for(2 * WAIT_MS)
        assert stage.logs[key].high_watermark == delay_ms


def test_an_error_of_one_partition_that_is_a_bug_stops_no_other(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    bad, good = keys(2)
    stage.leader.lead(bad, good, end=2)
    stage.follow(bad, good)
    stage.logs[bad].end = 1_000_000
    stage.leader.partitions[bad].diverging = (0, 5)
    del stage.logs[bad].cuts
    assert stage.loop.run_until(lambda: stage.logs[good].end == 2)
    stage.loop.run_for(500)
    assert "bug partition" in caplog.text


# Slow writes.


def test_a_partition_that_is_being_written_holds_up_no_other(stage: Stage) -> None:
    slow, quick = keys(2)
    stage.leader.lead(slow, quick, end=5)
    stage.follow(slow, quick)
    log = stage.logs[slow]
    log.is_slow = True
    assert stage.loop.run_until(lambda: bool(log.writing))
    stage.leader.append(slow, 5)
    for _ in range(20):
        stage.leader.append(quick)
        assert stage.loop.run_until(
            lambda: stage.logs[quick].end == stage.leader.partitions[quick].end
        )
    assert len(log.writing) == 1, "it was asked for once only"
    log.is_slow = False
    log.finish_writing()
    stage.fetchers.ready(log)
    stage.until()


def test_a_partition_is_asked_for_again_as_soon_as_it_is_written(stage: Stage) -> None:
    """Not when the fetch for the others, which finds nothing, is over: that would be slow."""
    slow, idle = keys(2)
    stage.leader.lead(slow, end=1_000)
    stage.leader.lead(idle)
    stage.follow(slow, idle)
    log = stage.logs[slow]
    log.is_slow = True
    began_ms = stage.now_ms()
    for part in range(1, 11):
        stage.leader.partitions[slow].end = 1_000 * part
        assert stage.loop.run_until(lambda: bool(log.writing))
        stage.loop.run_for(1)
        log.finish_writing()
        stage.fetchers.ready(log)
    assert log.end == 10_000
    assert stage.now_ms() - began_ms < 10 * 50
    assert stage.leader.parked_most == 1


def test_a_write_that_ends_after_the_partition_left_is_of_no_interest(stage: Stage) -> None:
    (key,) = keys(1)
    stage.leader.lead(key, end=5)
    stage.follow(key)
    log = stage.logs[key]
    log.is_slow = True
    stage.loop.run_until(lambda: bool(log.writing))
    stage.unfollow(key)
    stage.fetchers.ready(log)
    stage.loop.run_for(1_000)
    log.finish_writing()
    stage.follow(key)
    stage.until()


def test_another_epoch_does_not_end_a_write(stage: Stage) -> None:
    (key,) = keys(1)
    stage.leader.lead(key, end=5)
    stage.follow(key)
    log = stage.logs[key]
    log.is_slow = True
    stage.loop.run_until(lambda: bool(log.writing))
    stage.leader.partitions[key].epoch = log.leader_epoch = 2
    stage.fetchers.follow(log, LEADER)
    stage.loop.run_for(1_000)
    log.is_slow = False
    log.finish_writing()
    stage.fetchers.ready(log)
    stage.leader.append(key)
    stage.until()


def test_a_partition_that_moved_by_itself_is_looked_at(stage: Stage) -> None:
    (key,) = keys(1)
    stage.leader.lead(key, end=9)
    stage.follow(key)
    stage.until()
    stage.loop.run_for(1_000)
    stage.logs[key].end = 4
    stage.fetchers.ready(stage.logs[key])
    stage.until()


def test_once_all_is_closed_nothing_is_followed_any_more(stage: Stage) -> None:
    """S9: a broker that stops may still be told to follow, and has said that its logs are whole."""
    (key,) = keys(1)
    stage.leader.lead(key, end=10)
    stage.fetchers.close()
    stage.follow(key)
    stage.loop.run_for(2 * WAIT_MS)
    assert stage.logs[key].end == 0
    assert not stage.leader.fetches
