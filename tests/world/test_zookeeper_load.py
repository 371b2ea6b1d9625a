"""Many requests to a real ZooKeeper at once: what they cost the loop, and what order they keep.

Cut connections and ended sessions fall into the middle of them: each is answered once, what was
answered with success is there, and what belongs to a session that is over is nowhere.
"""

import random
import time
from collections.abc import Callable, Iterator
from functools import partial
from threading import Event, Thread

import pytest

from support.coordinated import RealZooKeeper
from support.zookeepers import Proxy, close_session, new_connect
from tidelog.base.coordination import (
    CoordinationError,
    Create,
    Node,
    SetData,
    Trouble,
    WatchKind,
)

HOLD_MS_MAX = 500
"""Of its own thread's processor time: the machine is shared. 10 to 30 ms were measured."""
VERSIONS = 200
"""That are seen while a writer is at work."""


@pytest.fixture
def connect() -> str:
    return new_connect()


@pytest.fixture
def place(connect: str) -> Iterator[RealZooKeeper]:
    made = RealZooKeeper(connect)
    made.write(Create(path="/t"))
    yield made
    made.release()


def longest_hold(place: RealZooKeeper, ask: Callable[[], None], is_done: Callable[[], bool]) -> int:
    """The longest time in ms for which nothing else could run in the loop. Asking counts too."""
    began = time.thread_time()
    ask()
    longest = time.thread_time() - began
    while not is_done():
        turned = False

        def note() -> None:
            nonlocal turned
            turned = True

        began = time.thread_time()
        place.loop.post(note)
        while not turned:
            place.loop.turn(0.0)
        longest = max(longest, time.thread_time() - began)
    return int(longest * 1_000)


def test_a_thousand_reads_at_once_do_not_hold_the_loop(place: RealZooKeeper) -> None:
    paths = [f"/t/{number:04d}" for number in range(1_000)]
    place.write(*(Create(path=path, data=path.encode()) for path in paths))
    answers: list[Node | CoordinationError] = []

    def ask() -> None:
        for path in paths:
            place.coordination.get(path, answers.append)

    held_ms = longest_hold(place, ask, lambda: len(answers) == 1_000)
    assert [each.data.decode() for each in answers if isinstance(each, Node)] == paths
    print(f"the loop was held for {held_ms} ms")
    assert held_ms < HOLD_MS_MAX


def test_a_thousand_writes_at_once_do_not_hold_the_loop(place: RealZooKeeper) -> None:
    answers: list[object] = []

    def ask() -> None:
        for number in range(1_000):
            wanted = Create(path=f"/t/{number:04d}", data=b"x" * 100)
            place.coordination.write([wanted], answers.append)

    held_ms = longest_hold(place, ask, lambda: len(answers) == 1_000)
    assert answers == [[f"/t/{number:04d}"] for number in range(1_000)]
    print(f"the loop was held for {held_ms} ms")
    assert held_ms < HOLD_MS_MAX


def test_more_than_may_be_in_flight_waits_its_turn(connect: str) -> None:
    place = RealZooKeeper(connect, in_flight_max=3)
    answers: list[object] = []
    for number in range(50):
        place.coordination.write([Create(path=f"/{number:02d}")], answers.append)
    place.wait(lambda: len(answers) == 50)
    assert answers == [[f"/{number:02d}"] for number in range(50)]
    place.release()


class Reader:
    """Leaves a watch with every read, and checks at every answer that no watch is late."""

    def __init__(self, place: RealZooKeeper) -> None:
        self._coordination = place.coordination
        self._armed: dict[int, int] = {}
        self._number = 0
        self.late: list[tuple[int, int]] = []
        self.versions: set[int] = set()
        self.is_stopping = False
        self.under_way = 0

    def read(self) -> None:
        self._number += 1
        self.under_way += 1
        number = self._number
        self._coordination.get("/t", partial(self._answer, number), partial(self._fire, number))

    def _fire(self, number: int, _kind: WatchKind, _path: str) -> None:
        del self._armed[number]

    def _answer(self, number: int, answer: Node | CoordinationError) -> None:
        assert isinstance(answer, Node)
        version = answer.stat.version
        self.late += [(seen, version) for seen in self._armed.values() if seen < version]
        self._armed[number] = version
        self.versions.add(version)
        self.under_way -= 1
        if not self.is_stopping:
            self.read()


