"""Hosts that take their time over what a controller says: one request at a time, in order, and
nothing of a session that is over."""

from collections.abc import Callable
from typing import Any

import pytest

from support.members import Cluster, Member
from tidelog.base.control import LeaderAndIsrRequest, LeaderAndIsrResponse, UpdateMetadataRequest
from tidelog.base.errors import ErrorCode
from tidelog.cluster.requests import Change, NewTopic

Answer = Callable[[], None]


def slow_down(member: Member, delay_ms: int | None) -> list[Answer]:
    """Its host answers after a time, or when it is told to."""
    host, held = member.host, []

    def leader_and_isr(
        request: LeaderAndIsrRequest, done: Callable[[LeaderAndIsrResponse], None]
    ) -> None:
        def act() -> None:
            done(host._lead_and_follow(request))

        if delay_ms is None:
            held.append(act)
        else:
            member.loop.after(delay_ms, act)

    host.leader_and_isr = leader_and_isr  # type: ignore[method-assign]
    return held


def is_led(member: Member, topic: str) -> bool:
    found = member.metadata.image.topics.get(topic)
    return found is not None and (found.topic_id, 0) in member.host.states


def test_a_broker_is_ready_only_when_it_holds_what_it_was_told_to() -> None:
    cluster = Cluster()
    member = cluster.member(0)
    held = slow_down(member, None)
    answers: list[Exception | None] = []
    member.begin(answers.append)
    assert cluster.loop.run_until(lambda: bool(held))
    cluster.loop.run_for(1_000)
    assert answers == []
    held.pop()()
    assert cluster.loop.run_until(lambda: bool(answers))
    assert answers == [None]


def test_requests_wait_for_the_one_that_is_acted_on() -> None:
    cluster = Cluster()
    member = cluster.started(0)
    requests = [request for _, _, request in cluster.exchange.log]
    metadata = next(r for r in requests if isinstance(r, UpdateMetadataRequest))
    states = next(r for r in requests if isinstance(r, LeaderAndIsrRequest))
    held = slow_down(member, None)
    order: list[str] = []
    member.metadata.handle(states, lambda _: order.append("first"))
    member.metadata.handle(metadata, lambda _: order.append("second"))
    member.metadata.handle(states, lambda _: order.append("third"))
    assert (len(held), order) == (1, [])
    held.pop()()
    assert (len(held), order) == (1, ["first", "second"])
    held.pop()()
    assert order == ["first", "second", "third"]


def test_what_was_acted_on_when_the_session_ended_is_not_confirmed() -> None:
    """V20: the controller of the next session says it again."""
    cluster = Cluster()
    member = cluster.started(0)
    states = next(r for _, _, r in cluster.exchange.log if isinstance(r, LeaderAndIsrRequest))
    held = slow_down(member, None)
    responses: list[Any] = []
    member.metadata.handle(states, responses.append)
    member.metadata.handle(states, responses.append)
    epoch = member.metadata.broker_epoch
    member.coordination.lose_connection(away_ms=60_000)
    assert cluster.loop.run_until(lambda: member.metadata.broker_epoch not in (epoch, -1))
    assert len(held) == 1, "one at a time, also over sessions"
    held.pop()()
    assert [r.error_code for r in responses] == [ErrorCode.stale_broker_epoch] * 2
    assert cluster.loop.run_until(lambda: bool(held)), "it is told everything in its new session"
    held.pop()()
    slow_down(member, 5)
    member.create(NewTopic(name="t"))
    assert cluster.loop.run_until(lambda: is_led(member, "t"))


def test_a_host_that_is_slow_is_told_everything_all_the_same() -> None:
    """The other one may not answer in time; the controller's own broker always does."""
    cluster = Cluster()
    first, second = cluster.started(0), cluster.started(1)
    slow_down(first, 200)
    slow_down(second, 700)
    for number in range(5):
        first.create(NewTopic(name=f"t{number}", replication_factor=2))
    first.delete("t3")
    wanted = ["t0", "t1", "t2", "t4"]
    assert cluster.loop.run_until(
        lambda: all(is_led(member, topic) for member in (first, second) for topic in wanted)
    )


def test_a_broker_hears_its_controller_after_a_bug() -> None:
    """The request that met it is answered with an error, and those behind it are acted on."""
    cluster = Cluster()
    member = cluster.started(0)
    requests = [request for _, _, request in cluster.exchange.log]
    metadata = next(r for r in requests if isinstance(r, UpdateMetadataRequest))
    states = next(r for r in requests if isinstance(r, LeaderAndIsrRequest))
    obeying, held = member.metadata._obeying, slow_down(member, None)
    responses: list[Any] = []
    member.metadata.handle(states, responses.append)
    member.metadata.handle(metadata, responses.append)
    member.metadata.handle(metadata, responses.append)
    update, bugs = obeying._view.update, ["here"]

    def broken_once(request: UpdateMetadataRequest) -> Change:
        if bugs:
            raise AssertionError(bugs.pop())
        return update(request)

    obeying._view.update = broken_once  # type: ignore[method-assign]
    with pytest.raises(AssertionError, match="here"):
        held.pop()()
    wanted = [ErrorCode.none, ErrorCode.unknown_server_error, ErrorCode.none]
    assert [response.error_code for response in responses] == wanted
    slow_down(member, 5)
    member.create(NewTopic(name="t"))
    assert cluster.loop.run_until(lambda: is_led(member, "t"))
