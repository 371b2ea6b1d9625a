"""What every network does, of this machine or simulated: order, backpressure, files, ends.

The simulated one runs with several seeds: where its reads and sends are split is drawn.
"""

import errno
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.peers import KINDS, LOCAL, Peer, World, worlds
from tidelog.base.ports import Connection, File

LARGE = 3_000_000


@pytest.fixture(params=KINDS)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    yield from worlds(request.param, tmp_path)


def pattern(size: int, seed: int = 0) -> bytes:
    """Bytes in which any two places look different."""
    return array("I", range(seed, seed + size // 4 + 1)).tobytes()[:size]


def file_with(world: World, content: bytes, name: str = "file") -> File:
    file = world.disk.open(f"{world.folder}/{name}", "create")
    file.pwrite(content, 0)
    return file


# Order and content.


def test_both_sides_hear_what_the_other_sends(world: World) -> None:
    asking, answering = world.meet()
    asking.connection.send(b"question")
    world.until(lambda: answering.heard == b"question")
    answering.connection.send(b"answer")
    world.until(lambda: asking.heard == b"answer")


def test_what_is_sent_in_many_parts_arrives_in_order(world: World) -> None:
    asking, answering = world.meet()
    expected = b""
    for turn in range(5):
        for number in range(3_000):
            part = pattern(number % 40, turn * 3_000 + number)
            asking.connection.send(part)
            expected += part
        world.turn()
    world.until(lambda: len(answering.heard) == len(expected))
    assert answering.heard == expected


@pytest.mark.parametrize("wrap", [bytes, bytearray, memoryview])
def test_every_kind_of_buffer_is_sent(world: World, wrap: Callable[[bytes], Any]) -> None:
    asking, answering = world.meet()
    asking.connection.send(wrap(b""))
    asking.connection.send(wrap(b"tide"))
    asking.connection.send(wrap(b"log"))
    world.until(lambda: answering.heard == b"tidelog")


def test_a_buffer_of_wider_items_is_sent_as_its_bytes(world: World) -> None:
    asking, answering = world.meet()
    asking.connection.send(memoryview(b"tidelog!").cast("I"))
    world.until(lambda: answering.heard == b"tidelog!")


def test_a_receiver_with_little_room_gets_everything(world: World) -> None:
    asking, answering = world.meet(room=7)
    content = pattern(20_000)
    asking.connection.send(content)
    world.until(lambda: len(answering.heard) == len(content))
    assert answering.heard == content


def test_large_transfers_pass_both_ways(world: World) -> None:
    asking, answering = world.meet()
    there, back = pattern(LARGE), pattern(LARGE, 7)

    def answer(_data: bytes) -> None:
        if len(answering.heard) == LARGE:
            for start in range(0, LARGE, 300_000):
                answering.connection.send(back[start : start + 300_000])

    answering.on_received = answer
    asking.connection.send(there)
    world.until(lambda: len(asking.heard) == LARGE)
    assert answering.heard == there
    assert asking.heard == back


def test_a_slow_reader_gets_everything_and_in_order(world: World) -> None:
    asking, answering = world.meet()
    content = pattern(LARGE)
    asking.connection.send(content)

    def rest(_data: bytes) -> None:
        answering.connection.pause()
        world.loop.call_at(world.clock.monotonic_ms() + 1, answering.connection.resume)

    answering.on_received = rest
    world.until(lambda: len(answering.heard) == len(content))
    assert answering.heard == content


def test_many_connections_do_not_mix(world: World) -> None:
    peers: dict[bytes, Peer] = {}

    def accept(connection: Connection) -> Peer:
        peer = Peer(connection)
        peer.on_received = connection.send
        return peer

    port = world.listen(accept)
    for number in range(30):
        peer = world.dial(port)
        peers[pattern(2_000, number * 1_000)] = peer
    for content, peer in peers.items():
        peer.connection.send(content)
    world.until(lambda: all(peer.heard == content for content, peer in peers.items()))


def test_peers_are_named_by_host_and_port(world: World) -> None:
    asking, answering = world.meet()
    host, _, port = answering.connection.peer.rpartition(":")
    assert host
    assert 0 < int(port) < 65_536
    assert asking.connection.peer.endswith(f":{world.listeners[0].port}")


# Backpressure.


def test_a_peer_that_reads_no_answers_is_not_asked_for_more(world: World) -> None:
    asking, answering = world.meet()
    asking.connection.pause()
    answer = pattern(1_000_000)
    answering.on_received = lambda _: answering.connection.send(answer)
    for _ in range(200):
        asking.connection.send(b"request")
        world.turn()
    world.pass_ms(100)
    heard, asked = len(answering.heard), answering.asked
    for _ in range(200):
        asking.connection.send(b"request")
        world.turn()
    world.pass_ms(100)
    assert len(answering.heard) == heard < 7 * 400
    assert answering.asked == asked
    asking.connection.resume()
    world.until(lambda: len(answering.heard) == 7 * 400)
    assert answering.asked > asked


def test_an_answer_that_waits_does_not_hold_up_others(world: World) -> None:
    waiting, answering = world.meet()
    waiting.connection.pause()
    answering.connection.send(pattern(LARGE))
    world.turn()
    asking, other = world.meet()
    other.on_received = other.connection.send
    for number in range(100):
        asking.connection.send(b"%03d" % number)
    world.until(lambda: len(asking.heard) == 300)
    assert waiting.heard == b""


def test_nothing_is_read_between_pause_and_resume(world: World) -> None:
    asking, answering = world.meet()
    answering.connection.pause()
    asking.connection.send(b"hello")
    world.pass_ms(30)
    assert answering.heard == b""
    assert answering.asked == 0
    answering.connection.resume()
    world.until(lambda: answering.heard == b"hello")


def test_a_receiver_can_pause_itself_while_it_receives(world: World) -> None:
    asking, answering = world.meet(room=4)
    answering.on_received = lambda _: answering.connection.pause()
    asking.connection.send(b"12345678")
    world.until(lambda: bool(answering.heard))
    heard = bytes(answering.heard)
    world.pass_ms(30)
    assert answering.heard == heard
    assert len(heard) <= 4
    answering.on_received = lambda _: None
    answering.connection.resume()
    world.until(lambda: answering.heard == b"12345678")


def test_pausing_and_resuming_twice_is_as_good_as_once(world: World) -> None:
    asking, answering = world.meet()
    for _ in range(2):
        answering.connection.pause()
    asking.connection.send(b"hello")
    world.pass_ms(10)
    for _ in range(2):
        answering.connection.resume()
    world.until(lambda: answering.heard == b"hello")
    asking.connection.send(b" again")
    world.until(lambda: answering.heard == b"hello again")


def test_a_paused_connection_still_sends(world: World) -> None:
    asking, answering = world.meet()
    answering.connection.pause()
    content = pattern(LARGE)
    answering.connection.send(content)
    world.until(lambda: len(asking.heard) == LARGE)
    assert asking.heard == content
    asking.connection.send(b"unheard")
    world.pass_ms(30)
    assert answering.heard == b""
    answering.connection.resume()
    world.until(lambda: answering.heard == b"unheard")


# Files.


def test_file_ranges_and_bytes_arrive_in_the_order_they_were_queued(world: World) -> None:
    asking, answering = world.meet()
    content = pattern(200_000)
    file = file_with(world, content)
    expected = b""
    for number in range(40):
        head = b"<%d>" % number
        position, size = number * 1_000, number * 500
        answering.connection.send(head)
        answering.connection.send_file(file, position, size)
        expected += head + content[position : position + size]
    answering.connection.send(b"<end>")
    world.until(lambda: len(asking.heard) == len(expected) + 5)
    assert asking.heard == expected + b"<end>"


def test_a_large_file_range_passes_a_slow_reader(world: World) -> None:
    asking, answering = world.meet()
    content = pattern(2 * LARGE)
    answering.connection.send_file(file_with(world, content), 0, len(content))
    answering.connection.send(b"end")
    asking.connection.pause()
    world.pass_ms(20)
    asking.connection.resume()
    world.until(lambda: len(asking.heard) == len(content) + 3)
    assert asking.heard == content + b"end"


def test_a_range_is_sent_though_its_file_was_removed_and_forgotten(world: World) -> None:
    asking, answering = world.meet()
    content = pattern(LARGE)
    file = file_with(world, content)
    answering.connection.send_file(file, 0, LARGE)
    del file
    world.disk.remove(f"{world.folder}/file")
    world.until(lambda: len(asking.heard) == LARGE)
    assert asking.heard == content


def test_pages_are_sent_as_they_are_when_they_leave(world: World) -> None:
    """D12: so whoever cuts a file closes the connections that still have its ranges."""
    asking, answering = world.meet()
    asking.connection.pause()
    file = file_with(world, b"a" * 2 * LARGE)
    answering.connection.send_file(file, 0, 2 * LARGE)
    world.pass_ms(20)
    file.pwrite(b"b" * 1_000, 2 * LARGE - 1_000)
    asking.connection.resume()
    world.until(lambda: len(asking.heard) == 2 * LARGE)
    assert asking.heard.endswith(b"b" * 1_000)


def test_a_file_that_ends_before_its_range_closes_the_connection(world: World) -> None:
    """D12: nothing made up is sent in place of what is not there."""
    asking, answering = world.meet()
    answering.connection.send(b"head")
    answering.connection.send_file(file_with(world, b"tide"), 0, 1_000)
    world.until(lambda: bool(asking.closings and answering.closings))
    assert b"head".startswith(asking.heard[:4])
    assert len(asking.heard) <= 8
    assert "the file ended" in answering.closings[0]
    assert len(world.errors) == 1


# Ends.


def test_both_sides_are_told_once_that_a_connection_closed(world: World) -> None:
    asking, answering = world.meet()
    asking.connection.close()
    asking.connection.close()
    assert asking.closings == [], "not while the caller is still at it"
    world.until(lambda: bool(asking.closings and answering.closings))
    world.pass_ms(20)
    asking.connection.close()
    answering.connection.close()
    world.pass_ms(20)
    assert asking.closings == ["closed by this side"]
    assert answering.closings == ["closed by the peer"]


def test_what_was_queued_before_a_close_arrives(world: World) -> None:
    asking, answering = world.meet()
    file = file_with(world, b"file")
    answering.connection.send(b"head ")
    answering.connection.send_file(file, 0, 4)
    answering.connection.close()
    answering.connection.send(b" too late")
    answering.connection.send_file(file, 0, 4)
    world.until(lambda: bool(asking.closings))
    assert asking.heard == b"head file"


def test_what_was_queued_arrives_though_the_peer_sent_what_nobody_read(world: World) -> None:
    asking, answering = world.meet()
    answering.connection.pause()
    asking.connection.send(pattern(5_000))
    world.pass_ms(30)
    answering.connection.send(b"goodbye")
    answering.connection.close()
    world.until(lambda: bool(asking.closings))
    assert asking.heard == b"goodbye"


def test_a_close_does_not_wait_for_a_peer_that_does_not_read(world: World) -> None:
    asking, answering = world.meet()
    asking.connection.pause()
    answering.connection.send(pattern(5 * LARGE))
    world.pass_ms(20)
    answering.connection.close()
    world.until(lambda: bool(answering.closings))
    asking.connection.resume()
    world.until(lambda: bool(asking.closings))
    assert len(asking.heard) < 5 * LARGE
    assert pattern(5 * LARGE).startswith(asking.heard)


def test_a_receiver_can_close_while_it_receives(world: World) -> None:
    asking, answering = world.meet(room=4)
    answering.on_received = lambda _: answering.connection.close()
    asking.connection.send(b"12345678")
    world.until(lambda: bool(answering.closings and asking.closings))
    assert len(answering.heard) <= 4, "nothing is heard after a close"


def test_nothing_is_heard_after_the_end_was_told(world: World) -> None:
    asking, answering = world.meet()
    answering.connection.close()
    for _ in range(50):
        asking.connection.send(b"are you there?")
        world.turn()
    world.until(lambda: bool(asking.closings and answering.closings))
    asking.connection.send(b"no")
    asking.connection.pause()
    asking.connection.resume()
    world.pass_ms(20)
    assert answering.heard == b""
    assert (len(asking.closings), len(answering.closings)) == (1, 1)


def test_a_close_can_be_answered_by_closing_others(world: World) -> None:
    first, first_end = world.meet()
    second, second_end = world.meet()
    first_end.on_closed = second_end.connection.close
    first.connection.close()
    world.until(lambda: bool(second.closings and second_end.closings))
    assert second_end.closings == ["closed by this side"]


def test_a_receiver_that_fails_loses_its_connection_and_no_other(world: World) -> None:
    asking, answering = world.meet()
    other, other_end = world.meet()

    def fail(_data: bytes) -> None:
        raise ValueError("no such request")

    answering.on_received = fail
    other_end.on_received = other_end.connection.send
    asking.connection.send(b"garbage")
    other.connection.send(b"fine")
    world.until(lambda: bool(asking.closings) and other.heard == b"fine")
    assert answering.closings == ["no such request"]
    assert [str(error) for _, error in world.errors] == ["no such request"]
    assert other_end.closings == []


def test_a_receiver_that_fails_at_the_end_harms_nobody(world: World) -> None:
    asking, answering = world.meet()

    def fail() -> None:
        raise ValueError("cannot mourn")

    answering.on_closed = fail
    asking.connection.close()
    world.until(lambda: bool(answering.closings and asking.closings))
    assert [str(error) for _, error in world.errors] == ["cannot mourn"]
    world.meet()


# Beginnings.


def test_a_refused_connection_is_closed_and_the_next_is_taken(world: World) -> None:
    taken: list[Peer] = []
    refused: list[Connection] = []

    def accept(connection: Connection) -> Peer | None:
        if not refused:
            refused.append(connection)
            return None
        taken.append(Peer(connection))
        return taken[-1]

    port = world.listen(accept)
    first = world.dial(port)
    world.until(lambda: bool(first.closings))
    second = world.dial(port)
    second.connection.send(b"hello")
    world.until(lambda: bool(taken) and taken[0].heard == b"hello")


def test_an_accept_that_fails_refuses(world: World) -> None:
    def accept(_connection: Connection) -> Peer:
        raise ValueError("not today")

    first = world.dial(world.listen(accept))
    world.until(lambda: bool(first.closings))
    assert [str(error) for _, error in world.errors] == ["not today"]


def test_a_connection_can_be_closed_while_it_is_accepted(world: World) -> None:
    taken: list[Peer] = []

    def accept(connection: Connection) -> Peer:
        connection.send(b"full")
        connection.close()
        taken.append(Peer(connection))
        return taken[-1]

    asking = world.dial(world.listen(accept))
    world.until(lambda: bool(asking.closings and taken[0].closings))
    assert asking.heard == b"full"
    assert taken[0].closings == ["closed by this side"]


def test_whoever_opens_a_connection_may_not_want_it(world: World) -> None:
    taken: list[Peer] = []

    def accept(connection: Connection) -> Peer:
        taken.append(Peer(connection))
        return taken[-1]

    world.network.connect(LOCAL, world.listen(accept), lambda _: None)
    world.until(lambda: bool(taken) and bool(taken[0].closings))


def test_connecting_where_nobody_listens_is_told_in_a_later_turn(world: World) -> None:
    outcomes: list[Connection | OSError] = []

    def opened(outcome: Connection | OSError) -> None:
        outcomes.append(outcome)

    port = world.listen(Peer)
    world.listeners[0].close()
    world.listeners[0].close()
    world.network.connect(LOCAL, port, opened)
    assert outcomes == []
    world.until(lambda: bool(outcomes))
    assert isinstance(outcomes[0], OSError)
    assert outcomes[0].errno == errno.ECONNREFUSED
    assert str(port) in str(outcomes[0])


def test_a_port_that_is_taken_is_refused_by_name(world: World) -> None:
    port = world.listen(Peer)
    with pytest.raises(OSError, match=str(port), check=lambda e: e.errno == errno.EADDRINUSE):
        world.listen(Peer, port)


def test_connections_stay_when_a_listener_closes(world: World) -> None:
    asking, answering = world.meet()
    port = world.listeners[0].port
    world.listeners[0].close()
    asking.connection.send(b"still here")
    world.until(lambda: answering.heard == b"still here")
    assert world.listen(Peer, port) == port


# Files in memory.


def test_asking_whether_a_range_is_resident_answers_for_any_range(world: World) -> None:
    file = file_with(world, pattern(100_000))
    answers = [file.resident(position, size) for position in (0, 99_999) for size in (0, 1, 9_999)]
    assert {type(answer) for answer in answers} == {bool}
    assert any(file.resident(0, 100_000) for _ in range(100)), "just written, so in memory"
