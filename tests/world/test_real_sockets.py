"""What a socket is told when its connection begins."""

import socket
from pathlib import Path

from tidelog.world.real.sockets import prepare_connected

LOCAL, OTHER = "127.0.0.1", "127.0.0.2"
SYSTEM = Path("/proc/sys/net/ipv4/tcp_congestion_control")


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
