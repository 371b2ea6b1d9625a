"""D6 switched off: what a follower of production code then does to what is committed."""

import pytest

from support.answering import Asked
from support.fetching_mutants import ask_again_at_once, hear_old_connections
from support.fetching_stage import LEADER, WAIT_MS, Stage, keys
from support.scripted_leader import FollowedLog

SEEDS = range(5)
COMMON, THEN = 5, 8
"""Up to where the follower's log is the leader's, and where that ends."""


def cuts_after_a_late_answer(seed: int) -> list[int]:
    """How far the follower was cut each time. Its first fetch is answered when it has long asked
    again, was cut, and has all that is committed."""
    stage = Stage(seed, {"replica.socket.timeout.ms": "2000"})
    (key,) = keys(1)
    stage.leader.lead(key, end=THEN)
    led = stage.leader.partitions[key]
    led.diverging = (0, COMMON)
    late: list[Asked] = []
    take, stage.leader.broker.on_request = stage.leader.broker.on_request, late.append
    log = stage.logs[key] = FollowedLog(*key, 1, COMMON + 2)
    stage.fetchers.follow(log, LEADER)
    assert stage.loop.run_until(lambda: bool(late), 5_000)
    stage.leader.broker.on_request = take
    assert stage.loop.run_until(lambda: bool(log.cuts), 5_000)
    led.diverging = None
    stage.until()
    stage.loop.run_for(WAIT_MS)
    assert (log.end, log.high_watermark) == (THEN, THEN)
    led.diverging = (0, COMMON)
    take(late[0])
    led.diverging = None
    stage.loop.run_until(lambda: len(log.cuts) > 1, 2 * WAIT_MS)
    return [to for _epoch, to in log.cuts]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_late_answer_cuts_nothing_that_is_committed(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D6, X12, V3: without the rule a member of the ISR is cut below the high watermark."""
    assert cuts_after_a_late_answer(seed) == [COMMON]
    hear_old_connections(monkeypatch)
    assert cuts_after_a_late_answer(seed) == [COMMON, COMMON]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_second_fetch_is_asked_only_without_the_rule(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D6: a leader's session, and `test_second_fetch_under_way_cuts_what_is_committed`, say why."""
    follow_one_after_the_other(seed)
    ask_again_at_once(monkeypatch)
    with pytest.raises(AssertionError, match="a second fetch beside the first"):
        follow_one_after_the_other(seed)


def follow_one_after_the_other(seed: int) -> None:
    """The second is to be asked for while a fetch for the first waits at the leader."""
    stage = Stage(seed)
    first, second = keys(2)
    stage.leader.lead(first, second)
    stage.follow(first)
    stage.loop.run_for(WAIT_MS // 4)
    stage.follow(second)
    stage.leader.append(second)
    stage.until()
