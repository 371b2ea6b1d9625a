"""The simulated network and loop: the same seed gives the same story, and faults strike."""

import errno
from collections.abc import Callable
from functools import partial

import pytest

from support.peers import Peer
from tidelog.base.ports import Connection
from tidelog.world.sim.clock import SimClock
from tidelog.world.sim.disk import SimDisk
from tidelog.world.sim.faults import Crashed
from tidelog.world.sim.loop import SimLoop
from tidelog.world.sim.network import CONNECT_TIMEOUT_MS, SimHost, SimNetwork

RESET = "Connection reset by peer"
PORT = 9092


class Town:
    """Two hosts, and the connection between them."""

    def __init__(self, seed: int = 1) -> None:
        self.loop = SimLoop(seed=seed)
        self.network = SimNetwork(self.loop)
        self.asking_host = self.network.host("a")
        self.answering_host = self.network.host("b")
        self.answering_peers: list[Peer] = []
        self.answering_host.listen("", PORT, self.accept)

    def accept(self, connection: Connection) -> Peer:
        self.answering_peers.append(Peer(connection))
        return self.answering_peers[-1]

    def meet(self) -> tuple[Peer, Peer]:
        before = len(self.answering_peers)
        asking = dial(self.asking_host)
        assert self.loop.run_until(lambda: len(self.answering_peers) > before and len(asking) == 1)
        assert isinstance(asking[0], Peer)
        return asking[0], self.answering_peers[-1]


def dial(host: SimHost, target: str = "b") -> list[Peer | OSError]:
    outcomes: list[Peer | OSError] = []

    def opened(outcome: Connection | OSError) -> Peer | None:
        outcomes.append(outcome if isinstance(outcome, OSError) else Peer(outcome))
        last = outcomes[-1]
        return last if isinstance(last, Peer) else None

    host.connect(target, PORT, opened)
    return outcomes


def heard(asking: Peer, answering: Peer) -> tuple[bytes, bytes]:
    return bytes(asking.heard), bytes(answering.heard)


@pytest.fixture(params=range(5))
def town(request: pytest.FixtureRequest) -> Town:
    return Town(request.param)


def story(seed: int) -> list[tuple[int, int]]:
    """When how much was heard."""
    town = Town(seed)
    asking, answering = town.meet()
    told: list[tuple[int, int]] = []
    answering.on_received = lambda data: told.append((town.loop.clock.monotonic_ms(), len(data)))
    for _ in range(30):
        asking.connection.send(bytes(1_000))
        town.loop.run_for(2)
    town.loop.run_for(1_000)
    assert sum(size for _, size in told) == 30_000
    return told


def test_the_same_seed_tells_the_same_story_and_another_another() -> None:
    assert story(1) == story(1)
    assert len({tuple(story(seed)) for seed in range(5)}) == 5


def test_a_cut_link_holds_everything_and_a_mended_one_delivers_it(town: Town) -> None:
    asking, answering = town.meet()
    town.network.cut("a", "b")
    asking.connection.send(b"question")
    answering.connection.send(b"answer")
    town.loop.run_for(60_000)
    assert heard(asking, answering) == (b"", b"")
    assert (asking.closings, answering.closings) == ([], [])
    town.network.mend()
    town.loop.run_for(100)
    assert heard(asking, answering) == (b"answer", b"question")


def test_a_link_can_be_cut_in_one_direction(town: Town) -> None:
    asking, answering = town.meet()
    town.network.cut("a", "b", one_way=True)
    asking.connection.send(b"question")
    answering.connection.send(b"answer")
    town.loop.run_for(1_000)
    assert heard(asking, answering) == (b"answer", b"")


def test_what_was_on_its_way_when_a_link_was_cut_stays_in_order(town: Town) -> None:
    asking, answering = town.meet()
    expected = b""
    for number in range(60):
        word = b"%d " % number
        asking.connection.send(word)
        expected += word
        town.loop.run_for(1)
        if number % 10 == 5:
            town.network.cut("a", "b")
        elif number % 10 == 9:
            town.network.mend()
    town.loop.run_for(1_000)
    assert answering.heard == expected


