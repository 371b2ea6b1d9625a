"""`tidelog produce` and `consume` as real processes: pipes that close, Ctrl-C, terminals, and a
server that dies under them."""

import os
import pty
import signal
import subprocess
import sys
import time
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fcntl import ioctl
from pathlib import Path
from termios import FIONREAD

import pytest

from support.servers import Server, new_server

TIDELOG = str(Path(sys.executable).with_name("tidelog"))
SECONDS_MAX = 60


def start(
    server: Server, *arguments: str, terminal: int = subprocess.PIPE
) -> "subprocess.Popen[bytes]":
    """Through pipes, or at a terminal that was opened."""
    return subprocess.Popen(
        [TIDELOG, *arguments],
        env={**os.environ, "TIDELOG_BOOTSTRAP_SERVER": server.address},
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        start_new_session=terminal != subprocess.PIPE,
    )


def run(server: Server, *arguments: str) -> None:
    ended = start(server, *arguments)
    _, err = ended.communicate(timeout=SECONDS_MAX)
    assert ended.returncode == 0, err


class Terminal:
    """What a person sees of a command, and types."""

    def __init__(self, server: Server, *arguments: str) -> None:
        self._end, theirs = pty.openpty()
        self.process = start(server, *arguments, terminal=theirs)
        os.close(theirs)
        os.set_blocking(self._end, False)
        self.screen = ""

    def type(self, text: str) -> None:
        os.write(self._end, text.encode())

    def shows(self, text: str) -> bool:
        return settled(lambda: text in self.look())

    def look(self) -> str:
        try:
            self.screen += os.read(self._end, 65536).decode().replace("\r\n", "\n")
        except (BlockingIOError, OSError):
            time.sleep(0.02)
        return self.screen

    def ended(self) -> int:
        status = self.process.wait(SECONDS_MAX)
        self.look()
        return status

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._end)


