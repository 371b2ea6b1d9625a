"""The network between processes of one machine, with faults: a TCP proxy for each directed link.

One thread carries all bytes. Who dials a proxied address is found out by `source_of`, or given when
the address is opened; what flows from a source to a target follows the rule of that direction,
whoever dialled: it is carried at once, late, slowly, or held back. Nothing is lost or reordered
inside a connection: bytes that were held arrive when the link heals, as TCP would send
them again, also the end of a connection; and nobody connects over a link that is held.
"""

import os
import selectors
import socket
import struct
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from threading import RLock, Thread
from typing import Final

_CHUNK_BYTES: Final = 1 << 18
_QUEUE_BYTES_MAX: Final = 1 << 22
_RESET: Final = struct.pack("ii", 1, 0)
_IN_PROGRESS: Final = (0, 115)
_NETLINK_SOCK_DIAG: Final = 4
_SOCK_DIAG_BY_FAMILY: Final = 20

Address = tuple[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    is_held: bool = False
    delay_s: float = 0.0
    bytes_per_s: int | None = None


FREE: Final = Rule()


class _Flow:
    """One direction of one connection."""

    def __init__(self, names: tuple[str, str], reads: socket.socket, writes: socket.socket) -> None:
        self.names = names
        self.reads = reads
        self.writes = writes
        self.queue: deque[tuple[float, memoryview]] = deque()
        self.queued_bytes = 0
        self.free_at = 0.0
        self.is_ended = False
        self.is_shut = False
        self.is_blocked = False


class _Connection:
    def __init__(self, source: str, target: str, near: socket.socket, address: Address) -> None:
        self.names = (source, target)
        self.near = near
        self.far = socket.socket()
        self.address = address
        self.is_dialling = False
        self.is_open = False
        self.forth = _Flow((source, target), near, self.far)
        self.back = _Flow((target, source), self.far, near)

    @property
    def flows(self) -> tuple[_Flow, _Flow]:
        return self.forth, self.back


class Links:
    def __init__(self, source_of: Callable[[int, int], str | None]) -> None:
        """`source_of` is given the port somebody dialled from, and the one that was dialled."""
        self._source_of = source_of
        self.usual = FREE
        """The rule of links that have no other; healing leaves it as it is."""
        self._rules: dict[tuple[str, str], Rule] = {}
        self._selector = selectors.DefaultSelector()
        self._connections: list[_Connection] = []
        self._listening: list[socket.socket] = []
        self._lock = RLock()
        self._waking, self._woken = socket.socketpair()
        self._woken.setblocking(False)
        self._selector.register(self._woken, selectors.EVENT_READ, self._drain)
        self._is_closed = False
        self._thread = Thread(target=self._run, name="links", daemon=True)
        self._thread.start()

    def open(self, target: str, address: Address, source: str | None = None) -> int:
        """The port of 127.0.0.1 under which `target`, which is at `address`, is reached."""
        listening = socket.create_server(("127.0.0.1", 0), backlog=128)
        listening.setblocking(False)
        port: int = listening.getsockname()[1]
        with self._lock:
            self._listening.append(listening)
            self._selector.register(
                listening,
                selectors.EVENT_READ,
                lambda: self._accept(listening, target, address, source),
            )
        self._wake()
        return port

    def rule(self, source: str, target: str, rule: Rule) -> None:
        """For what flows from one to the other."""
        with self._lock:
            self._rules[source, target] = rule
        self._wake()

    def cut(self, one: str, others: Iterable[str]) -> None:
        """Nothing flows between it and the others."""
        for other in others:
            self.rule(one, other, Rule(is_held=True))
            self.rule(other, one, Rule(is_held=True))

    def cut_one_way(self, source: str, target: str) -> None:
        self.rule(source, target, Rule(is_held=True))

    def heal(self) -> None:
        with self._lock:
            self._rules.clear()
        self._wake()

    def reset(self, one: str, other: str) -> int:
        """Ends every connection between them with a reset; how many there were."""
        with self._lock:
            doomed = [c for c in self._connections if set(c.names) == {one, other}]
            for connection in doomed:
                self._end(connection)
        return len(doomed)

    def connected(self) -> set[tuple[str, str]]:
        """Who dialled whom and is connected."""
        with self._lock:
            return {connection.names for connection in self._connections if connection.is_open}

    def close(self) -> None:
        self._is_closed = True
        self._wake()
        self._thread.join(60)
        for connection in list(self._connections):
            self._end(connection)
        for each in (*self._listening, self._waking, self._woken):
            each.close()
        self._selector.close()

    def _wake(self) -> None:
        with suppress(OSError):
            self._waking.send(b"!")

    def _drain(self) -> None:
        with suppress(BlockingIOError):
            while self._woken.recv(4096):
                continue

    def _run(self) -> None:
        while not self._is_closed:
            events = self._selector.select(self._pause_s())
            with self._lock:
                for key, _ in events:
                    if key.fd in self._selector.get_map():
                        key.data()
                for connection in list(self._connections):
                    self._move(connection)

    def _pause_s(self) -> float | None:
        with self._lock:
            dues = [
                flow.queue[0][0]
                for connection in self._connections
                for flow in connection.flows
                if flow.queue and not flow.is_blocked and not self._rule(flow).is_held
            ]
        return max(0.0, min(dues) - time.monotonic()) if dues else None

    def _rule(self, flow: _Flow) -> Rule:
        return self._rules.get(flow.names, self.usual)

    def _accept(
        self, listening: socket.socket, target: str, address: Address, source: str | None
    ) -> None:
        with suppress(BlockingIOError):
            near, (_, port) = listening.accept()
            near.setblocking(False)
            name = source or self._source_of(port, listening.getsockname()[1])
            self._connections.append(_Connection(name or "?", target, near, address))

    def _move(self, connection: _Connection) -> None:
        """Takes a connection as far as it can go now."""
        if not connection.is_open:
            self._dial(connection)
            return
        try:
            for flow in connection.flows:
                self._write(flow)
        except OSError:
            self._end(connection)
            return
        if all(flow.is_shut for flow in connection.flows):
            self._end(connection, is_reset=False)
        else:
            self._watch(connection)

    def _dial(self, connection: _Connection) -> None:
        if connection.is_dialling or any(self._rule(flow).is_held for flow in connection.flows):
            return
        far = connection.far
        far.setblocking(False)
        if far.connect_ex(connection.address) not in _IN_PROGRESS:
            self._end(connection)
            return
        connection.is_dialling = True
        self._selector.register(far, selectors.EVENT_WRITE, lambda: self._dialled(connection))

    def _dialled(self, connection: _Connection) -> None:
        if connection.far.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self._end(connection)
            return
        self._selector.unregister(connection.far)
        connection.is_open = True
        for each in (connection.near, connection.far):
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def _watch(self, connection: _Connection) -> None:
        """Asks to be told of what each socket can give, and take, just now."""
        for flow, other in (connection.flows, connection.flows[::-1]):
            has_room = not flow.is_ended and flow.queued_bytes < _QUEUE_BYTES_MAX
            wanted = selectors.EVENT_READ if has_room else 0
            if other.is_blocked:
                wanted |= selectors.EVENT_WRITE
            self._want(flow.reads, wanted, connection)

    def _want(self, each: socket.socket, wanted: int, connection: _Connection) -> None:
        known = self._selector.get_map().get(each)
        if known is not None and not wanted:
            self._selector.unregister(each)
        elif known is None and wanted:
            self._selector.register(each, wanted, lambda: self._ready(connection, each))
        elif known is not None and known.events != wanted:
            self._selector.modify(each, wanted, known.data)

    def _ready(self, connection: _Connection, each: socket.socket) -> None:
        for flow in connection.flows:
            if flow.writes is each:
                flow.is_blocked = False
            elif not flow.is_ended and flow.queued_bytes < _QUEUE_BYTES_MAX:
                try:
                    self._read(flow)
                except OSError:
                    self._end(connection)
                    return

    def _read(self, flow: _Flow) -> None:
        try:
            data = flow.reads.recv(_CHUNK_BYTES)
        except BlockingIOError:
            return
        if not data:
            flow.is_ended = True
            return
        rule, now = self._rule(flow), time.monotonic()
        if rule.bytes_per_s is not None:
            flow.free_at = max(now, flow.free_at) + len(data) / rule.bytes_per_s
        flow.queue.append((max(now, flow.free_at) + rule.delay_s, memoryview(data)))
        flow.queued_bytes += len(data)

    def _write(self, flow: _Flow) -> None:
        if self._rule(flow).is_held or flow.is_blocked:
            return
        now = time.monotonic()
        while flow.queue and flow.queue[0][0] <= now:
            due, data = flow.queue[0]
            try:
                count = flow.writes.send(data)
            except BlockingIOError:
                flow.is_blocked = True
                return
            flow.queued_bytes -= count
            if count == len(data):
                flow.queue.popleft()
            else:
                flow.queue[0] = (due, data[count:])
        if flow.is_ended and not flow.queue and not flow.is_shut:
            flow.is_shut = True
            flow.writes.shutdown(socket.SHUT_WR)

    def _end(self, connection: _Connection, is_reset: bool = True) -> None:
        if connection in self._connections:
            self._connections.remove(connection)
        for each in (connection.near, connection.far):
            if each.fileno() < 0:
                continue
            if each in self._selector.get_map():
                self._selector.unregister(each)
            if is_reset:
                each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            each.close()


def owner_of(port: int, dialled_port: int, processes: Mapping[str, Iterable[int]]) -> str | None:
    """Whose socket it is that is connected from `port` to `dialled_port` of this machine: the name
    of that one of the processes, which are given by their ids."""
    inode = _inode(port, dialled_port)
    if inode is None:
        return None
    link = f"socket:[{inode}]"
    for name, process_ids in processes.items():
        if any(link in _open_files(process_id) for process_id in process_ids):
            return name
    return None


def _inode(port: int, dialled_port: int) -> str | None:
    """Asked of the kernel for this one socket (sock_diag(7)): the list of all is long."""
    loopback = socket.inet_aton("127.0.0.1").ljust(16, b"\0")
    ports = struct.pack("!HH", port, dialled_port)
    place = ports + loopback + loopback + struct.pack("=I", 0) + b"\xff" * 8
    body = struct.pack("=BBBxI", socket.AF_INET, socket.IPPROTO_TCP, 0, 0xFFFFFFFF) + place
    header = struct.pack("=IHHII", 16 + len(body), _SOCK_DIAG_BY_FAMILY, 1, 0, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as asking:
        asking.settimeout(30)
        asking.send(header + body)
        answer = asking.recv(4096)
    _, kind = struct.unpack_from("=IH", answer)
    if kind != _SOCK_DIAG_BY_FAMILY:
        return None
    (inode,) = struct.unpack_from("=I", answer, 16 + 4 + 48 + 16)
    return str(inode)


def _open_files(process_id: int) -> set[str]:
    folder, found = f"/proc/{process_id}/fd", set()
    with suppress(OSError):
        for name in os.listdir(folder):
            with suppress(OSError):
                found.add(os.readlink(f"{folder}/{name}"))
    return found
