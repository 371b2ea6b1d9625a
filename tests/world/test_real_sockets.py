"""What a socket is told when its connection begins, and what the loop does after much was sent."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidelog.world.real.connection import RealConnection
from tidelog.world.real.loop import EpollLoop
from tidelog.world.real.sockets import prepare_connected

LOCAL, OTHER = "127.0.0.1", "127.0.0.2"
SYSTEM = Path("/proc/sys/net/ipv4/tcp_congestion_control")
WAIT_SECONDS = 0.05


@pytest.fixture
def loop() -> Iterator[EpollLoop]:
    made = EpollLoop()
    yield made
    made.close()


def congestion_control(source: str) -> bytes:
    """Of a connection that was accepted from there."""
    with (
        socket.create_server((LOCAL, 0)) as listening,
        socket.create_connection(listening.getsockname(), source_address=(source, 0)),
        listening.accept()[0] as accepted,
    ):
        prepare_connected(accepted)
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert not accepted.getblocking()
        found = accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
        return found.rstrip(b"\0")


def test_nothing_is_paced_between_programs_of_one_machine() -> None:
    assert congestion_control(LOCAL) == b"reno"


def test_what_the_system_does_for_others_is_left_to_it() -> None:
    assert congestion_control(OTHER).decode() == SYSTEM.read_text().strip()


@pytest.mark.parametrize(("size", "first_wait"), [(1_000, 0.0), (300_000, WAIT_SECONDS)])
def test_the_loop_does_not_look_at_once_for_the_next_request_of_who_was_sent_much(
    loop: EpollLoop, monkeypatch: pytest.MonkeyPatch, size: int, first_wait: float
) -> None:
    waits: list[float] = []
    poll = loop._poll

    def noted(seconds: float, events: int) -> list[tuple[int, int]]:
        waits.append(seconds)
        return poll(seconds, events)

    near, far = socket.socketpair()
    near.setblocking(False)
    with far:
        connection = RealConnection(loop, near, "peer", set())
        loop.post(lambda: connection.send(bytes(size)))
        loop.turn()
        monkeypatch.setattr(loop, "_poll", noted)
        loop.turn(WAIT_SECONDS)
        assert waits[0] == first_wait
        connection.abandon("the test is over")
