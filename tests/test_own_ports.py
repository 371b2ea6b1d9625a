"""Processes that run tests at the same time never start servers on the same port."""

import subprocess
import sys
from itertools import pairwise
from pathlib import Path

from support.ports import free_ports, free_row

COUNT = 200
"""So many that several rows are needed."""
OTHER = f"from support.ports import free_ports; print(*free_ports({COUNT}), flush=True); input()"


def test_another_process_is_given_other_ports_before_anybody_listens_on_them() -> None:
    before = free_ports(COUNT)
    with subprocess.Popen(
        [sys.executable, "-c", OTHER],
        cwd=Path(__file__).parent,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        theirs = [int(word) for word in process.stdout.readline().split()]
        after = free_ports(COUNT)
        process.kill()
    assert len(set(theirs)) == COUNT
    assert not set(theirs) & {*before, *after}
    assert len({*before, *after}) == 2 * COUNT


def test_a_row_is_of_ports_that_follow_one_another_and_are_not_given_again() -> None:
    firsts = sorted(free_row(3) for _ in range(COUNT // 3))
    assert all(later - sooner >= 3 for sooner, later in pairwise(firsts))