def test_connecting_over_a_cut_link_ends_in_time(town: Town) -> None:
    town.network.cut("a", "b", one_way=True)
    outcomes = dial(town.asking_host)
    town.loop.run_for(CONNECT_TIMEOUT_MS - 1)
    assert outcomes == []
    town.loop.run_for(1)
    assert isinstance(outcomes[0], TimeoutError)
    town.network.mend()
    town.loop.run_for(1_000)
    assert len(outcomes) == 1
    assert all(peer.closings for peer in town.answering_peers), "nobody holds the other end"


def test_connecting_where_nothing_is_fails(town: Town) -> None:
    unknown, refused = dial(town.asking_host, "nowhere"), dial(town.asking_host, "a")
    assert unknown == refused == [], "told in a later turn"
    town.loop.run_for(1_000)
    assert isinstance(unknown[0], OSError)
    assert unknown[0].errno == errno.EHOSTUNREACH
    assert isinstance(refused[0], ConnectionRefusedError)


def test_listening_on_another_hosts_address_fails(town: Town) -> None:
    with pytest.raises(OSError, check=lambda error: error.errno == errno.EADDRNOTAVAIL):
        town.asking_host.listen("b", 1, Peer)


def test_a_reset_tells_both_sides_once(town: Town) -> None:
    asking, answering = town.meet()
    asking.connection.send(bytes(100_000))
    town.loop.run_for(1)
    town.answering_host.reset()
    town.loop.run_for(1_000)
    assert (asking.closings, answering.closings) == ([RESET], [RESET])


def test_a_process_that_dies_is_noticed_by_its_peers_and_hears_nothing(town: Town) -> None:
    asking, answering = town.meet()
    town.answering_host.die()
    asking.connection.send(b"are you there?")
    town.loop.run_for(1_000)
    assert len(asking.closings) == 1
    assert answering.closings == []
    assert answering.heard == b""
    refused = dial(town.asking_host)
    town.loop.run_for(1_000)
    assert isinstance(refused[0], ConnectionRefusedError)


def test_a_machine_that_vanishes_leaves_connections_half_open(town: Town) -> None:
    asking, answering = town.meet()
    town.answering_host.vanish()
    asking.connection.send(b"are you there?")
    town.loop.run_for(600_000)
    assert asking.closings == []
    unanswered = dial(town.asking_host)
    town.loop.run_for(CONNECT_TIMEOUT_MS)
    assert isinstance(unanswered[0], TimeoutError)
    assert answering.heard == b""
    assert answering.closings == []


def test_a_machine_that_came_back_answers_old_connections_with_a_reset(town: Town) -> None:
    asking, _ = town.meet()
    town.answering_host.vanish()
    asking.connection.send(b"lost")
    town.loop.run_for(1_000)
    town.network.host("b").listen("", PORT, town.accept)
    town.loop.run_for(1_000)
    assert asking.closings == []
    asking.connection.send(b"who are you?")
    town.loop.run_for(1_000)
    assert asking.closings == [RESET]
    again, answering = town.meet()
    again.connection.send(b"hello")
    town.loop.run_for(1_000)
    assert answering.heard == b"hello"


def test_a_process_that_ended_cannot_use_the_network(town: Town) -> None:
    town.answering_host.die()
    with pytest.raises(AssertionError, match="b is not running"):
        town.answering_host.listen("", 1, Peer)


def test_sends_to_a_peer_that_closed_are_answered_with_a_reset(town: Town) -> None:
    asking, answering = town.meet()
    asking.connection.pause()
    answering.connection.close()
    town.loop.run_for(1_000)
    assert asking.closings == [], "whoever does not read does not see the end"
    asking.connection.send(b"hello?")
    town.loop.run_for(1_000)
    assert asking.closings == [RESET]


def test_pages_are_read_when_they_arrive_and_what_was_cut_is_zeros(town: Town) -> None:
    """D12: what a file's pages hold after a truncation is what the peer gets."""
    asking, answering = town.meet()
    disk = SimDisk(0, town.loop.clock)
    file = disk.open("/file", "create")
    file.pwrite(b"tide", 0)
    town.network.cut("b", "a", one_way=True)
    answering.connection.send_file(file, 0, 4)
    town.loop.run_for(100)
    file.truncate(0)
    file.pwrite(b"ab", 0)
    town.network.mend()
    town.loop.run_for(100)
    assert asking.heard == b"ab\0\0"


