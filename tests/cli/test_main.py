"""The command line's frame: what it offers, how quickly, and what a mistake looks like."""

import errno
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from support.command_line import run
from tidelog.base.errors import BadValue, ErrorCode, KafkaError
from tidelog.cli.main import COMMANDS
from tidelog.cli.mistakes import explain

LOG = Path(__file__).parents[1] / "fixtures/kafka/clean/codec-zstd-0" / "00000000000000000000.log"


def test_help_names_every_command_and_a_first_thing_to_try() -> None:
    status, out, err = run("--help")
    assert (status, err) == (0, "")
    assert "tidelog demo\n" in out
    for name, (_, summary) in COMMANDS.items():
        assert re.search(rf"^  {name} +{re.escape(summary)}$", out, re.MULTILINE)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_of_the_table_explains_itself(name: str) -> None:
    status, out, err = run(name, "--help")
    assert (status, err) == (0, "")
    assert out.startswith(f"Usage: tidelog {name} ")
    assert re.search(r"^  [A-Z][^\n]{15,}", out, re.MULTILINE), "it says what it does"


def test_no_arguments_print_the_help() -> None:
    status, out, err = run()
    assert status == 2
    assert "Commands:" in out + err


def test_version_is_that_of_the_package() -> None:
    pyproject = Path(__file__).parents[2] / "pyproject.toml"
    version = re.search(r'^version = "(.*)"$', pyproject.read_text(), re.MULTILINE)
    assert version is not None
    assert run("--version") == (0, f"tidelog {version[1]}\n", "")


def test_a_mistyped_command_is_answered_with_the_right_one() -> None:
    status, out, err = run("dump-lo")
    assert (status, out) == (2, "")
    assert "Did you mean 'dump-log'?" in err


def test_commands_run_through_the_table() -> None:
    status, out, err = run("dump-log", "--files", str(LOG))
    assert (status, err) == (0, "")
    assert out.startswith(f"Dumping {LOG}\n")


def test_a_bad_value_is_one_line_with_what_would_be_right(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    status, out, err = run("demo", "--folder", str(tmp_path))
    assert (status, out) == (1, "")
    assert err == (
        f"tidelog: {tmp_path} is not empty: name a folder that is, or that is not there\n"
    )


def test_a_file_in_the_way_is_one_line_with_its_name(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    status, out, err = run("demo", "--folder", str(file / "below"))
    assert (status, out) == (1, "")
    assert err.startswith(f"tidelog: {file}")
    assert len(err.splitlines()) == 1


def test_a_mistake_in_a_real_process_leaves_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    command = [sys.executable, "-m", "tidelog.cli.main", "demo", "--folder", str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert len(ended.stderr.splitlines()) == 1


def test_errors_that_people_can_act_on_are_explained() -> None:
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "data/x.log")
    assert explain(full) == (
        "data/x.log: No space left on device; free some space, or choose a folder on another disk"
    )
    rare = OSError(errno.ELOOP, os.strerror(errno.ELOOP), "x")
    assert explain(rare) == f"x: {os.strerror(errno.ELOOP)}"
    assert explain(BadValue("broker.id=x: a number is right")) == "broker.id=x: a number is right"
    refused = KafkaError(ErrorCode.kafka_storage_error, "log dir d is offline")
    assert explain(refused) == "KAFKA_STORAGE_ERROR: log dir d is offline"


@pytest.mark.parametrize("bug", [ValueError("x"), AssertionError("x"), KeyError("x"), OSError("x")])
def test_a_bug_of_ours_is_not_explained_away(bug: Exception) -> None:
    assert explain(bug) is None


def test_help_loads_nothing_that_only_commands_need() -> None:
    heavy = ["numba", "numpy", "pyarrow", "kio", "rich", "hypothesis", "kazoo", "tidelog.log"]
    script = (
        "import sys; from tidelog.cli.main import app\n"
        "try: app(['--help'])\n"
        "except SystemExit: pass\n"
        f"sys.exit(', '.join(name for name in {heavy} if name in sys.modules))"
    )
    command = [sys.executable, "-c", script]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.stderr.strip() == "", "loaded without need"
    assert "Commands:" in ended.stdout


def test_a_reader_that_goes_away_ends_a_command_quietly() -> None:
    files = ",".join([str(LOG)] * 1000)
    command = [sys.executable, "-m", "tidelog.cli.main", "dump-log", "--files", files]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
