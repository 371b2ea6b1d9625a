"""`tidelog trials` from the outside."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

TIDELOG = Path(sys.executable).parent / "tidelog"


OFTEN = """
from tidelog.cli import trials

trials.PROGRESS_S = 0.0
"""
WITHOUT_A_RULE = """
import pytest

from support.transaction_mutants import show_open_transactions

show_open_transactions(pytest.MonkeyPatch())
"""


def trials(*arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    command = [str(TIDELOG), "trials", *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, **environment}
    )


def changed(folder: Path, program: str) -> str:
    """A path of which each Python runs this first, also one that is started by another."""
    (folder / "sitecustomize.py").write_text(program)
    tests = Path(__file__).parents[1]
    return f"{folder}:{tests.parent / 'src'}:{tests}"


def test_run_prints_its_seeds_what_happened_and_how_fast(tmp_path: Path) -> None:
    path = changed(tmp_path, OFTEN)
    ended = trials("run", "--seeds", "30", "--jobs", "2", PYTHONPATH=path)
    assert re.fullmatch(r"30 of 30 histories, [\d.]+ a second", ended.stderr.splitlines()[-1])
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


def test_what_is_violated_is_told_by_the_status_and_with_its_seed(tmp_path: Path) -> None:
    path = changed(tmp_path, WITHOUT_A_RULE)
    ended = trials("run", "--seeds", "400", "--jobs", "1", "--first", "0", PYTHONPATH=path)
    assert ended.returncode == 1
    told = re.search(r"^V14 is violated with seed (\d+): .+", ended.stdout, re.MULTILINE)
    assert told is not None, ended.stdout
    assert "no violation" not in ended.stdout
    again = trials("replay", "--seed", told[1], PYTHONPATH=path)
    assert again.returncode == 1
    assert again.stdout.splitlines()[-1].startswith("V14 is violated: ")


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
