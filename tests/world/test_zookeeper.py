"""A session at a real ZooKeeper: lost connections, expiry, watches over both, and its end.

X22: suspended is not expired; after an expiry all watches are gone and a new session begins.
"""

import signal
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from support.coordinated import RealZooKeeper, Seen
from support.ports import free_ports
from support.zookeepers import (
    Proxy,
    close_session,
    new_connect,
    own_server,
    require_zookeeper,
)
from tidelog.base.coordination import (
    CoordinationError,
    Create,
    Delete,
    Node,
    SessionState,
    SetData,
    Trouble,
)
from tidelog.base.errors import BadValue
from tidelog.cluster.writing import insist
from tidelog.world.real.loop import EpollLoop
from tidelog.world.real.zookeeper import ZooKeeper
from tidelog.world.real.zookeeper_server import Place, ZooKeeperServer

TRIES_MAX = 15
A_MOMENT_S = 15.0
"""On a machine that is busy with other tests; who waits for a server waits for ever."""


@pytest.fixture
def connect() -> str:
    return new_connect()


@pytest.fixture
def beside(connect: str) -> Iterator[RealZooKeeper]:
    """Another session, which nothing happens to."""
    made = RealZooKeeper(connect)
    made.write(Create(path="/t"))
    yield made
    made.release()


@pytest.fixture
def proxy(connect: str) -> Iterator[Proxy]:
    made = Proxy(connect.partition("/")[0])
    yield made
    made.close()


@pytest.fixture
def place(connect: str, proxy: Proxy, beside: RealZooKeeper) -> Iterator[RealZooKeeper]:
    made = RealZooKeeper(f"{proxy.address}/{connect.partition('/')[2]}")
    assert made.get("/t").data == beside.get("/t").data
    yield made
    proxy.open()
    made.release()


def names(place: RealZooKeeper) -> list[str]:
    return [state for state, _ in place.states]


# Lost connections.


def test_a_session_survives_its_connection(place: RealZooKeeper, proxy: Proxy) -> None:
    place.write(Create(path="/t/e", ephemeral=True))
    session_id = place.coordination.session_id
    proxy.cut()
    place.wait(lambda: len(place.states) == 2)
    assert place.states == [("suspended", session_id), ("connected", session_id)]
    assert place.get("/t/e").stat.ephemeral_owner == session_id
    assert len(place.sessions) == 1


def test_the_first_connection_is_not_announced(place: RealZooKeeper) -> None:
    place.get("/t")
    assert place.states == []


def test_what_is_under_way_when_a_connection_is_lost_is_answered(
    place: RealZooKeeper, proxy: Proxy
) -> None:
    answers: list[object] = []
    for _ in range(200):
        place.coordination.write([Create(path="/t/n-", sequence=True)], answers.append)
    proxy.cut()
    place.wait(lambda: len(answers) == 200)
    place.wait(lambda: names(place)[-1:] == ["connected"])
    lost = [each.trouble for each in answers if isinstance(each, CoordinationError)]
    assert set(lost) <= {Trouble.connection_loss}
    made = [each[0] for each in answers if isinstance(each, list)]
    assert set(made) <= {f"/t/{name}" for name in place.children("/t")}


def test_what_is_asked_while_suspended_waits(place: RealZooKeeper, proxy: Proxy) -> None:
    proxy.cut(shut=True)
    place.wait(lambda: names(place) == ["suspended"])
    answers: list[object] = []
    place.coordination.write([Create(path="/t/later")], answers.append)
    for _ in range(3):
        place.loop.turn(0.1)
    assert answers == []
    proxy.open()
    place.wait(lambda: bool(answers))
    assert answers == [["/t/later"]]
    assert names(place) == ["suspended", "connected"]


