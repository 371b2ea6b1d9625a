"""A follower that is behind takes a large answer in while it comes (R1, D6): as if it were smaller.

What matters is what the leader is told: never more than what is in the follower's log, whatever
part of an answer has come, and whatever becomes of the rest.
"""

from functools import partial

import pytest

from support.fetching_stage import Stage, keys
from support.scripted_leader import FollowedLog, Key
from tidelog.fetcher import PART_BYTES_MIN
from tidelog.wire.fetch import FetchRequest

MB = 1 << 20
RECORDS = 300_000
"""Of 8 bytes: two answers, a small one and a large one."""
FIRST = MB // 2 // 8


@pytest.fixture(params=range(3))
def stage(request: pytest.FixtureRequest) -> Stage:
    return Stage(request.param, {"replica.fetch.max.bytes": str(MB // 2)})


def behind(stage: Stage, count: int = 1) -> list[FollowedLog]:
    """Followers of partitions that have all their records already."""
    wanted = keys(count)
    stage.leader.lead(*wanted, end=RECORDS)
    stage.leader.on_fetch = lambda fetch: told_what_is_there(stage, fetch)
    stage.follow(*wanted)
    return [stage.logs[key] for key in wanted]


def told_what_is_there(stage: Stage, fetch: FetchRequest) -> None:
    for topic, index, _, offset, _, _, _ in fetch.partitions:
        assert isinstance(topic, bytes)
        assert offset <= stage.logs[topic, index].end, "a leader is told of what is not written"


def until_in_part(stage: Stage, log: FollowedLog) -> None:
    """Until something has come of the second answer, of which several parts are to come."""
    assert stage.loop.run_until(lambda: log.end > FIRST)
    assert log.end < RECORDS - PART_BYTES_MIN // 8


def has_come(log: FollowedLog, parts: int) -> bool:
    return len(log.parts) >= parts or log.end == RECORDS


def asked_bytes(stage: Stage, key: Key) -> list[int]:
    return [row[6] for fetch in stage.leader.fetches for row in fetch.partitions if row[:2] == key]


def test_who_is_behind_asks_for_more_and_takes_it_in_as_it_comes(stage: Stage) -> None:
    (log,) = behind(stage)
    stage.until()
    parts = len(log.parts)
    stage.leader.append(log.key)
    stage.until()
    stage.loop.run_for(1_000)
    first, *middle, last = asked_bytes(stage, log.key)
    assert (first, last) == (MB // 2, MB // 2), "who has everything asks as others do"
    assert set(middle) == {4 * MB}
    assert log.high_watermark == log.end == RECORDS + 1
    assert len(log.parts) == parts >= 4
    assert min(log.parts) >= PART_BYTES_MIN


def test_more_than_all_partitions_may_get_is_not_asked_for() -> None:
    values = {"replica.fetch.max.bytes": str(MB // 2), "replica.fetch.response.max.bytes": str(MB)}
    stage = Stage(0, values)
    (log,) = behind(stage)
    stage.until()
    assert set(asked_bytes(stage, log.key)) == {MB // 2, MB}


def test_all_that_one_answer_holds_comes_in_parts(stage: Stage) -> None:
    logs = behind(stage, 3)
    stage.until()
    assert all(log.parts for log in logs)


def test_what_came_of_an_answer_is_not_asked_for_again(stage: Stage) -> None:
    """The connection is lost in the middle: the next fetch begins behind what was taken in."""
    (log,) = behind(stage)
    until_in_part(stage, log)
    taken, asked = log.end, len(stage.leader.fetches)
    for connection in list(stage.leader.broker.connections):
        connection.abort()
    stage.until()
    again = stage.leader.fetches[asked]
    assert [row[3] for row in again.partitions] == [taken]


def test_the_rest_of_an_answer_is_dropped_under_another_epoch_x12(stage: Stage) -> None:
    (old,) = behind(stage)
    until_in_part(stage, old)
    taken = old.end
    stage.leader.partitions[old.key].epoch = 2
    stage.follow(old.key, epoch=2)
    stage.until()
    assert old.end == taken
    assert stage.logs[old.key].end == RECORDS


def test_what_is_not_followed_any_more_gets_no_further_part_x12(stage: Stage) -> None:
    gone, stays = behind(stage, 2)
    until_in_part(stage, gone)
    stage.unfollow(gone.key)
    stage.until()
    assert stays.end == RECORDS


def test_a_part_that_fails_is_tried_once_and_others_go_on(stage: Stage) -> None:
    failing, other = behind(stage, 2)
    failing.fails = True
    assert stage.loop.run_until(lambda: other.end == RECORDS)
    assert (failing.end, failing.answers) == (0, []), "nothing more of that answer is for it"
    failing.fails = False
    stage.until()


def test_what_cannot_be_written_at_once_comes_as_a_whole(stage: Stage) -> None:
    (log,) = behind(stage)
    log.is_slow = True
    assert stage.loop.run_until(lambda: bool(log.writing))
    assert log.end == 0
    assert sum(map(len, log.writing)) == MB // 2
    log.finish_writing()
    log.is_slow = False
    stage.fetchers.ready(log)
    stage.until()


def test_a_partition_that_moved_by_itself_between_parts_is_asked_for_from_there(
    stage: Stage,
) -> None:
    (log,) = behind(stage)
    until_in_part(stage, log)
    stage.fetchers.ready(log)
    stage.until()
    assert stage.leader.parked_most == 1
    assert log.high_watermark == RECORDS


@pytest.mark.parametrize("seed", range(4))
def test_cuts_at_any_time_lose_and_repeat_nothing(seed: int) -> None:
    stage = Stage(seed, {"replica.fetch.max.bytes": str(MB // 2)})
    (log,) = behind(stage)
    for _ in range(6):
        wanted = len(log.parts) + 1
        stage.loop.run_until(partial(has_come, log, wanted), 5_000)
        for connection in list(stage.leader.broker.connections):
            connection.abort()
    stage.until()
    assert stage.leader.partitions[log.key].fetched_to <= log.end
