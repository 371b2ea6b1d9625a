"""The broker's side of the guard: starts it, tells it of every session, replaces it if it died.

A ZooKeeper session outlives its process by its timeout, and the partitions that a dead broker led
would stand still until then. The guard (`guard.py`) is a process of its own that closes the
session of a broker that died. It can fail only towards waiting: without a guard, or
with one that is stopped or late, the session ends by its timeout as if there had been none.
"""

import logging
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_PROGRAM: Final = str(Path(__file__).with_name("guard.py").absolute())
_COMMAND: Final = (sys.executable, "-I", "-S", _PROGRAM)

_ANSWER_S: Final = 1.0
_END_S: Final = 1.0
_FIRST_PAUSE_S: Final = 0.1
_PAUSE_S_MAX: Final = 10.0

_log = logging.getLogger("tidelog.guard")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Running:
    process: subprocess.Popen[bytes]
    channel: socket.socket


class Guard:
    """One guard at a time, kept by a thread that only waits for it."""

    def __init__(self, servers: Sequence[tuple[str, int]]) -> None:
        self._servers = [f"{host}:{port}" for host, port in servers]
        self._changed = threading.Condition()
        self._session = b""
        self._expected = b""
        self._running: _Running | None = None
        self._is_closed = False
        self._is_starting = True
        self._has_answered = False
        self._thread = threading.Thread(target=self._keep, name="guard", daemon=True)
        self._thread.start()

    @property
    def process_id(self) -> int | None:
        """The guard that runs now."""
        with self._changed:
            return None if self._running is None else self._running.process.pid

    def watch(self, session_id: int, password: bytes, timeout_ms: int) -> bool:
        """From now on this session, and no earlier one, is closed when this process dies. Returns
        when the guard has it; False if the guard is dead or too slow and will have it later."""
        with self._changed:
            assert not self._is_closed, "this guard is closed"
            self._session = b"watch %d %s %d\n" % (session_id, password.hex().encode(), timeout_ms)
            self._expected = b"watching %d" % session_id
            self._has_answered = False
            self._tell()
            self._changed.wait_for(self._is_settled, _ANSWER_S)
            return self._has_answered

    def close(self) -> None:
        """Ends the guard. What the broker has not closed by itself then ends by its timeout."""
        with self._changed:
            self._is_closed = True
            self._session = b"done\n"
            self._tell()
            self._changed.notify_all()
        self._thread.join(_END_S)
        if self._thread.is_alive():
            self._kill()
            self._thread.join()

    def _is_settled(self) -> bool:
        return self._has_answered or (self._running is None and not self._is_starting)

    def _tell(self) -> None:
        """A guard that cannot be told is of no use: the next one will be."""
        if self._running is None or not self._session:
            return
        try:
            sent = self._running.channel.send(self._session, socket.MSG_DONTWAIT)
        except OSError as error:
            _log.debug("the guard cannot be reached: %s", error)
            sent = 0
        if sent < len(self._session):
            self._running.process.kill()

    def _kill(self) -> None:
        with self._changed:
            if self._running is not None:
                self._running.process.kill()

    def _keep(self) -> None:
        pause_s = _FIRST_PAUSE_S
        while self._start():
            began = time.monotonic()
            self._listen()
            self._bury()
            if time.monotonic() - began > _PAUSE_S_MAX:
                pause_s = _FIRST_PAUSE_S
            with self._changed:
                self._changed.wait_for(lambda: self._is_closed, pause_s)
                self._is_starting = not self._is_closed
            pause_s = min(2 * pause_s, _PAUSE_S_MAX)

    def _start(self) -> bool:
        """False when no guard is wanted any more."""
        with self._changed:
            if self._is_closed:
                return False
            try:
                self._running = self._start_process()
            except OSError as error:
                _log.warning("cannot start the guard of the ZooKeeper session: %s", error)
            self._is_starting = False
            self._tell()
            self._changed.notify_all()
            return True

    def _start_process(self) -> _Running:
        """Neither end of the socket is inherited by any other child. The guard has a session of
        processes to itself, so that it does not die of what ends the broker's group, and nothing
        of the broker's that others might wait for: its output, its folder."""
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                process = subprocess.Popen(
                    (*_COMMAND, str(os.getpid()), *self._servers),
                    stdin=theirs.fileno(),
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    cwd="/",
                    start_new_session=True,
                )
            except OSError:
                ours.close()
                raise
        return _Running(process=process, channel=ours)

    def _listen(self) -> None:
        """Until the guard has ended."""
        running, rest = self._running, b""
        while running is not None and (received := _receive(running.channel)):
            *lines, rest = (rest + received).split(b"\n")
            with self._changed:
                if self._expected in lines:
                    self._has_answered = True
                    self._changed.notify_all()

    def _bury(self) -> None:
        running = self._running
        if running is None:
            return
        code = running.process.wait()
        with self._changed:
            running.channel.close()
            self._running = None
            self._changed.notify_all()
            if not self._is_closed:
                _log.warning("the guard of the ZooKeeper session ended with code %d", code)


def _receive(channel: socket.socket) -> bytes:
    try:
        return channel.recv(4096)
    except OSError as error:
        _log.debug("the guard was cut off: %s", error)
        return b""