def test_watches_that_fire_meanwhile_are_told_before_any_answer(
    place: RealZooKeeper, beside: RealZooKeeper, proxy: Proxy
) -> None:
    for name in ("changed", "deleted", "parent", "orphan", "quiet"):
        beside.write(Create(path=f"/t/{name}"))
    seen = Seen()
    for name in ("changed", "deleted", "quiet"):
        place.get(f"/t/{name}", seen.watch)
    assert place.exists("/t/created", seen.watch) is None
    assert place.exists("/t/missing", seen.watch) is None
    for name in ("parent", "orphan"):
        place.children(f"/t/{name}", seen.watch)
    proxy.cut(shut=True)
    place.wait(lambda: names(place) == ["suspended"])
    beside.write(SetData(path="/t/changed", data=b"1"), Delete(path="/t/deleted"))
    beside.write(Create(path="/t/created"), Create(path="/t/parent/a"), Delete(path="/t/orphan"))
    place.coordination.get("/t/changed", seen.note("read"))
    proxy.open()
    place.wait(lambda: "read" in seen.events)
    *told, last = seen.events
    assert last == "read"
    assert sorted(told) == [
        ("changed", "/t/changed"),
        ("children", "/t/parent"),
        ("created", "/t/created"),
        ("deleted", "/t/deleted"),
        ("deleted", "/t/orphan"),
    ]
    beside.write(SetData(path="/t/quiet", data=b"1"), Create(path="/t/missing"))
    place.wait(lambda: len(seen.events) == 8)
    assert seen.events[-2:] == [("changed", "/t/quiet"), ("created", "/t/missing")], "still there"


def test_thousands_of_watches_are_left_again(
    place: RealZooKeeper, beside: RealZooKeeper, proxy: Proxy
) -> None:
    paths = [f"/t/{'a-topic-with-a-long-name':s}-{number:04d}" for number in range(4_000)]
    for start in range(0, len(paths), 1_000):
        beside.write(*(Create(path=path) for path in paths[start : start + 1_000]))
    seen = Seen()
    answers: list[object] = []
    for path in paths:
        place.coordination.get(path, answers.append, seen.watch)
    place.wait(lambda: len(answers) == len(paths))
    proxy.cut()
    place.wait(lambda: names(place) == ["suspended", "connected"])
    for start in range(0, len(paths), 1_000):
        beside.write(*(SetData(path=path, data=b"1") for path in paths[start : start + 1_000]))
    place.wait(lambda: len(seen.events) >= len(paths))
    assert sorted(seen.events) == [("changed", path) for path in paths]


def test_a_silent_server_is_noticed_and_does_not_hold_the_loop(tmp_path: Path) -> None:
    """The server is stopped, not its connection: no ping is answered."""
    with own_server(tmp_path) as server:
        place = RealZooKeeper(server.address, session_timeout_ms=1_500)
        place.write(Create(path="/a"))
        server.send_signal(signal.SIGSTOP)
        place.wait(lambda: names(place) == ["suspended"])
        server.send_signal(signal.SIGCONT)
        place.wait(lambda: names(place)[-1] == "connected")
        assert place.get("/a").data == b""
        place.release()


def test_a_session_survives_the_restart_of_its_server(tmp_path: Path) -> None:
    with own_server(tmp_path) as server:
        place = RealZooKeeper(server.address, session_timeout_ms=60_000)
        place.write(Create(path="/e", ephemeral=True), Create(path="/a"))
        seen = Seen()
        place.get("/a", seen.watch)
        server.kill()
        place.wait(lambda: names(place) == ["suspended"])
        server.start()
        assert place.get("/e").stat.ephemeral_owner == place.coordination.session_id
        assert names(place) == ["suspended", "connected"]
        place.write(SetData(path="/a", data=b"1"))
        assert seen.events == [("changed", "/a")]
        place.release()


def test_short_sessions_do_not_lose_their_connection(connect: str) -> None:
    """A ping that is not answered within moments is not lost yet. On a machine that is too busy to
    send one in time the connection is lost all the same, but not again and again."""
    address, _, chroot = connect.partition("/")
    slow = Proxy(address, delay_seconds=0.06)
    tries = (states_of_a_short_session(f"{slow.address}/{chroot}") for _ in range(TRIES_MAX))
    assert any(states == [] for states in tries)
    slow.close()


def states_of_a_short_session(connect: str) -> list[tuple[str, int]]:
    """Those that were told in three seconds."""
    place = RealZooKeeper(connect, session_timeout_ms=500)
    (path,) = place.write(Create(path="/e-", ephemeral=True, sequence=True))
    until = time.monotonic() + 3.0
    while time.monotonic() < until:
        place.loop.turn(0.1)
    states = list(place.states)
    if not states:
        assert place.get(str(path)).stat.ephemeral_owner == place.coordination.session_id
    place.release()
    return states


