"""`tidelog trials` from the outside."""

import subprocess
import sys
from pathlib import Path

import pytest

TIDELOG = Path(sys.executable).parent / "tidelog"


def trials(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [str(TIDELOG), "trials", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_run_prints_its_seeds_what_happened_and_how_fast() -> None:
    ended = trials("run", "--seeds", "30", "--jobs", "2")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    lines = ("elections", "truncations", "shrinks", "expands", "power losses", "recoveries")
    ends = ("committed", "aborted", "timed out", "fenced")
    moves = ("reassignments finished", "reassignments cancelled", "log starts moved")
    for line in (*lines, *moves, "commits", *(f"transactions {end}" for end in ends)):
        assert f"\n{line}" in ended.stdout
    assert "30 histories in " in ended.stdout
    assert " a second" in ended.stdout
    assert ended.stdout.startswith("seeds ")
    assert ended.stdout.endswith("no violation\n")


def test_replay_prints_a_line_for_each_event_and_the_same_twice() -> None:
    first, second = trials("replay", "--seed", "12"), trials("replay", "--seed", "12")
    assert first.returncode == 0, first.stdout[-500:]
    assert first.stdout == second.stdout
    lines = first.stdout.splitlines()
    assert len(lines) > 300
    for expected in ("is registered as", "leads partition 0", "fault: ", "is acknowledged"):
        assert any(expected in line for line in lines)
    assert lines[-1] == "no violation"


@pytest.mark.parametrize(
    "arguments", [("run", "--seeds", "0"), ("replay",), ("run", "--jobs", "-1")]
)
def test_bad_options_are_refused_by_name(arguments: tuple[str, ...]) -> None:
    ended = trials(*arguments)
    assert ended.returncode == 2
    assert "--" in ended.stderr
