"""The guard's own program: it outlives its broker by a moment, to close its ZooKeeper session.

Run as a script, with nothing but the standard library, by `guarding.py`. Its standard input is
a socket to the broker, which sends one line for each session and one when it stops in good order:

    watch <session id> <password in hex> <timeout in ms>     answered with: watching <session id>
    done                                                     the guard ends

A session is closed only once the broker's process has ended; a closed socket alone is no proof
of that, nor is silence. Only the last session counts. Taking a session over and closing it
are two frames, each after its length in four bytes (all numbers big-endian):

    ConnectRequest   protocol version i32, last zxid seen i64, timeout i32, session id i64,
                     password (length i32, bytes), read only i8
    ConnectResponse  protocol version i32, timeout i32 (0: there is no such session), ...
    closeSession     xid i32, type i32 = -11
    its response     xid i32, zxid i64, error i32
"""

import os
import select
import signal
import socket
import struct
import sys
import time
from collections.abc import Sequence

Server = tuple[str, int]

_CONNECT = struct.Struct(">iqiqi")
_CONNECTED = struct.Struct(">ii")
_CLOSED = struct.Struct(">iqi")
_CLOSE_SESSION = struct.pack(">iii", 8, 1, -11)
_LENGTH = struct.Struct(">i")
_RESPONSE_BYTES_MAX = 4096
_LINE_BYTES_MAX = 4096

_SHORTEST_TIMEOUT_MS = 1
"""What a taken session is asked to have: the server raises it to its minimum, so that the
session ends soon even if what closes it is lost."""
_LOOK_S = 0.05
"""How often to look for the broker's end where nothing tells of it."""
_FIRST_PATIENCE_S, _PATIENCE_S_MAX = 0.2, 3.0
_FIRST_PAUSE_S, _PAUSE_S_MAX = 0.01, 0.2


def main(arguments: Sequence[str]) -> None:
    # When the whole group is told to stop, the broker still needs its guard.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    broker_pid = int(arguments[0])
    servers = [_server(argument) for argument in arguments[1:]]
    session = Broker(broker_pid, channel=0).last_session()
    if session is not None:
        session_id, password, timeout_ms = session
        close_session(servers, session_id, password, within_s=timeout_ms / 1000)


def _server(argument: str) -> Server:
    host, _, port = argument.rpartition(":")
    return host, int(port)


class Broker:
    """The process that started this one, as seen from here."""

    def __init__(self, pid: int, channel: int) -> None:
        self._pid = pid
        self._channel = channel
        self._ends = _ends(pid)
        self._look_s = None if self._ends else _LOOK_S
        self._rest = b""
        self._session: tuple[int, bytes, int] | None = None

    def last_session(self) -> tuple[int, bytes, int] | None:
        """Waits until the broker has ended; None if it leaves nothing to close."""
        channels = [self._channel]
        while self._has_said_something(channels):
            received = self._read()
            if not received:
                channels = []
            elif self._hear(received):
                return None
        return self._session

    def _has_said_something(self, channels: list[int]) -> bool:
        """False once the broker has ended and all it sent was read. Its end of the socket may
        be closed before that, and may be open after it: in a child that was forked from it."""
        while True:
            has_ended = os.getppid() != self._pid
            timeout_s = 0 if has_ended else self._look_s
            ready, _, _ = select.select([*channels, *self._ends], [], [], timeout_s)
            if self._channel in ready:
                return True
            if has_ended:
                return False

    def _read(self) -> bytes:
        try:
            return os.read(self._channel, _LINE_BYTES_MAX)
        except ConnectionResetError:
            # It was closed before the last answer was read.
            return b""

    def _hear(self, received: bytes) -> bool:
        """Whether the broker said that it stops in good order."""
        *lines, self._rest = (self._rest + received).split(b"\n")
        for line in lines:
            if line == b"done":
                return True
            _, session_id, password, timeout_ms = line.split(b" ")
            self._session = (int(session_id), bytes.fromhex(password.decode()), int(timeout_ms))
            self._answer(b"watching %d\n" % int(session_id))
        return False

    def _answer(self, line: bytes) -> None:
        try:
            os.write(self._channel, line)
        except OSError:
            # The broker died or closed its end, which reading shows next.
            return


def _ends(pid: int) -> list[int]:
    """What is readable once that process has ended, where the system has such a thing."""
    try:
        return [os.pidfd_open(pid)]
    except OSError:
        return []


def close_session(
    servers: Sequence[Server], session_id: int, password: bytes, within_s: float
) -> bool:
    """Closes a session at whichever server can, in turn, with more patience when one was silent.
    True once it is over, or was over before; False if no server said so in time."""
    deadline = time.monotonic() + within_s
    patience_s, pause_s = _FIRST_PATIENCE_S, _FIRST_PAUSE_S
    while True:
        began = time.monotonic()
        for server in servers:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                return False
            if _close_at(server, session_id, password, min(patience_s, left_s)):
                return True
        if time.monotonic() - began >= patience_s:
            patience_s = min(2 * patience_s, _PATIENCE_S_MAX)
        time.sleep(max(0, min(pause_s, deadline - time.monotonic())))
        pause_s = min(2 * pause_s, _PAUSE_S_MAX)


def _close_at(server: Server, session_id: int, password: bytes, patience_s: float) -> bool:
    deadline = time.monotonic() + patience_s
    try:
        with socket.create_connection(server, timeout=patience_s) as connection:
            connection.sendall(_connect_request(session_id, password))
            _, timeout_ms = _CONNECTED.unpack_from(_receive(connection, deadline))
            if timeout_ms <= 0:
                return True
            connection.sendall(_CLOSE_SESSION)
            _, _, error = _CLOSED.unpack_from(_receive(connection, deadline))
            return bool(error == 0)
    except (OSError, UnicodeError, struct.error):
        # Not running, not part of a quorum, too slow, or no ZooKeeper: the next may do it.
        return False


def _connect_request(session_id: int, password: bytes) -> bytes:
    start = _CONNECT.pack(0, 0, _SHORTEST_TIMEOUT_MS, session_id, len(password))
    request = start + password + b"\0"
    return _LENGTH.pack(len(request)) + request


def _receive(connection: socket.socket, deadline: float) -> bytes:
    (length,) = _LENGTH.unpack(_exactly(connection, _LENGTH.size, deadline))
    if not 0 <= length <= _RESPONSE_BYTES_MAX:
        raise OSError(f"a response of {length} bytes")
    return _exactly(connection, length, deadline)


def _exactly(connection: socket.socket, length: int, deadline: float) -> bytes:
    received = b""
    while len(received) < length:
        connection.settimeout(max(0, deadline - time.monotonic()))
        part = connection.recv(length - len(received))
        if not part:
            raise OSError("the connection was closed")
        received += part
    return received


if __name__ == "__main__":
    main(sys.argv[1:])
