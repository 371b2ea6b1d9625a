"""What a server does to its own process: garbage, and the buffers of its sockets (engine.md, The
loop; L6). Seen from inside, as nobody outside could tell."""

import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support import inside_shim
from support.inside_shim.sitecustomize import INSIDE, look_inside
from support.servers import PEER, TidelogServer
from support.wire_client import METADATA, WireClient, wait_until

pytestmark = pytest.mark.skipif(PEER != "", reason="looks into tidelog's own process")

SEND_BYTES, RECEIVE_BYTES = 30_000, 40_000
DOUBLED = 2
"""The system takes as much again for its own account, and says so."""
BUFFERS = (socket.SO_SNDBUF, socket.SO_RCVBUF)
Look = Callable[[], Any]


@pytest.fixture
def started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., tuple[TidelogServer, Look]]]:
    servers: list[TidelogServer] = []

    def start(**settings: str) -> tuple[TidelogServer, Look]:
        name = f"tidelog-{os.getpid()}-{tmp_path.name}"
        monkeypatch.setenv(INSIDE, name)
        shim = str(Path(inside_shim.__path__[0]))
        monkeypatch.setenv("PYTHONPATH", shim, prepend=os.pathsep)
        server = TidelogServer(tmp_path, {k.replace("_", "."): v for k, v in settings.items()})
        servers.append(server)
        server.start()
        return server, lambda: look_inside(name)

    try:
        yield start
    finally:
        for server in servers:
            server.close()


def test_a_server_runs_its_collector_itself_and_spares_what_stays(
    started: Callable[..., tuple[TidelogServer, Look]],
) -> None:
    """`engine.md`: collected, frozen and disabled after the start; then now and then, when idle."""
    server, look = started()
    assert wait_until(lambda: look()["frozen"] > 0), "what is there after the start stays"
    seen = look()
    assert not seen["is_enabled"]
    assert seen["frozen"] > 50_000, "modules, settings, codecs"
    before = len(seen["collections"])
    ask = {"topics": None, "include_topic_authorized_operations": False}
    with WireClient(server.address) as client:
        client.create("events", partitions=50)
        for _ in range(200):
            client.ask(METADATA, 12, **ask)
        assert wait_until(lambda: len(look()["collections"]) > before), (
            "it is done from time to time"
        )
    since = look()["collections"][before:]
    assert not any(by_itself for _, by_itself in since), "and never while requests are served"


def test_sockets_have_the_buffers_that_are_set(
    started: Callable[..., tuple[TidelogServer, Look]],
) -> None:
    """On a connection that is open."""
    server, look = started(
        socket_send_buffer_bytes=str(SEND_BYTES), socket_receive_buffer_bytes=str(RECEIVE_BYTES)
    )
    with WireClient(server.address) as client:
        client.ask(METADATA, 12, topics=[], include_topic_authorized_operations=False)
        (connected,) = (one for one in look()["sockets"] if not one["is_listening"])
    assert connected["send"] == DOUBLED * SEND_BYTES
    assert connected["receive"] == DOUBLED * RECEIVE_BYTES


def test_buffers_of_minus_one_are_the_systems_to_choose(
    started: Callable[..., tuple[TidelogServer, Look]],
) -> None:
    _, look = started(socket_send_buffer_bytes="-1", socket_receive_buffer_bytes="-1")
    (listening,) = (one for one in look()["sockets"] if one["is_listening"])
    with socket.socket() as fresh:
        usual = [fresh.getsockopt(socket.SOL_SOCKET, what) for what in BUFFERS]
    assert [listening["send"], listening["receive"]] == usual
