"""The explorer's messages: in order within a connection, held by cuts, lost with a connection."""

from dataclasses import replace
from functools import partial
from random import Random
from typing import Any

import pytest

from tidelog.trials.hosts import HostLoop
from tidelog.trials.network import Channel, Network, Reply
from tidelog.trials.options import draw_options
from tidelog.trials.turning import TrialLoop

ONE, OTHER = 1, 2


class Listening:
    """Answers at once, and notes what it was asked."""

    def __init__(self, loop: TrialLoop, number: int) -> None:
        self.number = number
        self.loop = HostLoop(loop)
        self.heard: list[Any] = []

    def receive(self, request: Any, reply: Reply) -> bool:
        self.heard.append(request)
        reply(f"answer to {request}")
        return True


class Pair:
    def __init__(self, late_requests: float = 0.0, seed: int = 0) -> None:
        self.loop = TrialLoop(seed=seed)
        drawn = draw_options(Random(0))
        options = replace(
            drawn, delay_ms_max=20, request_timeout_ms=500, late_requests=late_requests
        )
        self.network = Network(self.loop, options)
        self.one, self.other = Listening(self.loop, ONE), Listening(self.loop, OTHER)
        self.network.peers = {ONE: self.one, OTHER: self.other}
        self.channel = Channel(self.network, self.one, OTHER)
        self.answers: list[Any] = []

    def ask(self, *requests: Any) -> None:
        for request in requests:
            self.channel.call(request, self.answers.append)


@pytest.mark.parametrize("seed", range(20))
def test_questions_and_answers_of_a_connection_stay_in_order(seed: int) -> None:
    pair = Pair(seed=seed)
    pair.ask(*range(10))
    pair.loop.run_for(400)
    assert pair.other.heard == list(range(10))
    assert pair.answers == [f"answer to {request}" for request in range(10)]


@pytest.mark.parametrize(("link", "heard"), [((ONE, OTHER), []), ((OTHER, ONE), ["x"])])
def test_cut_holds_one_direction_until_who_waits_gives_up(
    link: tuple[int, int], heard: list[str]
) -> None:
    pair = Pair()
    pair.network.cut(*link)
    pair.ask("x")
    pair.loop.run_for(400)
    assert pair.other.heard == heard
    assert pair.answers == []
    pair.loop.run_for(200)
    assert pair.answers == [None]
    pair.network.mend(*link)
    pair.loop.run_for(1_000)
    assert pair.answers == [None], "the answer of a connection that broke never comes (D6)"


def test_what_a_cut_held_arrives_when_it_is_mended() -> None:
    pair = Pair()
    pair.network.cut(ONE, OTHER)
    pair.network.cut(ONE, OTHER)
    pair.ask("x", "y")
    pair.loop.run_for(100)
    pair.network.mend(ONE, OTHER)
    pair.loop.run_for(100)
    assert pair.other.heard == [], "cut twice"
    pair.network.mend(ONE, OTHER)
    pair.loop.run_for(100)
    assert pair.other.heard == ["x", "y"]
    assert len(pair.answers) == 2


@pytest.mark.parametrize(("late_requests", "heard"), [(0.0, ["y"]), (1.0, ["y", "x"])])
def test_request_of_a_broken_connection_is_lost_or_arrives_after_later_ones(
    late_requests: float, heard: list[str]
) -> None:
    pair = Pair(late_requests)
    pair.network.slow[ONE, OTHER] = 100
    pair.ask("x")
    assert pair.network.break_link(OTHER, ONE)
    pair.network.slow.clear()
    pair.ask("y")
    pair.loop.run_for(400)
    assert pair.other.heard == heard
    assert pair.answers == [None, "answer to y"]


def test_process_that_died_refuses_and_one_that_is_paused_answers_later() -> None:
    pair = Pair()
    pair.other.loop.pause()
    pair.ask("x")
    pair.loop.run_for(100)
    assert pair.answers == []
    pair.other.loop.go_on()
    pair.loop.run_for(100)
    assert pair.answers == ["answer to x"]
    pair.other.loop.die()
    pair.ask("y")
    pair.loop.run_for(100)
    assert pair.answers == ["answer to x", None]
    assert pair.other.heard == ["x"]


def test_who_has_died_hears_no_answer() -> None:
    pair = Pair()
    pair.ask("x")
    pair.one.loop.die()
    pair.loop.run_for(1_000)
    assert pair.answers == []
    pair.network.forget(pair.one)
    assert pair.network.channels == []


def test_timer_that_was_cancelled_during_a_pause_does_not_fire() -> None:
    loop = TrialLoop()
    host = HostLoop(loop)
    fired: list[str] = []
    kept = host.call_at(10, partial(fired.append, "kept"))
    cancelled = host.call_at(10, partial(fired.append, "cancelled"))
    host.pause()
    loop.run_for(20)
    assert fired == []
    cancelled.cancel()
    host.go_on()
    loop.run_for(1)
    assert fired == ["kept"]
    kept.cancel()


def test_events_of_a_millisecond_happen_in_the_order_in_which_they_were_planned() -> None:
    loop = TrialLoop()
    seen: list[int] = []
    for number in range(5):
        loop.after(3, partial(seen.append, number))
    loop.call_soon(partial(seen.append, -1))
    loop.run_for(2)
    assert seen == [-1]
    loop.run_for(2)
    assert seen == [-1, 0, 1, 2, 3, 4]
    assert loop.clock.monotonic_ms() == 4
