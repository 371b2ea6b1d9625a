"""The simulated ensemble: several sessions on one tree, and what goes wrong between."""

from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.coordinated import Seen, Simulated
from tidelog.base.coordination import (
    CoordinationError,
    Create,
    Operation,
    SessionState,
    SetData,
    Trouble,
)
from tidelog.world.sim.coordination import CoordinationFaults


def two(faults: CoordinationFaults | None = None) -> tuple[Simulated, Simulated]:
    first = Simulated(faults=faults)
    return first, Simulated(beside=first)


def states(place: Simulated) -> list[SessionState]:
    told: list[SessionState] = []
    place.coordination.on_session(told.append)
    return told


def trouble(answer: object) -> Trouble | None:
    return answer.trouble if isinstance(answer, CoordinationError) else None


# Several sessions.


def test_sessions_see_each_others_writes_and_are_told_of_them() -> None:
    first, second = two()
    seen = Seen()
    first.exists("/a", seen.watch)
    second.write(Create(path="/a", data=b"1"))
    assert first.get("/a").data == b"1"
    assert seen.events == [("created", "/a")], "before the read that shows it"


def test_a_session_that_closes_takes_its_ephemerals_and_others_are_told() -> None:
    first, second = two()
    second.write(Create(path="/e", ephemeral=True))
    seen = Seen()
    first.get("/e", seen.watch)
    second.coordination.close()
    first.loop.run_for(1_000)
    assert seen.events == [("deleted", "/e")]
    assert first.exists("/e") is None


def test_a_process_that_dies_keeps_its_session_until_the_timeout() -> None:
    first, second = two()
    second.write(Create(path="/e", ephemeral=True))
    seen, answers = Seen(), list[object]()
    first.get("/e", seen.watch)
    second.coordination.get("/e", answers.append)
    second.coordination.die()
    second.coordination.get("/e", answers.append)
    first.loop.run_for(17_000)
    assert seen.events == []
    first.loop.run_for(2_000)
    assert seen.events == [("deleted", "/e")]
    assert answers == [], "the dead hear nothing"


def test_the_same_seed_gives_the_same_history() -> None:
    def history(seed: int) -> list[tuple[int, object]]:
        place = Simulated(seed, CoordinationFaults(lost_before=0.1, lost_after=0.1, expires=0.1))
        happened: list[tuple[int, object]] = []

        def note(answer: object) -> None:
            happened.append((place.loop.clock.monotonic_ms(), str(answer)))

        place.coordination.on_session(note)
        for number in range(50):
            wanted: list[Operation] = [Create(path=f"/n{number}")]
            at_ms = number * 10
            place.loop.call_at(at_ms, partial(place.coordination.write, wanted, note))
        place.loop.run_for(10_000)
        return happened

    assert history(1) == history(1)
    assert history(1) != history(2)


# The connection.


@pytest.mark.parametrize("done", [0, 1, 2, 3])
def test_a_lost_connection_leaves_open_what_was_done(done: int) -> None:
    first, second = two()
    told, answers = states(first), list[object]()
    for number in range(3):
        first.coordination.write([Create(path=f"/n{number}")], answers.append)
    first.coordination.lose_connection(done=done)
    first.wait(lambda: len(answers) == 3)
    assert [trouble(answer) for answer in answers] == [Trouble.connection_loss] * 3
    assert told == [SessionState.suspended], "and that is heard first"
    assert second.children("/") == [f"n{number}" for number in range(done)]
    assert first.children("/") == second.children("/")
    assert told == [SessionState.suspended, SessionState.connected]


def test_what_is_asked_while_suspended_is_done_when_the_connection_is_back() -> None:
    first, _ = two()
    told, session_id = states(first), first.coordination.session_id
    first.write(Create(path="/e", ephemeral=True))
    first.coordination.lose_connection(away_ms=5_000)
    first.loop.run_for(1_000)
    assert told == [SessionState.suspended]
    started_ms = first.loop.clock.monotonic_ms()
    assert first.children("/") == ["e"], "the session was kept"
    assert first.loop.clock.monotonic_ms() - started_ms >= 3_900
    assert first.coordination.session_id == session_id


def test_watches_that_fire_while_suspended_are_told_before_the_first_answer() -> None:
    first, second = two()
    seen = Seen()
    first.exists("/a", seen.watch)
    first.coordination.lose_connection(away_ms=500)
    second.write(Create(path="/a"))
    first.loop.run_for(400)
    assert seen.events == []
    first.coordination.get("/a", seen.note("read"))
    first.wait(lambda: len(seen.events) == 2)
    assert seen.events == [("created", "/a"), "read"]


