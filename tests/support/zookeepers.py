# mypy: disable-error-code="import-untyped"
"""ZooKeeper servers for tests: one for all that leave it as it is, and others to stop and kill.

The shared one is started when a test first wants it, once in each test process, and ends with
it. Tests do not see each other, because each has a chroot of its own.
"""

import atexit
import os
import shutil
import socket
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from itertools import count
from pathlib import Path
from threading import Lock, Thread
from typing import Final

from kazoo.client import KazooClient

from support.ports import free_ports
from support.requirements import leave_out
from tidelog.base.errors import BadValue
from tidelog.world.real.zookeeper_server import (
    Place,
    ZooKeeperServer,
    ensemble,
    find_jars,
    find_own_java,
    split_address,
)

_numbers: Final = count(1)


def new_connect() -> str:
    """A `zookeeper.connect` of the shared server, with a chroot that nobody else has."""
    require_zookeeper()
    return f"{_shared_server().address}/test-{os.getpid()}-{next(_numbers)}"


def require_zookeeper() -> None:
    """Skips a test where there is no Java; where there must be one, the test fails."""
    try:
        find_own_java(), find_jars()
    except BadValue as error:
        leave_out(str(error))


@contextmanager
def own_server(folder: Path) -> Iterator[ZooKeeperServer]:
    """It serves; the test may stop it and start it again."""
    require_zookeeper()
    server = ZooKeeperServer(Place(folder=folder, port=free_ports(1)[0]))
    try:
        server.start()
        server.wait_until_serving(60)
        yield server
    finally:
        server.kill()


@contextmanager
def own_ensemble(folder: Path) -> Iterator[list[ZooKeeperServer]]:
    """Three that serve."""
    require_zookeeper()
    ports = free_ports(9)
    members = ensemble(folder, [(ports[n], ports[n + 3], ports[n + 6]) for n in range(3)])
    try:
        for member in members:
            member.start()
        for member in members:
            member.wait_until_serving(60)
        yield members
    finally:
        for member in members:
            member.kill()


@cache
def _shared_server() -> ZooKeeperServer:
    folder = Path(tempfile.mkdtemp(prefix="tidelog-zookeeper-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    server = ZooKeeperServer(Place(folder=folder, port=free_ports(1)[0]))
    atexit.register(server.kill)
    server.start()
    server.wait_until_serving(60)
    return server


def close_session(address: str, session: tuple[int, bytes]) -> None:
    """Ends somebody's session, as ZooKeeper does when it expires: from a second connection."""
    second = KazooClient(hosts=address, client_id=session)
    second.start()
    second.stop()
    second.close()


class Proxy:
    """A way to a server, long if wanted, that can be cut: nothing that was under way arrives."""

    def __init__(self, target: str, delay_seconds: float = 0.0) -> None:
        self._target = split_address(target)
        self._delay_seconds = delay_seconds
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self._lock = Lock()
        self.is_shut = False
        self.address = f"127.0.0.1:{self._listening.getsockname()[1]}"
        Thread(target=self._accept, daemon=True).start()

    def cut(self, *, shut: bool = False) -> None:
        """Ends every connection; `shut` lets no new ones through, until it is opened again."""
        with self._lock:
            self.is_shut = shut
            for each in self._open:
                with suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
            self._open.clear()

    def open(self) -> None:
        self.is_shut = False

    def close(self) -> None:
        self.cut(shut=True)
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            with self._lock:
                if self.is_shut:
                    client.close()
                    continue
                server = socket.create_connection(self._target)
                self._open += client, server
            for source, target in ((client, server), (server, client)):
                Thread(target=self._carry, args=(source, target), daemon=True).start()

    def _carry(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65_536):
                time.sleep(self._delay_seconds)
                target.sendall(data)
        for each in (source, target):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        source.close()
