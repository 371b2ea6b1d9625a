"""The links between processes do what the tests of the cluster believe they do."""

import os
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from threading import Thread

import pytest

from support.link_proxy import Links, Rule, owner_of
from support.ports import free_ports

ME = "me"
ECHO = "echo"


def answer_all(listening: socket.socket) -> None:
    with suppress(OSError):
        while True:
            accepted, _ = listening.accept()
            Thread(target=answer, args=(accepted,), daemon=True).start()


def answer(accepted: socket.socket) -> None:
    with suppress(OSError), accepted:
        while data := accepted.recv(65_536):
            accepted.sendall(data)


@pytest.fixture(autouse=True)
def alone() -> None:
    """There is no cluster here to take turns with."""


@pytest.fixture
def echo() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        Thread(target=answer_all, args=(listening,), daemon=True).start()
        yield listening
        listening.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def links() -> Iterator[Links]:
    made = Links(lambda port, dialled: owner_of(port, dialled, {ME: [os.getpid()]}))
    yield made
    made.close()


@pytest.fixture
def port(links: Links, echo: socket.socket) -> int:
    return links.open(ECHO, echo.getsockname())


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), 60)


def answered(connection: socket.socket, seconds: float = 60) -> bytes:
    connection.settimeout(seconds)
    try:
        return connection.recv(100)
    except TimeoutError:
        return b""


def test_bytes_arrive_and_the_source_is_known(links: Links, port: int) -> None:
    with connect(port) as connection:
        connection.sendall(b"hello")
        assert answered(connection) == b"hello"
        assert links.connected() == {(ME, ECHO)}


def test_many_bytes_arrive_whole_both_ways(port: int) -> None:
    sent = os.urandom(20_000_000)
    with connect(port) as connection:
        Thread(target=connection.sendall, args=(sent,), daemon=True).start()
        got = bytearray()
        while len(got) < len(sent):
            got += connection.recv(1 << 20)
    assert got == sent


@pytest.mark.parametrize("way", [(ME, ECHO), (ECHO, ME)])
def test_what_is_held_back_arrives_when_the_link_heals(
    links: Links, port: int, way: tuple[str, str]
) -> None:
    with connect(port) as connection:
        connection.sendall(b"a")
        assert answered(connection) == b"a"
        links.cut_one_way(*way)
        connection.sendall(b"b")
        assert answered(connection, 0.2) == b""
        links.heal()
        assert answered(connection) == b"b"


def test_the_end_of_a_connection_is_held_back_too(links: Links, port: int) -> None:
    with connect(port) as connection:
        connection.sendall(b"a")
        assert answered(connection) == b"a"
        links.cut(ME, [ECHO])
        connection.shutdown(socket.SHUT_WR)
        connection.settimeout(0.2)
        with pytest.raises(TimeoutError):
            connection.recv(1)
        links.heal()
        connection.settimeout(60)
        assert connection.recv(1) == b""


def test_nobody_gets_through_a_cut_link_until_it_heals(links: Links, port: int) -> None:
    links.cut(ME, [ECHO])
    with connect(port) as connection:
        connection.sendall(b"late")
        assert answered(connection, 0.2) == b""
        assert links.connected() == set()
        links.heal()
        assert answered(connection) == b"late"


def test_a_slow_link_delays_and_throttles(links: Links, port: int) -> None:
    links.rule(ME, ECHO, Rule(delay_s=0.1, bytes_per_s=100_000))
    with connect(port) as connection:
        began = time.monotonic()
        connection.sendall(bytes(20_000))
        got = 0
        while got < 20_000:
            got += len(connection.recv(65_536))
        assert time.monotonic() - began > 0.28


def test_a_reset_ends_the_connection_with_an_error(links: Links, port: int) -> None:
    with connect(port) as connection:
        connection.sendall(b"a")
        assert answered(connection) == b"a"
        assert links.reset(ME, ECHO) == 1
        with pytest.raises(ConnectionResetError):
            connection.recv(1)


def test_a_target_that_is_not_there_ends_the_connection(links: Links) -> None:
    port = links.open("gone", ("127.0.0.1", free_ports(1)[0]))
    with pytest.raises(ConnectionResetError), connect(port) as connection:
        assert connection.recv(1) == b"nothing"
