"""Worlds to talk in, real and simulated, and peers that talk: for the network's tests."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tidelog.base.ports import Clock, Connection, Disk, Listener, Loop, Network
from tidelog.world.real.clock import RealClock
from tidelog.world.real.disk import RealDisk
from tidelog.world.real.loop import EpollLoop
from tidelog.world.real.network import RealNetwork
from tidelog.world.sim.disk import SimDisk
from tidelog.world.sim.loop import SimLoop
from tidelog.world.sim.network import SimNetwork

PATIENCE_SECONDS = 60
SIM_SEEDS = (1, 2, 3)
KINDS = ["real", *(f"simulated-{seed}" for seed in SIM_SEEDS)]
LOCAL = "127.0.0.1"


@dataclass(kw_only=True)
class World:
    """A loop and what it drives. Errors that escaped a callback are listed."""

    loop: Loop
    clock: Clock
    network: Network
    disk: Disk
    folder: str
    turn: Callable[[], bool]
    errors: list[tuple[str, Exception]]
    listeners: list[Listener] = field(default_factory=list)

    def until(self, condition: Callable[[], bool]) -> None:
        """Runs the loop until something is so, and fails if it never is."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not condition():
            assert time.monotonic() < deadline, "it did not come true in time"
            assert self.turn() or condition(), "nothing happens any more"

    def pass_ms(self, duration_ms: int) -> None:
        passed: list[int] = []
        self.loop.call_at(self.clock.monotonic_ms() + duration_ms, lambda: passed.append(1))
        self.until(lambda: bool(passed))

    def listen(self, accept: "Callable[[Connection], Peer | None]", port: int = 0) -> int:
        listener = self.network.listen(LOCAL, port, accept)
        self.listeners.append(listener)
        return listener.port

    def answering(self, host: str = LOCAL, room: int = 65_536) -> "tuple[int, list[Peer]]":
        """A port that is listened on, and who was met there."""
        peers: list[Peer] = []

        def accept(connection: Connection) -> Peer:
            peers.append(Peer(connection, room))
            return peers[-1]

        listener = self.network.listen(host, 0, accept)
        self.listeners.append(listener)
        return listener.port, peers

    def meet(self, room: int = 65_536) -> "tuple[Peer, Peer]":
        """Two ends of one connection: who asked for it, and who was asked."""
        port, peers = self.answering(room=room)
        asking = self.dial(port, room)
        self.until(lambda: bool(peers))
        return asking, peers[0]

    def dial(self, port: int, room: int = 65_536) -> "Peer":
        found: list[Peer] = []

        def opened(outcome: Connection | OSError) -> Peer:
            assert not isinstance(outcome, OSError), outcome
            found.append(Peer(outcome, room))
            return found[-1]

        self.network.connect(LOCAL, port, opened)
        self.until(lambda: bool(found))
        return found[0]


class Peer:
    """Keeps all it received, and does on receiving what it was told to."""

    def __init__(self, connection: Connection, room: int = 65_536) -> None:
        self.connection = connection
        self.heard = bytearray()
        self.closings: list[str] = []
        self.on_received: Callable[[bytes], None] = _ignore
        self.on_closed: Callable[[], None] = _do_nothing
        self.asked = 0
        self._buffer = bytearray(room)

    def buffer(self) -> memoryview:
        self.asked += 1
        return memoryview(self._buffer)

    def received(self, size: int) -> None:
        data = bytes(self._buffer[:size])
        # Whoever looks at the buffer later must not find what was once there.
        self._buffer[:size] = b"?" * size
        self.heard += data
        self.on_received(data)

    def closed(self, why: str) -> None:
        self.closings.append(why)
        self.on_closed()


def worlds(kind: str, folder: Path) -> Iterator[World]:
    errors: list[tuple[str, Exception]] = []

    def note(what: str, error: Exception) -> None:
        errors.append((what, error))

    if kind == "real":
        yield from _real(folder, note, errors)
    else:
        yield _simulated(int(kind.rpartition("-")[2]), note, errors)


def _real(
    folder: Path, note: Callable[[str, Exception], None], errors: list[tuple[str, Exception]]
) -> Iterator[World]:
    loop = EpollLoop(note)

    def turn() -> bool:
        loop.turn(0.05)
        return True

    network = RealNetwork(loop)
    world = World(
        loop=loop,
        clock=RealClock(),
        network=network,
        disk=RealDisk(),
        folder=str(folder),
        turn=turn,
        errors=errors,
    )
    yield world
    for listener in world.listeners:
        listener.close()
    network.close()
    loop.close()


def _simulated(
    seed: int, note: Callable[[str, Exception], None], errors: list[tuple[str, Exception]]
) -> World:
    loop = SimLoop(seed=seed, on_error=note)
    disk = SimDisk(seed, loop.clock)
    disk.make_folder("/files")
    return World(
        loop=loop,
        clock=loop.clock,
        network=SimNetwork(loop).host("localhost"),
        disk=disk,
        folder="/files",
        turn=loop.turn,
        errors=errors,
    )


def _ignore(_data: bytes) -> None:
    """Most peers only listen."""


def _do_nothing() -> None:
    """Most peers mourn nobody."""