def test_a_disk_that_fails_while_it_is_sent_costs_the_connection() -> None:
    town = Town()
    errors: list[Exception] = []
    town.loop.on_error = lambda _, error: errors.append(error)
    asking, answering = town.meet()
    disk = SimDisk(0, town.loop.clock)
    file = disk.open("/file", "create")
    file.pwrite(bytes(100), 0)
    disk.fail(errno.EIO, operations=("pread",))
    answering.connection.send_file(file, 0, 100)
    town.loop.run_for(1_000)
    assert [getattr(error, "errno", None) for error in errors] == [errno.EIO]
    assert asking.heard == b""
    assert (len(asking.closings), len(answering.closings)) == (1, 1)


# The loop on virtual time.


def test_hours_pass_in_a_moment_and_timers_are_late_by_a_millisecond_at_most() -> None:
    loop = SimLoop(SimClock(), seed=3)
    late: list[int] = []
    for hour in range(1, 100):
        due_ms = hour * 3_600_000
        loop.call_at(due_ms, _noting(late, loop, due_ms))
    loop.run()
    assert len(late) == 99
    assert set(late) == {0, 1}


def _noting(late: list[int], loop: SimLoop, due_ms: int) -> Callable[[], None]:
    return lambda: late.append(loop.clock.monotonic_ms() - due_ms)


def test_a_run_ends_when_nothing_is_left_or_it_is_stopped() -> None:
    loop = SimLoop()
    loop.run()
    seen: list[int] = []
    loop.call_at(5, loop.stop)
    loop.call_at(10, lambda: seen.append(1))
    loop.run()
    assert seen == []
    loop.run()
    assert seen == [1]


def test_running_for_a_time_lets_exactly_that_time_pass() -> None:
    loop = SimLoop()
    seen: list[int] = []
    loop.call_at(50, lambda: seen.append(50))
    loop.call_at(200, lambda: seen.append(200))
    loop.run_for(100)
    assert seen == [50]
    assert loop.clock.monotonic_ms() == 100


def test_waiting_for_what_never_happens_ends() -> None:
    loop = SimLoop()
    assert not loop.run_until(lambda: False)
    loop.call_at(20, _fail)
    assert not loop.run_until(lambda: False, 15)


def test_an_error_that_nobody_takes_reaches_whoever_runs_the_loop() -> None:
    loop = SimLoop()
    loop.call_soon(_fail)
    with pytest.raises(ValueError, match="a bug"):
        loop.run()


def test_a_crash_is_not_an_error_for_the_loop_to_take() -> None:
    loop = SimLoop(on_error=lambda _what, _error: None)
    loop.call_soon(_crash)
    with pytest.raises(Crashed):
        loop.run()


def _fail() -> None:
    raise ValueError("a bug")


def _crash() -> None:
    raise Crashed("here")


def test_things_happen_between_a_piece_of_work_its_end_and_its_answer() -> None:
    """So that what changes meanwhile is met by tests, not first by users."""
    gaps = {_order_of_events(seed) for seed in range(40)}
    assert gaps == {"work done other", "work other done", "other work done"}


def _order_of_events(seed: int) -> str:
    loop = SimLoop(seed=seed)
    seen: list[str] = []
    loop.offload("disk", partial(seen.append, "work"), lambda _: seen.append("done"))
    loop.call_at(10, partial(seen.append, "other"))
    loop.run()
    return " ".join(seen)


def test_an_idle_callback_runs_once_when_nothing_is_ready() -> None:
    loop = SimLoop()
    seen: list[str] = []
    loop.when_idle(lambda: seen.append("idle"))
    loop.call_soon(lambda: seen.append("busy"))
    loop.call_at(50, lambda: seen.append("timer"))
    loop.run()
    assert seen == ["busy", "idle", "timer"]


def test_a_closed_loop_does_nothing_more() -> None:
    loop = SimLoop()
    loop.call_soon(_fail)
    loop.call_at(1, _fail)
    loop.post(_fail)
    loop.close()
    loop.run()


def test_residence_is_drawn_and_can_be_set() -> None:
    disk = SimDisk(1)
    file = disk.open("/file", "create")
    assert {file.resident(0, 1) for _ in range(100)} == {True, False}
    disk.cold_share = 0.0
    assert all(file.resident(0, 1) for _ in range(100))
    disk.cold_share = 1.0
    assert not any(file.resident(0, 1) for _ in range(100))
