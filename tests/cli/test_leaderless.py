"""`tidelog consume` of a partition that nobody leads: it says so, and waits, or ends (H5)."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.two_dirs import TwoDirs, two_dirs

TIDELOG = str(Path(sys.executable).with_name("tidelog"))
TELLS = "tidelog: events: nobody leads partition 1: waiting for a leader (Ctrl-C ends)\n"


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
