"""`tidelog demo` as `make demo` runs it: without a terminal, to the end, telling the truth."""

import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from tidelog.cli.demo import workplace
from tidelog.cli.demo_clients import CLIENTS
from tidelog.cli.demo_node import Node
from tidelog.log.checkpoints import CLEAN_SHUTDOWN
from tidelog.log.dump import DumpOptions, Problem, dump
from tidelog.world.real.disk import RealDisk

PROGRAM = [sys.executable, "-m", "tidelog.cli.main"]
COMMAND = [*PROGRAM, "demo", "--no-spark"]
"""The pipeline takes minutes; `.ci/run` runs all of it."""
STEPS = 16


@dataclass(frozen=True, slots=True)
class Shown:
    folder: Path
    text: str

    def cells(self, after: str) -> list[str]:
        """The cells of the first row below the table head that starts with a word."""
        lines = self.text.splitlines()
        head = next(at for at, line in enumerate(lines) if line.strip().startswith(after))
        return lines[head + 2].split()


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Shown:
    folder = tmp_path_factory.mktemp("demo") / "seen"
    ended = subprocess.run(
        [*COMMAND, "--folder", str(folder)],
        capture_output=True,
        text=True,
        check=False,
        env=_environment(),
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    return Shown(folder, ended.stdout)


def _environment(**changes: str) -> dict[str, str]:
    """As in a build: no terminal, and nobody who asks for colours."""
    unwanted = ("COLUMNS", "FORCE_COLOR", "TTY_COMPATIBLE")
    return {name: value for name, value in os.environ.items() if name not in unwanted} | changes


def test_demo_shows_all_its_steps_in_order(shown: Shown) -> None:
    numbers = re.findall(r"^(\d+)\. [A-Z]", shown.text, re.MULTILINE)
    assert numbers == [str(number) for number in range(1, STEPS + 1)]


def test_demo_without_a_terminal_is_plain_text_of_80_columns(shown: Shown) -> None:
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f\x80-\x9f]", shown.text)
    too_wide = [line for line in shown.text.splitlines() if len(line) > 80 and "/" not in line]
    assert too_wide == []


def test_demo_finds_everything_a_killed_node_had_acknowledged(shown: Shown) -> None:
    """S9."""
    before, after, found, twice = (
        int(cell.replace(",", "")) for cell in shown.cells("acknowledged before")[:4]
    )
    assert before > 0
    assert after > 0, "the producer went on after the new start"
    assert found == before + after
    assert twice == 0


def test_demo_lets_every_installed_client_in_and_names_the_others(shown: Shown) -> None:
    """R1."""
    there = {client.name for client in CLIENTS if client.version() is not None}
    assert {"confluent-kafka", "aiokafka", "kafka-python"} <= there
    missing = re.search(r"Not installed, so not shown: ([^.]+)\.", " ".join(shown.text.split()))
    assert set(missing[1].split(", ") if missing else []) == {c.name for c in CLIENTS} - there
    for client in CLIENTS:
        if client.name in there:
            row = next(line for line in shown.text.splitlines() if f"  {client.name} " in line)
            assert row.split()[:4] == [client.name, client.version(), "1,000", client.codec]


def test_demo_stores_a_batch_once_whose_first_answer_was_lost(shown: Shown) -> None:
    """A3."""
    answers = re.findall(r"of producer (\d+) +(\d+ to \d+) +offset (\d+) +(\w+)", shown.text)
    assert [how for *_, how in answers] == ["was", "reached"]
    assert len({batch[:3] for batch in answers}) == 1, "the same batch had the same answer"


def test_demo_leaves_a_node_that_can_be_served_again(shown: Shown) -> None:
    """R5."""
    assert (shown.folder / "node" / "log-dir" / CLEAN_SHUTDOWN).exists()
    node = Node(shown.folder / "node")
    try:
        node.start()
        values = CLIENTS[0].read(node.address, "orders", 1_000)
    finally:
        node.close()
    assert values[999].startswith(b'{"order": 999,')


def test_demo_compacts_to_one_record_a_key(shown: Shown) -> None:
    """S6."""
    text = " ".join(shown.text.split())
    figures = re.search(r"read ([\d,]+) records and kept (\d+), the last of (\d+) keys", text)
    assert figures is not None
    read, kept, keys = (int(figure.replace(",", "")) for figure in figures.groups())
    assert kept == keys > 0
    assert read > 10 * kept


def test_demo_compacts_outside_of_its_own_process(shown: Shown) -> None:
    assert "has not loaded numba" in " ".join(shown.text.split())


def test_demo_leaves_a_folder_that_was_named_and_every_file_in_it_is_sound(shown: Shown) -> None:
    assert (shown.folder / "data" / CLEAN_SHUTDOWN).exists()
    files = [path for path in shown.folder.rglob("*") if path.is_file()]
    others = (".lock", ".boot_id", "server.log")
    known = [p for p in files if p.name not in others and p.parent.name != "znodes"]
    assert len(known) > 20
    options = DumpOptions(print_data_log=True)
    lines = [line for path in known for line in dump(RealDisk(), str(path), options)]
    assert [line for line in lines if isinstance(line, Problem)] == []


def test_demo_suggests_a_command_that_works(shown: Shown) -> None:
    suggested = re.findall(r"^    tidelog (dump-log .*)$", shown.text, re.MULTILINE)
    assert len(suggested) == 1
    command = [*PROGRAM, *suggested[0].split()]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "payload: {" in ended.stdout


def test_demo_that_is_interrupted_by_its_reader_is_silent_and_leaves_nothing(
    tmp_path: Path,
) -> None:
    with subprocess.Popen(
        COMMAND,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=_environment(TMPDIR=str(tmp_path), PYTHONUNBUFFERED="1"),
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=["SIGINT", "SIGKILL"])
def test_demo_that_is_ended_leaves_no_node_behind(tmp_path: Path, number: int) -> None:
    with subprocess.Popen(
        [*COMMAND, "--folder", str(tmp_path / "seen")],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=_environment(PYTHONUNBUFFERED="1"),
    ) as process:
        assert process.stdout is not None
        while not process.stdout.readline().startswith(b"2. "):
            assert process.poll() is None
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        process.send_signal(number)
    assert children, "the node ran"
    deadline = time.monotonic() + 60
    while any(_runs(child) for child in children):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _runs(process_id: str) -> bool:
    try:
        status = Path(f"/proc/{process_id}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


def test_workplace_is_removed_unless_it_is_to_be_kept() -> None:
    with workplace(None, keep=False) as place:
        (place / "file").touch()
    assert not place.exists()
    with workplace(None, keep=True) as place:
        (place / "file").touch()
    assert (place / "file").exists()
    (place / "file").unlink()
    place.rmdir()


def test_workplace_is_removed_when_the_demo_fails() -> None:
    with pytest.raises(RuntimeError), workplace(None, keep=False) as place:
        raise RuntimeError("in the middle")
    assert not place.exists()
