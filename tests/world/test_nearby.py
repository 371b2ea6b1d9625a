"""A broker's socket for clients of its machine: what lies in files is handed over, not sent."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from support.peers import LOCAL, Peer, World, worlds
from tidelog.base.nearby import HEAD, name_beside
from tidelog.base.ports import Connection
from tidelog.client import nearby_sockets
from tidelog.client.addresses import Address
from tidelog.client.errors import Unreachable
from tidelog.client.nearby_sockets import NearbyStream, open_nearest
from tidelog.client.sockets import Lying, Stream, now_ms
from tidelog.world.real.nearby import NearbyConnection

NOBODY = 65_534
SECONDS_MAX = 60
CONTENT = bytes(range(256)) * 4096
AS_NOBODY = """
import os, socket, sys
os.setuid({user})
with socket.socket(socket.AF_UNIX) as found:
    found.settimeout({seconds})
    found.{call}({name!r})
    {then}
"""

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes somebody else")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    yield from worlds("real", tmp_path)


def soon() -> int:
    return now_ms() + SECONDS_MAX * 1000


def met(world: World) -> tuple[NearbyStream, Peer]:
    port, peers = world.answering()
    stream = open_nearest(Address(LOCAL, port), soon())
    assert isinstance(stream, NearbyStream)
    world.until(lambda: bool(peers))
    return stream, peers[0]


def received(stream: Stream, size: int, step: int = 100_000) -> bytes:
    heard = bytearray(size)
    view = memoryview(heard)
    filled = 0
    while filled < size:
        got = stream.receive_into(view[filled : filled + step], soon())
        assert got, "it was closed"
        filled += got
    return bytes(heard)


def sent(world: World, peer: Peer) -> None:
    world.until(lambda: peer.connection.queued_bytes == 0)


def handed(world: World, size: int = len(CONTENT)) -> tuple[NearbyStream, Peer, str, Lying]:
    """A range of a file, on its way to a client that has not read it yet."""
    stream, peer = met(world)
    path = f"{world.folder}/handed"
    file = world.disk.open(path, "create")
    file.pwrite(CONTENT, 0)
    peer.connection.send_file(file, 0, size)
    sent(world, peer)
    lying = stream.lying(soon())
    assert lying is not None
    return stream, peer, path, lying


def read(lying: Lying, at: int = 0, size: int = 1000) -> bytes:
    buffer = bytearray(size)
    lying.read_into(memoryview(buffer), at)
    return bytes(buffer)


@pytest.mark.parametrize("step", [1, 7, 100_000])
def test_what_is_sent_comes_in_order_whether_it_lies_in_a_file_or_not(
    world: World, step: int
) -> None:
    stream, peer = met(world)
    file = world.disk.open(f"{world.folder}/file", "create")
    file.pwrite(CONTENT, 0)
    for _ in range(3):
        peer.connection.send(b"head")
        peer.connection.send(memoryview(b"more"))
        peer.connection.send_file(file, 100, 5000)
        peer.connection.send(b"tail")
    sent(world, peer)
    expected = b"headmore" + CONTENT[100:5100] + b"tail"
    assert received(stream, 3 * len(expected), step) == 3 * expected
    stream.close()


def test_what_is_asked_comes_as_it_is(world: World) -> None:
    stream, peer = met(world)
    stream.send(b"question", soon())
    world.until(lambda: bytes(peer.heard) == b"question")
    assert peer.connection.peer == f"{LOCAL}:{os.getpid()}"
    stream.close()
    world.until(lambda: peer.closings == ["closed by the peer"])


def test_more_than_the_socket_holds_waits_for_the_client(world: World) -> None:
    stream, peer = met(world)
    large = os.urandom(5 << 20)
    peer.connection.send(large)
    peer.connection.send(b"the end")
    world.pass_ms(20)
    assert peer.connection.queued_bytes > 1 << 20
    with ThreadPoolExecutor() as pool:
        heard = pool.submit(received, stream, len(large) + 7)
        world.until(heard.done)
        assert heard.result() == large + b"the end"
    stream.close()


def test_a_range_is_read_when_it_is_wanted_and_what_follows_it_before(world: World) -> None:
    stream, peer = met(world)
    file = world.disk.open(f"{world.folder}/file", "create")
    file.pwrite(CONTENT, 0)
    peer.connection.send(b"head")
    peer.connection.send_file(file, 1000, 500_000)
    peer.connection.send(b"tail")
    sent(world, peer)
    assert stream.lying(soon()) is None
    assert received(stream, 4) == b"head"
    lying = stream.lying(soon())
    assert lying is not None
    assert received(stream, 4) == b"tail"
    assert lying.size == 500_000
    for at in (499_000, 0, 77):
        assert read(lying, at) == CONTENT[1000 + at :][:1000]
    lying.close()
    stream.close()


def test_a_file_that_was_removed_can_be_read_on(world: World) -> None:
    stream, _, path, lying = handed(world)
    world.disk.remove(path)
    assert read(lying, 5) == CONTENT[5:1005]
    lying.close()
    stream.close()


def test_a_file_is_not_cut_under_a_client_that_believes_what_it_reads(world: World) -> None:
    """D12: what is written there afterwards are other records."""
    stream, peer, path, lying = handed(world)
    # Another file object, as a segment that was closed for a while has.
    file = world.disk.open(path, "write")
    file.truncate(len(CONTENT))
    assert read(lying) == CONTENT[:1000], "nothing of it was cut off"
    file.truncate(len(CONTENT) - 1)
    file.pwrite(b"?", len(CONTENT) - 1)
    with pytest.raises(Unreachable, match="closed the connection"):
        read(lying, len(CONTENT) - 1000)
    assert stream.receive_into(memoryview(bytearray(1)), soon()) == 0
    world.until(lambda: bool(peer.closings))
    lying.close()
    stream.close()


def test_whoever_was_handed_only_what_stays_is_left_alone(world: World) -> None:
    stream, peer, path, lying = handed(world, size=5000)
    world.disk.open(path, "write").truncate(5000)
    assert read(lying) == CONTENT[:1000]
    assert peer.closings == []
    lying.close()
    stream.close()


def test_no_descriptor_is_left(world: World) -> None:
    before = set(os.listdir("/proc/self/fd"))
    stream, peer, _, lying = handed(world)
    file = world.disk.open(f"{world.folder}/handed", "read")
    peer.connection.send_file(file, 0, 5000)
    sent(world, peer)
    assert received(stream, 4000) == CONTENT[:4000], "the other one is in the middle of its file"
    lying.close()
    stream.close()
    world.until(lambda: bool(peer.closings))
    del file
    for listener in world.listeners:
        listener.close()
    assert len(set(os.listdir("/proc/self/fd")) - before) == 0


def test_a_connection_that_is_aborted_says_no_more(world: World) -> None:
    stream, peer, _, lying = handed(world)
    peer.connection.abort()
    with pytest.raises(Unreachable):
        read(lying)
    lying.close()
    stream.close()


# -- who comes this way


def test_a_broker_of_all_interfaces_is_found_by_each_of_them(world: World) -> None:
    port, peers = world.answering("")
    for host in (LOCAL, "localhost", "127.0.0.2"):
        stream = open_nearest(Address(host, port), soon())
        assert isinstance(stream, NearbyStream), host
        stream.close()
    world.until(lambda: len(peers) == 3)


def test_a_broker_of_one_address_is_not_found_by_another(world: World) -> None:
    port, peers = world.answering()
    with pytest.raises(Unreachable, match="connection refused"):
        open_nearest(Address("127.0.0.2", port), soon())
    assert peers == []


def test_whatever_has_only_a_port_is_reached_through_it() -> None:
    with socket.create_server((LOCAL, 0)) as server:
        stream = open_nearest(Address(*server.getsockname()), soon())
        assert type(stream) is Stream
        stream.close()


def test_behind_a_listener_that_is_closed_nobody_is(world: World) -> None:
    port, _ = world.answering()
    for listener in world.listeners:
        listener.close()
    with pytest.raises(Unreachable, match="connection refused"):
        open_nearest(Address(LOCAL, port), soon())
    world.listeners.append(world.network.listen(LOCAL, port, lambda _: None))


def test_where_a_name_is_taken_the_port_is_for_all(world: World) -> None:
    with socket.create_server((LOCAL, 0)) as server:
        port = server.getsockname()[1]
    with socket.socket(socket.AF_UNIX) as taken:
        taken.bind(name_beside(LOCAL, port))
        world.listeners.append(world.network.listen(LOCAL, port, lambda _: None))
        stream = open_nearest(Address(LOCAL, port), soon())
        assert type(stream) is Stream
        stream.close()
    ((what, error),) = world.errors
    world.errors.clear()
    assert what == f"port {port}: clients of this machine come through it"
    assert isinstance(error, OSError)


def test_brokers_of_both_kinds_of_address_share_a_port(world: World) -> None:
    with socket.create_server(("0.0.0.0", 0)) as server:
        port = server.getsockname()[1]
    reached: list[str] = []
    for host in ("0.0.0.0", "::"):
        accept = partial(noted, reached, host)
        world.listeners.append(world.network.listen(host, port, accept))
    for host, answering in ((LOCAL, "0.0.0.0"), ("::1", "::")):
        stream = open_nearest(Address(host, port), soon())
        assert isinstance(stream, NearbyStream)
        world.until(lambda: bool(reached))
        assert reached.pop() == answering
        stream.close()


def noted(reached: list[str], host: str, connection: Connection) -> Peer:
    reached.append(host)
    return Peer(connection)


@pytest.mark.parametrize("host", ["192.0.2.1", "8.8.8.8"])
def test_an_address_of_another_machine_is_not_looked_for_here(world: World, host: str) -> None:
    port, peers = world.answering("")
    with pytest.raises(Unreachable):
        open_nearest(Address(host, port), now_ms() + 100)
    assert peers == []


@needs_root
def test_another_user_is_sent_away(world: World) -> None:
    port, peers = world.answering()
    name = name_beside(LOCAL, port)
    script = AS_NOBODY.format(
        user=NOBODY, seconds=SECONDS_MAX, call="connect", name=name, then="assert not found.recv(1)"
    )
    with subprocess.Popen([sys.executable, "-c", script]) as other:
        world.until(lambda: other.poll() is not None)
    assert other.returncode == 0
    assert peers == []


@needs_root
def test_another_user_who_took_a_name_is_not_believed() -> None:
    """Names are free for all, and a broker may be none of ours, or of an older version."""
    with socket.create_server((LOCAL, 0)) as server:
        address = Address(*server.getsockname())
        script = AS_NOBODY.format(
            user=NOBODY,
            seconds=SECONDS_MAX,
            call="bind",
            name=name_beside(LOCAL, address.port),
            then="found.listen(); print(flush=True); sys.stdin.read()",
        )
        command = [sys.executable, "-c", script]
        with subprocess.Popen(
            command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as other:
            assert other.stdout is not None
            assert other.stdout.readline() == "\n"
            stream = open_nearest(address, soon())
            assert type(stream) is Stream
            stream.close()
            other.communicate("")
        assert other.returncode == 0


def test_a_head_that_comes_in_parts_is_one() -> None:
    ours, theirs = socket.socketpair()
    stream = NearbyStream(Address(LOCAL, 1), ours)
    head = HEAD.pack(4, -1)
    theirs.sendall(head[:5])
    theirs.sendall(head[5:] + b"tide")
    assert received(stream, 4) == b"tide"
    theirs.sendall(head[:5])
    theirs.close()
    assert stream.receive_into(memoryview(bytearray(1)), soon()) == 0
    stream.close()


def test_whoever_does_not_want_it_takes_the_port(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    port, _ = world.answering()
    monkeypatch.setenv(nearby_sockets.SWITCH, "no")
    stream = open_nearest(Address(LOCAL, port), soon())
    assert type(stream) is Stream
    stream.close()


def test_a_file_that_does_not_come_through_is_told() -> None:
    """A sandbox may forbid it, or the client have too many open."""
    ours, theirs = socket.socketpair()
    stream = NearbyStream(Address(LOCAL, 1), ours)
    with theirs:
        theirs.sendall(HEAD.pack(4, 0))
        with pytest.raises(Unreachable, match="handed over a file that did not come"):
            stream.receive_into(memoryview(bytearray(1)), soon())
    stream.close()


def test_what_is_handed_over_can_only_be_read(world: World) -> None:
    ours, theirs = socket.socketpair()
    connection = NearbyConnection(world.loop, theirs, "peer", set())
    file = world.disk.open(f"{world.folder}/file", "create")
    file.pwrite(CONTENT, 0)
    connection.send_file(file, 0, 1000)
    connection.flush()
    _, (descriptor,), _, _ = socket.recv_fds(ours, HEAD.size, 1)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.pwrite(descriptor, b"?", 0)
    assert os.pread(descriptor, 1000, 0) == CONTENT[:1000]
    os.close(descriptor)
    connection.abandon("enough")
    ours.close()


def test_a_file_that_is_cut_before_it_is_handed_over_counts_too(world: World) -> None:
    stream, peer = met(world)
    file = world.disk.open(f"{world.folder}/file", "create")
    file.pwrite(CONTENT, 0)
    peer.connection.send_file(file, 0, 1000)
    file.truncate(999)
    world.until(lambda: bool(peer.closings))
    assert stream.receive_into(memoryview(bytearray(1)), soon()) == 0
    stream.close()


def test_a_file_that_got_the_number_of_one_that_was_removed_is_another(world: World) -> None:
    """It is new and empty, and is often cut to nothing before it is written."""
    stream, peer, path, lying = handed(world)
    lying.close()
    os.truncate(path, 0)
    world.disk.open(path, "write").truncate(0)
    peer.connection.send(b"tide")
    sent(world, peer)
    assert received(stream, 4) == b"tide"
    stream.close()
