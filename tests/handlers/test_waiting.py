"""Patience: a request is answered once, in time or at its timeout."""

from datetime import timedelta
from typing import Any

import pytest

from support.admin_node import AdminNode
from tidelog.handlers.waiting import Patience
from tidelog.world.sim.loop import SimLoop


class Timed:
    """A node with nothing but time, so that a timer left behind is seen."""

    def __init__(self) -> None:
        self.loop = SimLoop()
        self.clock = self.loop.clock


def wait(node: Any, timeout_ms: int) -> tuple[Patience, list[str]]:
    answers: list[str] = []
    timeout = timedelta(milliseconds=timeout_ms)
    return Patience(node, timeout, lambda: answers.append("too late")), answers


def test_an_answer_in_time_is_the_only_one_and_leaves_no_timer_behind() -> None:
    node = Timed()
    patience, answers = wait(node, 1000)
    patience.end(lambda: answers.append("done"))
    assert answers == ["done"]
    assert not node.loop.turn(), "nothing is left to wait for"


def test_what_is_done_too_late_is_not_told() -> None:
    node = Timed()
    patience, answers = wait(node, 1000)
    node.loop.run_for(999)
    assert answers == []
    node.loop.run_for(3)
    assert answers == ["too late"]
    patience.end(lambda: answers.append("done"))
    assert answers == ["too late"]


@pytest.mark.parametrize("timeout_ms", [0, -1, -(1 << 31)])
def test_no_time_is_over_at_once(timeout_ms: int) -> None:
    node = Timed()
    _, answers = wait(node, timeout_ms)
    node.loop.run_for(2)
    assert answers == ["too late"]


def test_a_whole_node_will_do_as_well() -> None:
    node = AdminNode()
    _, answers = wait(node, 50)
    node.loop.run_for(60)
    assert answers == ["too late"]
