"""`tidelog consume` of a partition that nobody leads: it says so, and waits, or ends (H5)."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.two_dirs import TwoDirs, two_dirs
from support.wire_client import wait_until

TIDELOG = str(Path(sys.executable).with_name("tidelog"))
TELLS = "tidelog: events: nobody leads partition 1: waiting for a leader (Ctrl-C ends)\n"


@pytest.fixture
def sound(tmp_path: Path) -> Iterator[TwoDirs]:
    """The topic of offsets is there: while it is made, a log dir that is lost is made again."""
    with two_dirs(tmp_path) as made:
        with consume(made, "--group", "earlier", "--from-beginning", "--exit") as process:
            process.communicate(timeout=120)
        logs = "__consumer_offsets-*/*.log"
        assert wait_until(lambda: sum(len(list(one.glob(logs))) for one in made.dirs) == 50)
        yield made


@pytest.fixture
def server(tmp_path: Path) -> Iterator[TwoDirs]:
    """One of its two log dirs has failed, and with it the second partition."""
    with two_dirs(tmp_path) as made:
        made.lose_dir_of(1, "offline partition=events-1")
        yield made


def consume(server: TwoDirs, *options: str) -> "subprocess.Popen[str]":
    command = [TIDELOG, "consume", "events", "--bootstrap-server", server.address, *options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_one_who_follows_is_told_and_reads_on_when_there_is_a_leader(
    server: TwoDirs,
) -> None:
    with consume(server, "--partition", "1", "--from-beginning", "--max-messages", "1") as process:
        try:
            assert process.stderr is not None
            assert process.stderr.readline() == TELLS
            assert process.poll() is None
            server.stop()
            server.start()
            server.produce(1, "after")
            out, err = process.communicate(timeout=120)
        finally:
            process.kill()
    assert (process.returncode, out, err) == (0, "after\n", "")


def test_one_who_waits_only_so_long_ends_with_why(server: TwoDirs) -> None:
    with consume(server, "--timeout-ms", "100") as process:
        out, err = process.communicate(timeout=120)
    assert (process.returncode, out) == (1, "")
    assert err == "tidelog: LEADER_NOT_AVAILABLE: events: nobody leads partition 1\n"


@pytest.mark.parametrize("more", [(), ("--group", "readers")], ids=["alone", "in a group"])
def test_one_whose_leader_goes_away_meanwhile_is_told_once_and_reads_on(
    sound: TwoDirs, more: tuple[str, ...]
) -> None:
    often = ("--consumer-property", "metadata.max.age.ms=200")
    with consume(sound, "--from-beginning", *often, *more) as process:
        try:
            assert process.stdout is not None
            assert process.stderr is not None
            assert [process.stdout.readline() for _ in range(2)] == ["before\n"] * 2
            sound.lose_dir_of(1, "offline partition=events-1")
            assert process.stderr.readline() == TELLS
            assert process.poll() is None
            sound.stop()
            sound.start()
            sound.produce(1, "after")
            assert any(line == "after\n" for line in process.stdout)
        finally:
            process.kill()
        assert "nobody leads" not in process.stderr.read()