def test_what_was_meant_for_a_lost_connection_is_not_sent_in_the_next(
    place: RealZooKeeper, beside: RealZooKeeper, proxy: Proxy
) -> None:
    """The loop is busy elsewhere, and asks before it has heard of the loss."""
    proxy.cut(shut=True)
    time.sleep(0.3)
    answers: list[object] = []
    place.coordination.write([Create(path="/t/too-late")], answers.append)
    place.coordination._link.wake()
    proxy.open()
    time.sleep(1.5)
    assert beside.children("/t") == []
    place.wait(lambda: bool(answers))
    assert [getattr(each, "trouble", each) for each in answers] == [Trouble.connection_loss]
    assert place.children("/t") == []
    assert names(place) == ["suspended", "connected"]


# Expiry.


def test_a_new_session_begins_after_an_expiry(place: RealZooKeeper, connect: str) -> None:
    seen = Seen()
    place.write(Create(path="/t/e", ephemeral=True))
    place.get("/t", seen.watch)
    first = place.coordination.session_id
    close_session(connect.partition("/")[0], place.sessions[0])
    place.wait(lambda: names(place)[-1:] == ["connected"])
    second = place.coordination.session_id
    assert second != first
    assert place.states[-2:] == [("expired", first), ("connected", second)]
    assert [session_id for session_id, _ in place.sessions] == [first, second]
    assert place.exists("/t/e") is None
    place.write(SetData(path="/t", data=b"1"), Create(path="/t/e", ephemeral=True))
    assert seen.events == [], "watches of the old session are gone"
    assert place.get("/t/e").stat.ephemeral_owner == second


def test_what_waits_when_the_session_expires_is_never_done(
    place: RealZooKeeper, beside: RealZooKeeper, proxy: Proxy, connect: str
) -> None:
    proxy.cut(shut=True)
    place.wait(lambda: names(place) == ["suspended"])
    answers: list[object] = []
    place.coordination.write([Create(path="/t/of-the-old", ephemeral=True)], answers.append)
    close_session(connect.partition("/")[0], place.sessions[0])
    proxy.open()
    place.wait(lambda: names(place) == ["suspended", "expired", "connected"])
    assert [getattr(each, "trouble", each) for each in answers] == [Trouble.session_expired]
    assert beside.children("/t") == []


def test_listeners_know_of_an_expiry_before_what_was_asked_is_answered(
    place: RealZooKeeper, proxy: Proxy, connect: str
) -> None:
    seen = Seen()
    place.coordination.on_session(lambda state: seen.events.append(state))
    proxy.cut(shut=True)
    place.wait(lambda: bool(seen.events))
    place.coordination.get("/t", seen.note("answered"))
    close_session(connect.partition("/")[0], place.sessions[0])
    proxy.open()
    place.wait(lambda: SessionState.connected in seen.events)
    assert seen.events == [
        SessionState.suspended,
        SessionState.expired,
        "answered",
        SessionState.connected,
    ]


# A new session is known before it is used.


def test_nothing_is_sent_in_a_session_before_it_is_known(connect: str) -> None:
    returned_ms: list[float] = []

    def make_known(_session_id: int, password: bytes) -> None:
        assert len(password) == 16
        time.sleep(0.3)
        returned_ms.append(time.time() * 1_000)

    loop = EpollLoop()
    coordination = ZooKeeper(connect, 8_000, loop.post, make_known)
    answers: list[object] = []
    coordination.write([Create(path="/e", ephemeral=True)], lambda _: None)
    coordination.get("/e", answers.append)
    while not answers:
        loop.turn(0.1)
    (node,) = answers
    assert isinstance(node, Node)
    assert node.stat.created_ms >= int(returned_ms[0])
    coordination.close()
    loop.close()


def test_a_session_that_cannot_be_made_known_is_not_used(connect: str) -> None:
    tried: list[int] = []

    def refuse_twice(session_id: int, _password: bytes) -> None:
        tried.append(session_id)
        if len(tried) < 3:
            raise OSError("the guard does not answer")

    loop = EpollLoop()
    coordination = ZooKeeper(connect, 8_000, loop.post, refuse_twice)
    answers: list[object] = []
    coordination.exists("/", answers.append)
    while not answers:
        loop.turn(0.1)
    assert len(tried) == 3
    assert coordination.session_id == tried[-1]
    coordination.close()
    loop.close()


# Beginning and end.


