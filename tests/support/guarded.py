"""A process that holds a ZooKeeper session under a guard, as a broker does, and does what a test
tells it: it evaluates one line of Python at a time and prints what comes out as JSON."""

import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Self

from kazoo.client import KazooClient

SESSION_TIMEOUT_MS: Final = 30_000

HOLDER: Final = """
import json, os, signal, subprocess, sys, time
from pathlib import Path
from kazoo.client import KazooClient
import tidelog.world.real.guarding as guarding
from tidelog.world.real import past_session

hosts, guarded, timeout_ms, path, prelude = sys.argv[1:]
exec(prelude)
parts = [server.rpartition(":") for server in guarded.split(",")]
servers = [(host, int(port)) for host, _, port in parts]
guard = guarding.Guard(servers)

def hold(path):
    client = KazooClient(hosts=hosts, timeout=int(timeout_ms) / 1000)
    client.start()
    is_watched = guard.watch(*client.client_id, int(timeout_ms))
    client.create(path, ephemeral=True)
    return client, is_watched

def watch_in_time(session):
    began = time.monotonic()
    return [guard.watch(*session), time.monotonic() - began]

client, is_watched = hold(path)
print(json.dumps(is_watched), flush=True)
for line in sys.stdin:
    print(json.dumps(eval(line)), flush=True)
"""

WITHOUT_PIDFD: Final = """
import tidelog.world.real.guarding as guarding
guarding._COMMAND = (
    sys.executable, "-I", "-S", "-c",
    "import os, runpy, sys\\n"
    "def refused(pid): raise OSError('no such call')\\n"
    "os.pidfd_open = refused\\n"
    "sys.argv = sys.argv[1:]\\n"
    "runpy.run_path(sys.argv[0], run_name='__main__')",
    guarding._PROGRAM,
)
"""


@contextmanager
def observing(address: str) -> Iterator[KazooClient]:
    client = KazooClient(hosts=address, timeout=30)
    client.start()
    try:
        yield client
    finally:
        client.stop()
        client.close()


_numbers = itertools.count()


class Holder:
    def __init__(self, hosts: str, *, guarded_at: str = "", prelude: str = "pass") -> None:
        self.path = f"/held-{os.getpid()}-{next(_numbers)}"
        arguments = (hosts, guarded_at or hosts, str(SESSION_TIMEOUT_MS), self.path, prelude)
        self.process = subprocess.Popen(
            (sys.executable, "-c", HOLDER, *arguments),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.is_watched: bool = self._answer()
        self._guards: set[int] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        for pid in filter(_runs, self._guards):
            # A failed test may leave it stopped, and it would stay so for ever.
            os.kill(pid, signal.SIGCONT)
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()

    def ask(self, line: str) -> Any:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self._answer()

    def _answer(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the holder has died"
        return json.loads(line)

    @property
    def guard_pid(self) -> int:
        """Of a guard that has the session."""
        assert eventually(lambda: self.ask("guard._has_answered and guard.process_id is not None"))
        pid: int = self.ask("guard.process_id")
        self._guards.add(pid)
        return pid

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


class Link:
    """A network between clients and a server that can be cut and mended. The first `silent`
    connections are taken and never answered, as by a ZooKeeper that is just starting."""

    def __init__(self, server: tuple[str, int], port: int = 0, silent: int = 0) -> None:
        self._server = server
        self._silent = silent
        self._ends: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", port))
        self.port: int = self._listener.getsockname()[1]
        self._is_cut = False
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        self._is_cut = True
        for end in self._ends:
            _hang_up(end)
        self._ends = []

    def mend(self) -> None:
        self._is_cut = False

    def close(self) -> None:
        self.cut()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            if self._is_cut:
                near.close()
                continue
            if self._silent:
                self._silent -= 1
                self._ends.append(near)
                continue
            far = socket.create_connection(self._server)
            self._ends += [near, far]
            for one, other in ((near, far), (far, near)):
                threading.Thread(target=_carry, args=(one, other), daemon=True).start()


def _hang_up(end: socket.socket) -> None:
    try:
        end.shutdown(socket.SHUT_RDWR)
    except OSError as error:
        print("a link has no other end:", error)
    end.close()


def _carry(one: socket.socket, other: socket.socket) -> None:
    try:
        while data := one.recv(65536):
            other.sendall(data)
    except OSError as error:
        print("a link was cut:", error)
    finally:
        one.close()


def eventually(condition: Callable[[], Any], within_s: float = 60.0) -> bool:
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.002)
    return True


def has_ended(pid: int, within_s: float = 60.0) -> bool:
    return eventually(lambda: not _runs(pid), within_s)


def _runs(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def end(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    assert has_ended(pid)