def test_a_watch_whose_answer_was_lost_is_not_told() -> None:
    """The client does not know that it was left, and asks again."""
    first, second = two()
    seen, answers = Seen(), list[object]()
    first.coordination.exists("/a", answers.append, seen.watch)
    first.coordination.lose_connection(done=1)
    second.write(Create(path="/a"))
    first.loop.run_for(1_000)
    assert [trouble(answer) for answer in answers] == [Trouble.connection_loss]
    assert seen.events == []
    first.get("/a", seen.watch)
    second.write(SetData(path="/a", data=b"1"))
    first.loop.run_for(100)
    assert seen.events == [("changed", "/a")]


def test_losing_a_connection_that_is_away_changes_nothing() -> None:
    first, _ = two()
    told = states(first)
    first.coordination.lose_connection(away_ms=100)
    first.coordination.lose_connection(away_ms=10_000)
    first.loop.run_for(200)
    assert told == [SessionState.suspended, SessionState.connected]


# The session.


def test_an_expired_session_loses_its_ephemerals_and_watches_and_another_begins() -> None:
    first, second = two()
    told, old = states(first), first.coordination.session_id
    seen, answers = Seen(), list[object]()
    first.write(Create(path="/e", ephemeral=True), Create(path="/a"))
    first.get("/a", seen.watch)
    first.coordination.write([Create(path="/b")], answers.append)
    first.coordination.expire()
    first.coordination.get("/a", answers.append)
    assert second.children("/") == ["a"], "of what was under way nothing is done"
    first.wait(lambda: len(answers) == 2)
    assert [trouble(answer) for answer in answers] == [Trouble.session_expired] * 2
    second.write(SetData(path="/a", data=b"1"))
    first.loop.run_for(1_000)
    assert told == [SessionState.expired, SessionState.connected]
    assert seen.events == []
    assert first.coordination.session_id != old
    first.write(Create(path="/e", ephemeral=True))
    assert second.get("/e").stat.ephemeral_owner == first.coordination.session_id


def test_a_connection_away_for_the_session_timeout_costs_the_session() -> None:
    first, second = two(CoordinationFaults(session_timeout_ms=6_000))
    told = states(first)
    first.write(Create(path="/e", ephemeral=True))
    answers: list[object] = []
    first.coordination.lose_connection(away_ms=9_000)
    first.coordination.get("/e", answers.append)
    first.loop.run_for(5_900)
    assert second.children("/") == ["e"]
    first.loop.run_for(200)
    assert second.children("/") == [], "the ensemble knows"
    assert told == [SessionState.suspended], "the session does not yet"
    first.loop.run_for(5_000)
    assert told == [SessionState.suspended, SessionState.expired, SessionState.connected]
    assert [trouble(answer) for answer in answers] == [Trouble.session_expired]


def test_an_expiry_while_suspended_is_heard_when_the_connection_is_back() -> None:
    first, second = two()
    told = states(first)
    first.write(Create(path="/e", ephemeral=True))
    first.coordination.lose_connection(away_ms=1_000)
    first.coordination.expire()
    assert second.children("/") == []
    first.loop.run_for(900)
    assert told == [SessionState.suspended]
    first.loop.run_for(1_000)
    assert told == [SessionState.suspended, SessionState.expired, SessionState.connected]


def test_a_closed_session_hears_of_nothing_any_more() -> None:
    first, _ = two()
    told = states(first)
    first.coordination.close()
    first.loop.run_for(100)
    first.coordination.expire()
    first.coordination.lose_connection()
    first.loop.run_for(5_000)
    assert told == []


# All of it.


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 99_999))
def test_whatever_goes_wrong_every_question_has_one_answer_in_order(seed: int) -> None:
    """What was answered as done is there, once; what was not may be."""
    faults = CoordinationFaults(lost_before=0.1, lost_after=0.1, expires=0.05)
    places = [Simulated(seed, faults)]
    places.append(Simulated(seed, faults, beside=places[0]))
    ensemble = places[0].ensemble
    asked = answered = surely_done = doubtful = 0
    order: list[tuple[int, int]] = []

    def heard(place: int, number: int, answer: object) -> None:
        nonlocal answered, surely_done, doubtful
        answered += 1
        order.append((place, number))
        if isinstance(answer, list):
            surely_done += 1
        elif trouble(answer) in (Trouble.connection_loss, Trouble.session_expired):
            doubtful += 1

    for number in range(30):
        for index, place in enumerate(places):
            asked += 1
            wanted: list[Operation] = [Create(path="/n-", sequence=True)]
            place.coordination.write(wanted, partial(heard, index, number))
        places[0].loop.run_for(7)
    places[0].loop.run_for(60_000)
    assert answered == asked
    for index in range(2):
        mine = [number for place, number in order if place == index]
        assert mine == sorted(mine), "answers come in order"
    made = len(ensemble.tree.children("/"))
    assert surely_done <= made <= surely_done + doubtful