def test_what_is_asked_before_there_is_a_server_waits_for_it(tmp_path: Path) -> None:
    require_zookeeper()
    server = ZooKeeperServer(Place(folder=tmp_path, port=free_ports(1)[0]))
    place = RealZooKeeper(f"{server.address}/below")
    answers: list[object] = []
    place.coordination.write([Create(path="/a")], answers.append)
    place.loop.turn(0.1)
    assert place.coordination.session_id == 0
    try:
        server.start()
        place.wait(lambda: bool(answers))
        assert answers == [["/a"]]
        place.release()
    finally:
        server.kill()


def test_closing_without_a_connection_does_not_wait_for_one() -> None:
    place = RealZooKeeper(f"127.0.0.1:{free_ports(1)[0]}")
    answers: list[object] = []
    place.coordination.get("/", answers.append)
    began = time.monotonic()
    place.release()
    assert time.monotonic() - began < A_MOMENT_S
    assert [getattr(each, "trouble", each) for each in answers] == [Trouble.connection_loss]


def test_when_a_close_is_over_the_ephemeral_nodes_are_gone(
    connect: str, beside: RealZooKeeper
) -> None:
    place = RealZooKeeper(connect)
    place.write(Create(path="/t/e", ephemeral=True))
    seen = Seen()
    beside.get("/t/e", seen.watch)
    place.release()
    assert beside.exists("/t/e") is None
    assert seen.events == [("deleted", "/t/e")]


def test_a_callback_that_fails_takes_no_answer_with_it(connect: str) -> None:
    errors: list[Exception] = []
    loop = EpollLoop(lambda _what, error: errors.append(error))
    coordination = ZooKeeper(connect, 8_000, loop.post)

    def fail(_answer: object) -> None:
        raise ValueError("a bug")

    answers: list[object] = []
    for _ in range(5):
        coordination.exists("/", fail)
        coordination.get("t", fail)
        coordination.exists("/a", answers.append)
    while len(answers) < 5:
        loop.turn(0.1)
    assert len(errors) == 10
    coordination.close()
    loop.close()


# The chroot.


def test_a_chroot_is_made_and_nothing_outside_it_is_seen(connect: str) -> None:
    place, all_of_it = RealZooKeeper(f"{connect}/deep/er"), RealZooKeeper(connect)
    seen = Seen()
    (made,) = place.write(Create(path="/n-", sequence=True))
    assert isinstance(made, str)
    assert made.startswith("/n-")
    assert all_of_it.children("/deep/er") == [made[1:]]
    place.get(made, seen.watch)
    place.children("/", seen.watch)
    all_of_it.write(Delete(path=f"/deep/er{made}"))
    place.wait(lambda: len(seen.events) == 2)
    assert seen.events == [("deleted", made), ("children", "/")]
    for each in (place, all_of_it):
        each.release()


def test_a_chroot_is_made_also_if_its_first_connection_is_lost(connect: str, proxy: Proxy) -> None:
    """X22: the session lives on, in another connection."""
    known: list[int] = []

    def lose_it(session_id: int, _password: bytes) -> None:
        known.append(session_id)
        proxy.cut()

    loop = EpollLoop()
    chroot = f"{connect.partition('/')[2]}/deep/er"
    coordination = ZooKeeper(f"{proxy.address}/{chroot}", 30_000, loop.post, lose_it)
    answers: list[object] = []
    insist(partial(coordination.write, [Create(path="/n")]), answers.append)
    while not answers:
        loop.turn(0.1)
    assert answers == [["/n"]]
    assert known == [coordination.session_id]
    coordination.close()
    loop.close()


@pytest.mark.parametrize("chroot", ["//", "/a/", "/a//b", "/../a"])
def test_a_chroot_that_cannot_be_is_refused(chroot: str) -> None:
    with pytest.raises(BadValue, match=r"zookeeper\.connect"):
        ZooKeeper(f"127.0.0.1:1{chroot}", 8_000, lambda _: None)


# Sizes.


def test_a_write_that_zookeeper_would_not_take_is_refused_and_costs_no_connection(
    place: RealZooKeeper,
) -> None:
    place.write(Create(path="/t/large", data=b"x" * 1_000_000))
    assert len(place.get("/t/large").data) == 1_000_000
    with pytest.raises(CoordinationError) as caught:
        place.write(Create(path="/t/ok"), Create(path="/t/larger", data=b"x" * 1_048_576))
    assert (caught.value.trouble, caught.value.path) == (Trouble.bad_arguments, "/t/larger")
    assert place.children("/t") == ["large"]
    assert place.states == []
