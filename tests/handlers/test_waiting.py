"""Patience: a request is answered once, in time or at its timeout."""

from datetime import timedelta
from typing import Any

import pytest

from support.admin_node import AdminNode
from tidelog.handlers.waiting import Patience
from tidelog.world.sim.loop import SimLoop


class Asked:
    """A request, as far as waiting for its answer goes; a second answer is an error, as it is
    for a real one."""

    def __init__(self) -> None:
        self.answers: list[str] = []

    def answer(self, response: str) -> None:
        assert not self.answers, "a request is answered once"
        self.answers.append(response)


class Timed:
    """A node with nothing but time, so that a timer left behind is seen."""

    def __init__(self) -> None:
        self.loop = SimLoop()
        self.clock = self.loop.clock


def wait(node: Any, timeout_ms: int) -> tuple[Patience, Asked]:
    asked: Any = Asked()
    return Patience(node, asked, timedelta(milliseconds=timeout_ms), lambda: "too late"), asked


def test_an_answer_in_time_is_the_only_one_and_leaves_no_timer_behind() -> None:
    node = Timed()
    patience, asked = wait(node, 1000)
    patience.answer("done")
    assert asked.answers == ["done"]
    assert not node.loop.turn(), "nothing is left to wait for"


def test_what_is_done_too_late_is_not_told() -> None:
    node = Timed()
    patience, asked = wait(node, 1000)
    node.loop.run_for(999)
    assert asked.answers == []
    node.loop.run_for(3)
    assert asked.answers == ["too late"]
    patience.answer("done")
    assert asked.answers == ["too late"]


@pytest.mark.parametrize("timeout_ms", [0, -1, -(1 << 31)])
def test_no_time_is_over_at_once(timeout_ms: int) -> None:
    node = Timed()
    _, asked = wait(node, timeout_ms)
    node.loop.run_for(2)
    assert asked.answers == ["too late"]


def test_a_whole_node_will_do_as_well() -> None:
    node = AdminNode()
    _, asked = wait(node, 50)
    node.loop.run_for(60)
    assert asked.answers == ["too late"]