def settled(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + SECONDS_MAX
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


Open = Callable[..., Terminal]


@pytest.fixture
def terminal(shared_server: Server) -> Iterator[Open]:
    opened: list[Terminal] = []

    def open_terminal(*arguments: str) -> Terminal:
        opened.append(Terminal(shared_server, *arguments))
        return opened[-1]

    yield open_terminal
    for one in opened:
        one.close()


def test_a_reader_that_has_seen_enough_is_no_error(shared_server: Server) -> None:
    run(shared_server, "topics", "create", "piped")
    with start(shared_server, "produce", "piped") as producer:
        producer.communicate(b"line\n" * 50_000, timeout=SECONDS_MAX)
        assert producer.returncode == 0
    with start(shared_server, "consume", "piped", "-f") as consumer:
        assert consumer.stdout is not None
        assert consumer.stdout.readline() == b"line\n"
        consumer.stdout.close()
        consumer.stdout = None
        _, err = consumer.communicate(timeout=SECONDS_MAX)
        assert err == b""


def test_an_interrupt_ends_the_following_quietly(shared_server: Server) -> None:
    run(shared_server, "produce", "interrupted", "x")
    with start(shared_server, "consume", "interrupted", "-f") as consumer:
        assert consumer.stdout is not None
        assert consumer.stdout.readline() == b"x\n"
        consumer.send_signal(signal.SIGINT)
        assert consumer.communicate(timeout=SECONDS_MAX) == (b"", b"")
        assert consumer.returncode == 128 + signal.SIGINT


def test_new_records_are_printed_as_they_come(shared_server: Server) -> None:
    run(shared_server, "produce", "followed", "before")
    with start(shared_server, "consume", "followed", "-f", "-n", "3") as consumer:
        assert consumer.stdout is not None
        assert consumer.stdout.readline() == b"before\n"
        run(shared_server, "produce", "followed", "after", "then")
        assert consumer.communicate(timeout=SECONDS_MAX) == (b"after\nthen\n", b"")
        assert consumer.returncode == 0


def test_a_person_types_records_and_is_told_of_mistakes(terminal: Open) -> None:
    typing = terminal("produce", "typed", "-K", ":")
    assert typing.shows("One record a line; Ctrl-D ends.\n>")
    typing.type("a:1\n")
    assert typing.shows("a:1\n>")
    typing.type("no key\n")
    assert typing.shows("tidelog: line 2 has no key separator ':': 'no key'\n>")
    typing.type("b:2\n")
    typing.type("\x04")
    assert typing.shows("2 records written to typed\n")
    assert typing.ended() == 0


def test_ctrl_c_keeps_what_was_typed_and_says_no_more(
    terminal: Open, shared_server: Server
) -> None:
    typing = terminal("produce", "kept-typed")
    assert typing.shows("\n>")
    typing.type("kept\n")
    assert typing.shows("kept\n>")
    typing.type("\x03")
    typing.process.send_signal(signal.SIGINT)
    assert typing.ended() == 128 + signal.SIGINT
    assert "Traceback" not in typing.screen
    assert "Aborted" not in typing.screen
    with start(shared_server, "consume", "kept-typed", "-fe") as consumer:
        assert consumer.communicate(timeout=SECONDS_MAX) == (b"kept\n", b"")


def test_records_cannot_play_with_the_terminal(terminal: Open, shared_server: Server) -> None:
    run(shared_server, "produce", "evil", "--key", "k\x1b[2J", "red\x1b[31m\nnext\tu\u202ed")
    reading = terminal("consume", "evil", "-f", "-e", "--key")
    assert reading.shows("1 record\n")
    assert "k\\x1b[2J\tred\\x1b[31m\\nnext\\tu\\u202ed\n" in reading.screen
    assert reading.ended() == 0


def test_whoever_waits_is_told_for_what(terminal: Open, shared_server: Server) -> None:
    run(shared_server, "topics", "create", "waited-for")
    reading = terminal("consume", "waited-for")
    assert reading.shows("Waiting for new records; --from-beginning prints those already there.")
    run(shared_server, "produce", "waited-for", "here")
    assert reading.shows("here\n")
    reading.process.send_signal(signal.SIGINT)
    assert reading.shows("\n1 record\n")
    assert reading.ended() == 128 + signal.SIGINT


def test_following_goes_on_after_the_server_was_killed(tmp_path: Path) -> None:
    server = new_server(tmp_path, {})
    try:
        server.start()
        run(server, "produce", "survives", "one")
        with start(server, "consume", "survives", "-f", "-n", "2") as consumer:
            assert consumer.stdout is not None
            assert consumer.stderr is not None
            assert consumer.stdout.readline() == b"one\n"
            server.kill()
            assert consumer.stderr.readline().startswith(
                f"tidelog: cannot reach {server.address} any more".encode()
            )
            server.start()
            run(server, "produce", "survives", "two")
            out, err = consumer.communicate(timeout=SECONDS_MAX)
            assert (out, consumer.returncode) == (b"two\n", 0)
            assert err == f"tidelog: {server.address} is back\n".encode()
    finally:
        server.close()


@contextmanager
def bereft(tmp_path: Path, topic: str) -> Iterator[tuple[Server, "subprocess.Popen[bytes]"]]:
    """A producer that has written a record through a pipe, and has just lost its server."""
    server = new_server(tmp_path, {})
    try:
        server.start()
        run(server, "topics", "create", topic)
        with start(server, "produce", topic) as producer:
            say(producer, b"kept\n")
            assert settled(lambda: b"kept" in segment(server, topic))
            server.kill()
            yield server, producer
    finally:
        server.close()


def say(producer: "subprocess.Popen[bytes]", text: bytes) -> None:
    assert producer.stdin is not None
    producer.stdin.write(text)
    producer.stdin.flush()


def all_is_taken(producer: "subprocess.Popen[bytes]") -> bool:
    """Whether nothing is left in the pipe."""
    assert producer.stdin is not None
    left = array("i", [0])
    ioctl(producer.stdin, FIONREAD, left)
    return left[0] == 0


def test_who_waits_for_a_line_is_told_what_has_become_of_the_last_one(tmp_path: Path) -> None:
    with bereft(tmp_path, "waiting") as (server, producer):
        assert producer.stderr is not None
        assert b"cannot reach" in producer.stderr.readline()
        server.start()
        say(producer, b"half a")
        say(producer, b" line")
        _, err = producer.communicate(timeout=SECONDS_MAX)
        assert (producer.returncode, err) == (0, f"tidelog: {server.address} is back\n".encode())
        assert b"half a line" in segment(server, "waiting")


def test_ctrl_c_does_not_wait_for_a_server_that_is_gone(tmp_path: Path) -> None:
    with bereft(tmp_path, "lost") as (_, producer):
        for text in (b"late\n", b"half a line"):
            # Who has taken the second has dealt with the first.
            say(producer, text)
            assert settled(lambda: all_is_taken(producer))
        assert producer.stderr is not None
        assert b"cannot reach" in producer.stderr.readline()
        producer.send_signal(signal.SIGINT)
        _, err = producer.communicate(timeout=SECONDS_MAX)
        assert err == b"tidelog: 1 record may not have been written\n"
        assert producer.returncode == 128 + signal.SIGINT


def segment(server: Server, topic: str) -> bytes:
    return (server.log_dir / f"{topic}-0" / "00000000000000000000.log").read_bytes()
