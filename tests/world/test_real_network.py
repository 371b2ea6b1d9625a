"""The network of this machine: what only real sockets can show.

The other side is a plain socket of the standard library, so that what is on the wire, and
how it got there, can be seen.
"""

import errno
import gc
import socket
import struct
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.peers import LOCAL, Peer, World, worlds
from tidelog.base.ports import Connection
from tidelog.world.real.connection import TURN_BYTES_MAX, RealConnection
from tidelog.world.real.loop import EpollLoop
from tidelog.world.real.network import RealNetwork

EXCHANGES = 10_000


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    yield from worlds("real", tmp_path)


def connected(world: World, host: str = LOCAL) -> tuple[socket.socket, Peer]:
    """A plain socket, and the peer it reached."""
    port, peers = world.answering(host)
    client = socket.create_connection((host or LOCAL, port), timeout=60)
    world.until(lambda: bool(peers))
    return client, peers[0]


def reset(client: socket.socket) -> None:
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()


def test_all_that_one_turn_says_leaves_together(world: World) -> None:
    client, peer = connected(world)
    for _ in range(50):
        peer.connection.send(b"answer")
    with client:
        client.settimeout(0.05)
        with pytest.raises(TimeoutError):
            client.recv(1)
        client.settimeout(60)
        world.turn()
        assert client.recv(65_536) == b"answer" * 50


def test_a_reset_is_an_ordinary_end(world: World) -> None:
    client, peer = connected(world)
    reset(client)
    world.until(lambda: bool(peer.closings))
    assert peer.closings == ["Connection reset by peer"]
    assert world.errors == []


def test_a_reset_is_noticed_while_nothing_is_read(world: World) -> None:
    client, peer = connected(world)
    client.sendall(b"hello")
    peer.connection.pause()
    world.pass_ms(20)
    reset(client)
    world.until(lambda: bool(peer.closings))
    assert peer.heard == b""
    assert world.errors == []


def test_a_reset_is_noticed_while_output_waits(world: World) -> None:
    client, peer = connected(world)
    peer.connection.send(bytes(20_000_000))
    world.pass_ms(20)
    reset(client)
    world.until(lambda: bool(peer.closings))
    assert len(peer.closings) == 1
    assert world.errors == []


def test_a_peer_that_left_before_it_was_accepted_harms_nobody(world: World) -> None:
    peers: list[Peer] = []

    def accept(connection: Connection) -> Peer:
        peers.append(Peer(connection))
        return peers[-1]

    port = world.listen(accept)
    for _ in range(5):
        reset(socket.create_connection((LOCAL, port)))
    with socket.create_connection((LOCAL, port)) as client:
        client.sendall(b"hello")
        world.until(lambda: any(peer.heard == b"hello" for peer in peers))
    assert world.errors == []


def test_input_that_nobody_read_does_not_cost_the_last_answer(world: World) -> None:
    """Most of the answer is still on this side when the connection closes; a system that
    finds unread input then throws it away."""
    peers: list[Peer] = []

    def accept(connection: Connection) -> Peer:
        peers.append(Peer(connection))
        connection.pause()
        return peers[-1]

    port = world.listen(accept)
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        client.settimeout(60)
        client.connect((LOCAL, port))
        client.sendall(bytes(10_000))
        world.until(lambda: bool(peers))
        world.pass_ms(20)
        peers[0].connection.send(b"x" * 60_000)
        peers[0].connection.close()
        world.until(lambda: bool(peers[0].closings))
        heard = b"".join(iter(lambda: client.recv(65_536), b""))
    assert heard == b"x" * 60_000


def test_a_half_closed_peer_still_gets_answers_to_what_it_asked_in_one_read(world: World) -> None:
    client, peer = connected(world)
    peer.on_received = lambda data: peer.connection.send(data.upper())
    client.sendall(b"question")
    client.shutdown(socket.SHUT_WR)
    world.until(lambda: bool(peer.closings))
    with client:
        assert client.recv(100) == b"QUESTION"
        assert client.recv(100) == b""


@pytest.mark.parametrize("host", ["::1", "localhost", ""])
def test_hosts_of_every_kind_can_be_listened_on(world: World, host: str) -> None:
    client, peer = connected(world, host)
    with client:
        name, port = client.getsockname()[:2]
        expected = f"[{name}]:{port}" if ":" in name else f"{name}:{port}"
        assert peer.connection.peer == expected


def test_an_empty_host_serves_both_kinds_of_address(world: World) -> None:
    client, peer = connected(world, "")
    client.close()
    with socket.create_connection(("::1", world.listeners[0].port)):
        world.until(lambda: bool(peer.closings))


@pytest.mark.parametrize("host", ["localhost", "::1"])
def test_hosts_of_every_kind_can_be_connected_to(world: World, host: str) -> None:
    taken: list[Peer] = []

    def opened(outcome: Connection | OSError) -> Peer:
        assert not isinstance(outcome, OSError), outcome
        taken.append(Peer(outcome))
        return taken[-1]

    listener = world.network.listen(host, 0, Peer)
    world.listeners.append(listener)
    world.network.connect(host, listener.port, opened)
    world.until(lambda: bool(taken))
    assert taken[0].connection.peer == (
        f"[{host}]:{listener.port}" if ":" in host else f"{host}:{listener.port}"
    )