def test_under_load_a_watch_is_told_before_any_read_that_shows_its_change(
    place: RealZooKeeper, connect: str
) -> None:
    is_over = Event()

    def write() -> None:
        writer = RealZooKeeper(connect)
        while not is_over.is_set():
            writer.write(SetData(path="/t", data=b"x"))
        writer.release()

    thread = Thread(target=write)
    thread.start()
    reader = Reader(place)
    for _ in range(20):
        reader.read()
    place.wait(lambda: len(reader.versions) > VERSIONS)
    reader.is_stopping = True
    is_over.set()
    place.wait(lambda: reader.under_way == 0)
    thread.join()
    assert reader.late == []


def test_over_cut_connections_everything_is_answered_once_and_nothing_is_done_twice(
    place: RealZooKeeper, connect: str
) -> None:
    proxy = Proxy(connect.partition("/")[0])
    cut = RealZooKeeper(f"{proxy.address}/{connect.partition('/')[2]}")
    chance = random.Random(7)
    answers: dict[int, list[object]] = {}
    order: list[int] = []

    def note(number: int, answer: object) -> None:
        answers[number].append(answer)
        order.append(number)

    for number in range(600):
        answers[number] = []
        wanted = Create(path=f"/t/{number:03d}-", sequence=True)
        cut.coordination.write([wanted], partial(note, number))
        if chance.random() < 0.05:
            cut.loop.turn(0.02)
        if chance.random() < 0.02:
            proxy.cut()
            cut.loop.turn(0.3)
    cut.wait(lambda: len(order) == 600)
    assert order == sorted(order), "in the order in which they were asked for"
    assert all(len(each) == 1 for each in answers.values())
    assert [state for state, _ in cut.states].count("suspended") >= 1, "it was cut"
    made = place.children("/t")
    assert len({name.partition("-")[0] for name in made}) == len(made), "nothing is done twice"
    for (answer,) in answers.values():
        if isinstance(answer, CoordinationError):
            assert answer.trouble is Trouble.connection_loss
        else:
            assert isinstance(answer, list)
            assert answer[0][len("/t/") :] in made
    cut.release()
    proxy.close()


def test_over_ended_sessions_no_node_of_the_old_is_made_in_the_new(
    place: RealZooKeeper, connect: str
) -> None:
    ending = RealZooKeeper(connect)
    ending.exists("/")
    asked_in: dict[str, int] = {}
    answers: list[object] = []
    for round_number in range(4):
        known = len(ending.sessions)
        ender = Thread(target=close_session, args=(connect.partition("/")[0], ending.sessions[-1]))
        ender.start()
        number = 0
        while len(ending.sessions) == known or number < 50:
            name = f"{round_number}-{number}"
            number += 1
            asked_in[name] = ending.coordination.session_id
            wanted = Create(path=f"/t/{name}", ephemeral=True)
            ending.coordination.write([wanted], answers.append)
            ending.loop.turn(0.005)
        ender.join()
    ending.wait(lambda: len(answers) == len(asked_in))
    ending.wait(lambda: ending.states[-1][0] == "connected")
    troubles = {each.trouble for each in answers if isinstance(each, CoordinationError)}
    assert Trouble.session_expired in troubles
    owners = {name: place.get(f"/t/{name}").stat.ephemeral_owner for name in place.children("/t")}
    assert owners == {name: asked_in[name] for name in owners}
    assert len(ending.sessions) == 5
    ending.release()
