"""A session of some coordination with the loop that drives it: tests ask, and wait for answers."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from tidelog.base.coordination import (
    Coordination,
    CoordinationError,
    Done,
    Node,
    Operation,
    Stat,
    Watch,
    WatchKind,
    Written,
)
from tidelog.world.real.clock import RealClock
from tidelog.world.real.disk import RealDisk
from tidelog.world.real.embedded import EmbeddedCoordination, open_embedded
from tidelog.world.real.loop import EpollLoop
from tidelog.world.real.snapshotting import JOURNAL_BYTES_MAX, Place
from tidelog.world.real.zookeeper import IN_FLIGHT_MAX, ZooKeeper
from tidelog.world.sim.coordination import CoordinationFaults, SimCoordination
from tidelog.world.sim.disk import SimDisk
from tidelog.world.sim.ensemble import SimEnsemble
from tidelog.world.sim.loop import SimLoop

Answer = TypeVar("Answer")

LOG_DIR = "/data"
FOLDER = f"{LOG_DIR}/znodes"
TURNS_MAX = 100_000


class Asking:
    """Asks one thing at a time and gives its answer back, or raises the trouble."""

    coordination: Coordination

    def turn(self) -> None:
        raise NotImplementedError

    def wait(self, condition: Callable[[], bool]) -> None:
        for _ in range(TURNS_MAX):
            if condition():
                return
            self.turn()
        raise AssertionError("it never happened")

    def get(self, path: str, watch: Watch | None = None) -> Node:
        def question(done: Done[Node]) -> None:
            self.coordination.get(path, done, watch)

        return self.ask(question)

    def children(self, path: str, watch: Watch | None = None) -> list[str]:
        def question(done: Done[list[str]]) -> None:
            self.coordination.children(path, done, watch)

        return self.ask(question)

    def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        def question(done: Done[Stat | None]) -> None:
            self.coordination.exists(path, done, watch)

        return self.ask(question)

    def write(self, *operations: Operation) -> list[Written]:
        def question(done: Done[list[Written]]) -> None:
            self.coordination.write(operations, done)

        return self.ask(question)

    def ask(self, question: Callable[[Done[Answer]], None]) -> Answer:
        answers: list[Answer | CoordinationError] = []
        question(answers.append)
        assert answers == [], "answers come later, in the loop"
        self.wait(lambda: bool(answers))
        assert len(answers) == 1
        if isinstance(answers[0], CoordinationError):
            raise answers[0]
        return answers[0]


class Embedded(Asking):
    """On a simulated disk and virtual time."""

    coordination: EmbeddedCoordination

    def __init__(
        self, disk: SimDisk | None = None, seed: int = 0, journal_bytes_max: int = JOURNAL_BYTES_MAX
    ) -> None:
        self.disk = SimDisk(seed) if disk is None else disk
        self.disk.make_folder(LOG_DIR)
        self.disk.sync_folder("/")
        self.loop = SimLoop(self.disk.clock, seed)
        self.place = Place(
            disk=self.disk,
            loop=self.loop,
            clock=self.disk.clock,
            folder=FOLDER,
            journal_bytes_max=journal_bytes_max,
        )
        self.open()

    def open(self) -> None:
        self.coordination = open_embedded(self.place)

    def turn(self) -> None:
        self.loop.turn()

    def reopen(self) -> None:
        self.coordination.close()
        self.wait_for_all()
        self.open()

    def wait_for_all(self) -> None:
        ended: list[bool] = []
        self.coordination.after_all(lambda: ended.append(True))
        self.wait(lambda: bool(ended))

    def release(self) -> None:
        self.loop.close()


class RealEmbedded(Asking):
    coordination: EmbeddedCoordination

    def __init__(self, folder: Path, journal_bytes_max: int = JOURNAL_BYTES_MAX) -> None:
        self.loop = EpollLoop(on_error=_raise)
        self.place = Place(
            disk=RealDisk(),
            loop=self.loop,
            clock=RealClock(),
            folder=str(folder / "znodes"),
            journal_bytes_max=journal_bytes_max,
        )
        self.coordination = open_embedded(self.place)

    def turn(self) -> None:
        self.loop.turn(0.5)

    def reopen(self) -> None:
        self.coordination.close()
        ended: list[bool] = []
        self.coordination.after_all(lambda: ended.append(True))
        self.wait(lambda: bool(ended))
        self.coordination = open_embedded(self.place)

    def release(self) -> None:
        self.loop.close()


class Simulated(Asking):
    coordination: SimCoordination

    def __init__(
        self,
        seed: int = 0,
        faults: CoordinationFaults | None = None,
        beside: "Simulated | None" = None,
    ) -> None:
        """`beside` shares its loop and its tree."""
        self.loop: SimLoop = SimLoop(seed=seed) if beside is None else beside.loop
        self.ensemble: SimEnsemble = (
            SimEnsemble(self.loop.clock) if beside is None else beside.ensemble
        )
        self.coordination = SimCoordination(self.loop, self.ensemble, faults)

    def turn(self) -> None:
        self.loop.turn()

    def reopen(self) -> None:
        ended = self.coordination.session_id
        self.coordination.close()
        self.wait(lambda: not self.ensemble.has_session(ended))
        self.coordination = SimCoordination(self.loop, self.ensemble)

    def release(self) -> None:
        self.loop.close()


class RealZooKeeper(Asking):
    """In a session of its own at a server; beside others, if its chroot is theirs too."""

    coordination: ZooKeeper

    def __init__(
        self, connect: str, session_timeout_ms: int = 30_000, in_flight_max: int = IN_FLIGHT_MAX
    ) -> None:
        self.in_flight_max = in_flight_max
        self.loop = EpollLoop(on_error=_raise)
        self.connect = connect
        self.session_timeout_ms = session_timeout_ms
        self.sessions: list[tuple[int, bytes]] = []
        """Every one that was begun, with its password."""
        self.states: list[tuple[str, int]] = []
        self.open()

    def open(self) -> None:
        def note(session_id: int, password: bytes) -> None:
            self.sessions.append((session_id, password))

        self.coordination = ZooKeeper(
            self.connect, self.session_timeout_ms, self.loop.post, note, self.in_flight_max
        )
        self.coordination.on_session(
            lambda state: self.states.append((state.name, self.coordination.session_id))
        )

    def turn(self) -> None:
        self.loop.turn(0.5)

    def close(self) -> None:
        ended: list[bool] = []
        self.coordination.close()
        self.coordination.after_all(lambda: ended.append(True))
        self.wait(lambda: bool(ended))

    def reopen(self) -> None:
        self.close()
        self.open()

    def release(self) -> None:
        self.close()
        self.loop.close()


class Seen:
    """Watches that note, in order, what they were told; others note there what else happened."""

    def __init__(self) -> None:
        self.events: list[Any] = []

    def watch(self, kind: WatchKind, path: str) -> None:
        self.events.append((kind.name, path))

    def note(self, what: str) -> Callable[[Any], None]:
        return lambda _answer: self.events.append(what)


def _raise(_what: str, error: Exception) -> None:
    raise error