@pytest.mark.parametrize("host", ["no-such-host.invalid", "a..b", "x" * 300, "with space"])
def test_a_host_that_does_not_exist_is_told_as_an_error(world: World, host: str) -> None:
    outcomes: list[Connection | OSError] = []
    world.network.connect(host, 9092, lambda outcome: outcomes.append(outcome))
    world.until(lambda: bool(outcomes))
    assert isinstance(outcomes[0], OSError)
    assert f"cannot find {host}" in str(outcomes[0])
    assert world.errors == []


@pytest.mark.parametrize("port", [-1, 65_536, 1 << 40])
def test_a_port_that_cannot_be_is_told_as_an_error(world: World, port: int) -> None:
    outcomes: list[Connection | OSError] = []
    world.network.connect(LOCAL, port, lambda outcome: outcomes.append(outcome))
    world.until(lambda: bool(outcomes))
    assert isinstance(outcomes[0], OSError)
    assert outcomes[0].errno == errno.EINVAL
    with pytest.raises(OSError, match="no such port"):
        world.network.listen(LOCAL, port, Peer)


def test_an_attempt_to_connect_ends_in_time(world: World) -> None:
    """A listener whose queue is full answers nobody, like a machine that is gone."""
    assert isinstance(world.loop, EpollLoop)
    network = RealNetwork(world.loop, connect_timeout_ms=100)
    silent = socket.socket()
    silent.bind((LOCAL, 0))
    silent.listen(0)
    waiting = []
    for _ in range(4):
        client = socket.socket()
        client.setblocking(False)
        client.connect_ex(silent.getsockname())
        waiting.append(client)
    outcomes: list[Connection | OSError] = []
    network.connect(LOCAL, silent.getsockname()[1], lambda outcome: outcomes.append(outcome))
    world.until(lambda: bool(outcomes))
    for client in (*waiting, silent):
        client.close()
    assert isinstance(outcomes[0], TimeoutError)


WITHOUT_DESCRIPTORS = """
import errno, resource, socket, sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from support.peers import LOCAL, Peer, worlds

taken = []

def accept(connection):
    taken.append(Peer(connection))
    return taken[-1]

world = next(worlds("real", Path(sys.argv[1])))
port = world.listen(accept)
clients = [socket.create_connection((LOCAL, port)) for _ in range(3)]
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (max(c.fileno() for c in clients) + 1, hard))
begun = time.monotonic()
while time.monotonic() - begun < 2.2:
    world.turn()
assert taken == []
told = [error.errno for _, error in world.errors]
assert told == [errno.EMFILE], "told once, however long it lasts"
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
world.until(lambda: len(taken) == 3)
"""


def test_without_descriptors_accepting_rests_and_goes_on(tmp_path: Path) -> None:
    """In a process of its own, where nobody else opens or closes anything."""
    command = [sys.executable, "-c", WITHOUT_DESCRIPTORS, str(tmp_path)]
    ended = subprocess.run(
        [*command, str(Path(__file__).parents[1])], capture_output=True, text=True, timeout=120
    )
    assert ended.returncode == 0, ended.stderr


def test_a_fast_reader_of_a_large_range_leaves_room_for_others(world: World) -> None:
    client, peer = connected(world)
    assert isinstance(peer.connection, RealConnection)
    file = world.disk.open(f"{world.folder}/large", "create")
    file.truncate(64 << 20)
    reader = threading.Thread(target=_read_all, args=(client,))
    reader.start()
    peer.connection.send_file(file, 0, 64 << 20)
    steps = []
    while left := peer.connection.queued_bytes:
        world.turn()
        steps.append(left - peer.connection.queued_bytes)
    assert max(steps) <= TURN_BYTES_MAX + (1 << 20)
    peer.connection.close()
    world.until(lambda: bool(peer.closings))
    reader.join()


@pytest.mark.parametrize(("answer_bytes", "is_awake"), [(100, True), (1 << 20, False)])
def test_the_next_question_is_waited_for_awake_unless_the_answer_was_large(
    world: World, answer_bytes: int, is_awake: bool
) -> None:
    client, peer = connected(world)
    assert isinstance(world.loop, EpollLoop)
    answer = bytes(answer_bytes)
    peer.on_received = lambda _: peer.connection.send(answer)
    poll = world.loop._poll
    waits: list[float | None] = []

    def noted(timeout: float | None = None, maxevents: int = -1) -> list[tuple[int, int]]:
        waits.append(timeout)
        return poll(timeout, maxevents)

    with client:
        client.sendall(b"?")
        world.until(lambda: bool(peer.heard))
        world.loop._poll = noted
        world.loop.turn(0.001)
    assert (waits[0] == 0.0) == is_awake
    world.loop._poll = poll


def _read_all(client: socket.socket) -> None:
    buffer = bytearray(1 << 20)
    with client:
        while client.recv_into(buffer):
            continue


