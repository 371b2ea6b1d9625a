"""How a broker leaves ZooKeeper: what it cannot end itself is left to its guard and its successor
(decision 12)."""

from contextlib import closing
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from support.guarded import eventually, observing
from support.zookeepers import Proxy, new_connect
from tidelog.base.coordination import Create, SessionState
from tidelog.base.settings import Settings
from tidelog.world.real.ensemble import Ensemble
from tidelog.world.real.loop import EpollLoop
from tidelog.world.real.past_session import FILE, close_previous, note_session
from tidelog.world.real.zookeeper_server import split_address

HELD = "/held-by-one-that-stops"
NOWHERE = "127.0.0.1:1"


class Leaving:
    """What a broker's process has of ZooKeeper, in this process."""

    def __init__(self, connect: str, folder: Path) -> None:
        self.loop = EpollLoop()
        self.folder = str(folder)
        settings = Settings.of({"zookeeper.connect": connect, "log.dirs": self.folder})
        self.ensemble = Ensemble(settings, self.loop.post)
        self.states: list[SessionState] = []
        self.ensemble.coordination.on_session(self.states.append)

    def hold(self) -> None:
        made: list[object] = []
        create = Create(path=HELD, ephemeral=True)
        self.ensemble.coordination.write([create], made.append)
        self.turn_until(made)

    def leave(self) -> None:
        left: list[bool] = []
        self.ensemble.coordination.close()
        self.ensemble.leave(lambda: left.append(True))
        self.turn_until(left)

    def assert_left_to_others(self, observer: KazooClient, address: str) -> None:
        """The guard has the session, and so has the next process in the folder."""
        assert self.has_guard
        assert observer.exists(HELD) is not None
        assert close_previous(self.folder, [split_address(address)])
        assert eventually(lambda: observer.exists(HELD) is None)

    def turn_until(self, something: list[object] | list[SessionState] | list[bool]) -> None:
        while not something:
            self.loop.turn(0.5)

    @property
    def has_guard(self) -> bool:
        return self.ensemble.guard.process_id is not None

    def close(self) -> None:
        self.ensemble.guard.close()
        self.loop.close()


@pytest.fixture
def address() -> str:
    return new_connect().partition("/")[0]


def test_a_stop_in_good_order_leaves_nothing_to_close(address: str, tmp_path: Path) -> None:
    with closing(Leaving(address, tmp_path)) as leaving, observing(address) as observer:
        leaving.hold()
        leaving.leave()
        assert observer.exists(HELD) is None
        assert not leaving.has_guard
        assert not (tmp_path / FILE).exists()


def test_a_stop_without_zookeeper_leaves_the_session_to_the_guard_and_the_next_process(
    address: str, tmp_path: Path
) -> None:
    """F14: otherwise all that it led stands still when ZooKeeper is back, and so does its next
    start, until the session ends by its timeout."""
    with (
        closing(Proxy(address)) as proxy,
        closing(Leaving(proxy.address, tmp_path)) as leaving,
        observing(address) as observer,
    ):
        leaving.hold()
        proxy.cut(shut=True)
        leaving.turn_until(leaving.states)
        assert leaving.states == [SessionState.suspended]
        leaving.leave()
        leaving.assert_left_to_others(observer, address)


def test_a_session_whose_close_was_lost_on_its_way_is_left_to_the_guard_too(
    address: str, tmp_path: Path
) -> None:
    """F14: ZooKeeper stops in the moment in which the broker does."""
    with (
        closing(Proxy(address, delay_seconds=0.5)) as proxy,
        closing(Leaving(proxy.address, tmp_path)) as leaving,
        observing(address) as observer,
    ):
        leaving.hold()
        leaving.loop.call_later(100, lambda: proxy.cut(shut=True))
        leaving.leave()
        leaving.assert_left_to_others(observer, address)


def test_who_has_never_seen_zookeeper_leaves_the_session_before_to_the_next_process(
    tmp_path: Path,
) -> None:
    note_session(str(tmp_path), 77, b"0123456789abcdef")
    with closing(Leaving(NOWHERE, tmp_path)) as leaving:
        leaving.leave()
    assert (tmp_path / FILE).exists()