def test_ranges_that_wait_can_be_asked_for(world: World) -> None:
    client, peer = connected(world)
    assert isinstance(peer.connection, RealConnection)
    file = world.disk.open(f"{world.folder}/large", "create")
    file.truncate(40 << 20)
    peer.connection.send(b"head")
    peer.connection.send_file(file, 100, 30 << 20)
    peer.connection.send_file(file, 7, 9)
    assert list(peer.connection.queued_ranges()) == [(file, 100, 30 << 20), (file, 7, 9)]
    world.pass_ms(50)
    (_, position, size), last = peer.connection.queued_ranges()
    assert position + size == 100 + (30 << 20)
    assert position > 100
    assert last == (file, 7, 9)
    client.close()


def test_a_closed_file_costs_its_connection_and_is_told(world: World) -> None:
    client, peer = connected(world)
    file = world.disk.open(f"{world.folder}/file", "create")
    file.pwrite(b"tide", 0)
    peer.connection.send_file(file, 0, 4)
    file.close()
    world.until(lambda: bool(peer.closings))
    assert len(world.errors) == 1
    client.close()


def test_a_receiver_without_room_is_a_bug_and_told(world: World) -> None:
    client, peer = connected(world)
    peer._buffer = bytearray()
    client.sendall(b"hello")
    world.until(lambda: bool(peer.closings))
    assert [type(error) for _, error in world.errors] == [AssertionError]
    client.close()


def test_a_buffer_can_be_resized_while_it_is_received(world: World) -> None:
    client, peer = connected(world)
    peer.on_received = lambda _: peer._buffer.extend(bytes(100))
    client.sendall(b"hello")
    world.until(lambda: peer.heard == b"hello")
    assert world.errors == []
    client.close()


def test_connections_that_end_in_one_turn_do_not_confuse_each_other(world: World) -> None:
    """Events of a turn may be for descriptors that are closed by now, or somebody else's."""
    peers: list[Peer] = []

    def accept(connection: Connection) -> Peer:
        peer = Peer(connection)
        peer.on_received = close_all
        peers.append(peer)
        return peer

    def close_all(_data: bytes) -> None:
        assert isinstance(world.network, RealNetwork)
        world.network.close()
        clients.extend(socket.create_connection((LOCAL, port)) for _ in range(3))

    port = world.listen(accept)
    clients = [socket.create_connection((LOCAL, port)) for _ in range(20)]
    world.until(lambda: len(peers) == 20)
    for client in clients:
        client.sendall(b"now")
    world.until(lambda: len(peers) >= 23)
    assert [len(peer.closings) for peer in peers[:20]] == [1] * 20
    assert world.errors == []
    for client in clients:
        client.close()


def test_requests_and_answers_leave_no_garbage(world: World) -> None:
    client, peer = connected(world)
    peer.on_received = peer.connection.send
    with client:
        _exchange(world, client, 100)
        gc.collect()
        gc.disable()
        try:
            _exchange(world, client, EXCHANGES)
            # Other threads of this process leave some too.
            assert gc.collect() < EXCHANGES / 10
        finally:
            gc.enable()


def _exchange(world: World, client: socket.socket, count: int) -> None:
    for _ in range(count):
        client.send(b"request")
        world.turn()
        assert client.recv(100) == b"request"


def test_a_closed_connection_is_forgotten_at_once(world: World) -> None:
    def die(make: Callable[[], tuple[socket.socket, Peer]]) -> list[weakref.ref[object]]:
        client, peer = make()
        client.close()
        world.until(lambda: bool(peer.closings))
        return [weakref.ref(peer)]

    gc.collect()
    gc.disable()
    try:
        port_peers: list[Peer] = []

        def make() -> tuple[socket.socket, Peer]:
            client = socket.create_connection((LOCAL, port))
            world.until(lambda: bool(port_peers))
            return client, port_peers.pop()

        def accept(connection: Connection) -> Peer:
            port_peers.append(Peer(connection))
            return port_peers[-1]

        port = world.listen(accept)
        references = die(make)
        assert [reference() for reference in references] == [None]
    finally:
        gc.enable()


def test_buffers_are_as_large_as_asked_for(world: World) -> None:
    assert isinstance(world.loop, EpollLoop)
    network = RealNetwork(world.loop, send_buffer_bytes=20_000, receive_buffer_bytes=30_000)
    sizes: list[tuple[int, int]] = []

    def accept(connection: Connection) -> None:
        assert isinstance(connection, RealConnection)
        sizes.append(
            (
                connection._socket.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF),
                connection._socket.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF),
            )
        )

    listener = network.listen(LOCAL, 0, accept)
    with socket.create_connection((LOCAL, listener.port)):
        world.until(lambda: bool(sizes))
    listener.close()
    assert sizes == [(40_000, 60_000)], "Linux doubles what it is asked for"


def test_a_port_can_be_taken_again_right_after_a_restart(world: World) -> None:
    client, peer = connected(world)
    peer.connection.close()
    world.until(lambda: bool(peer.closings))
    port = world.listeners[0].port
    world.listeners[0].close()
    assert world.listen(Peer, port) == port
    client.close()
