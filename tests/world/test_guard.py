"""What the guard must do (decision 12, F1): end the session of a broker that died, at once; and
what it must never do: end that of one that lives, however it looks from outside (F3, F4, X22).
Real processes and a real ZooKeeper; the session timeout is 30 s, so nothing here ends by it."""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest
from kazoo.client import KazooClient

from support.guarded import (
    WITHOUT_PIDFD,
    Holder,
    Link,
    end,
    eventually,
    has_ended,
    observing,
)
from support.ports import free_ports
from support.zookeepers import new_connect, own_ensemble, own_server
from tidelog.world.real.guard import close_session
from tidelog.world.real.zookeeper_server import ask, split_address

AT_ONCE_S = 15.0
"""Of the 30 s that a session would last. Mostly it is a hundredth of this, but the machine may be
busy with other tests."""
A_WHILE_S = 1.0
GUARD_MEMORY_MAX_KB = 15 * 1024


@pytest.fixture
def address() -> str:
    """Of a server that others use too."""
    return new_connect().partition("/")[0]


@pytest.fixture
def observer(address: str) -> Iterator[KazooClient]:
    with observing(address) as client:
        yield client


@pytest.fixture
def holder(address: str) -> Iterator[Holder]:
    with Holder(address) as made:
        yield made


def gone_after_s(observer: KazooClient, holder: Holder) -> float:
    began = time.monotonic()
    assert eventually(lambda: observer.exists(holder.path) is None), "the session lives on"
    return time.monotonic() - began


def stays(observer: KazooClient, holder: Holder, for_s: float = A_WHILE_S) -> bool:
    return not eventually(lambda: observer.exists(holder.path) is None, for_s)


def test_the_session_of_a_killed_process_ends_at_once(address: str, observer: KazooClient) -> None:
    took_s = []
    for _ in range(3):
        with Holder(address) as holder:
            assert holder.is_watched
            guard = holder.guard_pid
            holder.kill()
            took_s.append(gone_after_s(observer, holder))
            assert has_ended(guard), "it has nothing left to do"
    print("kill -9: the node was gone after", *(f"{1000 * one:.0f}" for one in took_s), "ms")
    assert max(took_s) < AT_ONCE_S


def test_it_sees_the_death_where_the_system_has_no_descriptors_of_processes(
    address: str, observer: KazooClient
) -> None:
    with Holder(address, prelude=WITHOUT_PIDFD) as holder:
        assert holder.is_watched
        holder.ask("guard._running.channel.shutdown(1)")
        assert stays(observer, holder, 0.3)
        holder.kill()
        assert gone_after_s(observer, holder) < AT_ONCE_S


def test_a_paused_process_keeps_its_session(holder: Holder, observer: KazooClient) -> None:
    os.kill(holder.process.pid, signal.SIGSTOP)
    assert stays(observer, holder, 2 * A_WHILE_S)
    os.kill(holder.process.pid, signal.SIGCONT)
    assert holder.ask("client.exists(path) is not None")
    assert has_not_ended(holder.guard_pid)


def test_a_paused_process_that_is_killed_has_died(holder: Holder, observer: KazooClient) -> None:
    os.kill(holder.process.pid, signal.SIGSTOP)
    assert stays(observer, holder, 0.2)
    holder.kill()
    assert gone_after_s(observer, holder) < AT_ONCE_S


def test_a_process_too_busy_to_do_anything_keeps_its_session(
    holder: Holder, observer: KazooClient
) -> None:
    assert holder.ask("sum(range(30_000_000))") > 0
    assert stays(observer, holder, 0.2)


def test_a_killed_guard_takes_nothing_with_it_and_is_replaced(
    holder: Holder, observer: KazooClient
) -> None:
    first = holder.guard_pid
    end(first)
    assert eventually(lambda: holder.ask("guard.process_id") not in (None, first))
    assert stays(observer, holder)
    assert holder.guard_pid != first
    time.sleep(0.2)
    holder.kill()
    assert gone_after_s(observer, holder) < AT_ONCE_S


def test_without_a_guard_the_session_is_left_to_its_timeout(
    holder: Holder, observer: KazooClient
) -> None:
    guard = holder.guard_pid
    os.kill(holder.process.pid, signal.SIGSTOP)
    end(guard)
    holder.kill()
    assert stays(observer, holder)


def test_a_process_that_lost_its_connection_keeps_its_session(
    address: str, observer: KazooClient
) -> None:
    link = Link(split_address(address))
    with Holder(f"127.0.0.1:{link.port}", guarded_at=address) as holder:
        session = holder.ask("client.client_id[0]")
        link.cut()
        assert eventually(lambda: not holder.ask("client.connected"))
        assert stays(observer, holder, 2 * A_WHILE_S)
        link.mend()
        assert eventually(lambda: holder.ask("client.connected"))
        assert holder.ask("client.client_id[0]") == session
        link.cut()
        holder.kill()
        assert gone_after_s(observer, holder) < AT_ONCE_S
    link.close()


def test_a_closed_channel_is_no_proof_of_death(holder: Holder, observer: KazooClient) -> None:
    guard = holder.guard_pid
    holder.ask("guard._running.channel.shutdown(1)")
    assert stays(observer, holder)
    assert has_not_ended(guard)
    holder.kill()
    assert gone_after_s(observer, holder) < AT_ONCE_S


def has_not_ended(pid: int) -> bool:
    return not has_ended(pid, 0.1)


def test_only_the_last_session_is_closed(holder: Holder, observer: KazooClient) -> None:
    later = f"{holder.path}-later"
    assert holder.ask(f"[later := hold({later!r})][0][1]")
    holder.kill()
    assert eventually(lambda: observer.exists(later) is None, AT_ONCE_S)
    assert stays(observer, holder), "it was told to forget this one"


def test_a_session_that_a_living_process_closed_itself_is_left_alone(
    holder: Holder, observer: KazooClient
) -> None:
    holder.ask("client.stop()")
    observer.create(holder.path, ephemeral=True)
    guard = holder.guard_pid
    holder.kill()
    assert has_ended(guard)
    assert stays(observer, holder, 0.2), "the node is another's now"


def test_children_that_outlive_the_process_do_not_hide_its_death(
    holder: Holder, observer: KazooClient
) -> None:
    assert holder.ask("guard._running.channel.get_inheritable()") is False
    children: list[int] = [
        holder.ask("subprocess.Popen(['sleep', '60'], close_fds=False).pid"),
        holder.ask("os.fork() or os.execvp('sleep', ['sleep', '60'])"),
        holder.ask("os.fork() or [time.sleep(60), os._exit(0)]"),
    ]
    holder.kill()
    try:
        assert gone_after_s(observer, holder) < AT_ONCE_S
        assert not any(has_ended(child, 0) for child in children)
    finally:
        for child in children:
            end(child)


def test_a_killed_process_group_does_not_take_the_guard_with_it(
    holder: Holder, observer: KazooClient
) -> None:
    guard = holder.guard_pid
    assert os.getsid(guard) == guard != os.getsid(holder.process.pid)
    os.killpg(holder.process.pid, signal.SIGKILL)
    assert gone_after_s(observer, holder) < AT_ONCE_S


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_the_guard_is_not_stopped_before_its_broker(holder: Holder, number: signal.Signals) -> None:
    guard = holder.guard_pid
    os.kill(guard, number)
    assert has_not_ended(guard)


def test_after_a_stop_in_good_order_nothing_is_closed(
    holder: Holder, observer: KazooClient
) -> None:
    guard = holder.guard_pid
    began, _, ended = holder.ask("[time.monotonic(), guard.close(), time.monotonic()]")
    assert ended - began < AT_ONCE_S, "it ends by itself"
    assert has_ended(guard, 0)
    holder.kill()
    assert stays(observer, holder), "closing the session was the broker's to do"


def test_a_guard_that_hangs_holds_nobody_up(holder: Holder, observer: KazooClient) -> None:
    guard = holder.guard_pid
    os.kill(guard, signal.SIGSTOP)
    is_watched, took_s = holder.ask("watch_in_time((*client.client_id, int(timeout_ms)))")
    assert not is_watched
    assert took_s < AT_ONCE_S
    os.kill(guard, signal.SIGCONT)
    assert holder.guard_pid == guard
    holder.kill()
    assert gone_after_s(observer, holder) < AT_ONCE_S


def test_an_answer_that_nobody_read_does_not_stop_the_guard(
    holder: Holder, observer: KazooClient
) -> None:
    guard = holder.guard_pid
    os.kill(guard, signal.SIGSTOP)
    assert not holder.ask("guard.watch(*client.client_id, int(timeout_ms))")
    os.kill(holder.process.pid, signal.SIGSTOP)
    os.kill(guard, signal.SIGCONT)
    assert stays(observer, holder, 0.3)
    holder.kill()
    assert gone_after_s(observer, holder) < AT_ONCE_S


def test_a_guard_that_hangs_is_ended_with_its_broker(holder: Holder) -> None:
    guard = holder.guard_pid
    os.kill(guard, signal.SIGSTOP)
    holder.ask("guard.close()")
    assert has_ended(guard, 0)


def test_a_session_told_while_the_guard_is_dead_reaches_the_next_one(
    holder: Holder, observer: KazooClient
) -> None:
    holder.ask("os.kill(guard.process_id, signal.SIGKILL)")
    _, took_s = holder.ask("watch_in_time((*client.client_id, int(timeout_ms)))")
    assert took_s < AT_ONCE_S
    assert holder.guard_pid
    holder.kill()
    assert gone_after_s(observer, holder) < AT_ONCE_S


def test_the_guard_is_small(holder: Holder) -> None:
    status = Path(f"/proc/{holder.guard_pid}/status").read_text()
    (memory,) = [line.split()[1] for line in status.splitlines() if line.startswith("VmRSS")]
    print(f"the guard has {memory} KB")
    assert int(memory) < GUARD_MEMORY_MAX_KB


def test_the_guard_holds_nothing_of_its_broker_but_the_channel(holder: Holder) -> None:
    guard = Path(f"/proc/{holder.guard_pid}")
    held = sorted(os.readlink(one).split(":")[0] for one in (guard / "fd").iterdir())
    assert held == ["/dev/null", "/dev/null", "anon_inode", "socket"]
    assert os.readlink(guard / "cwd") == "/"


def test_a_zookeeper_that_is_away_when_the_process_dies_is_waited_for(
    tmp_path: Path,
) -> None:
    with own_server(tmp_path) as server, Holder(server.address) as holder:
        assert holder.is_watched
        server.kill()
        holder.kill()
        assert holder.process.stdout is not None
        assert holder.process.stdout.read() == "", "who waits for its output waits for no guard"
        time.sleep(A_WHILE_S)
        server.start()
        server.wait_until_serving(60)
        with observing(server.address) as observer:
            took_s = gone_after_s(observer, holder)
    print(f"ZooKeeper away: the node was gone {1000 * took_s:.0f} ms after its return")
    assert took_s < AT_ONCE_S


def test_a_server_that_is_silent_while_it_starts_is_asked_again_soon(
    holder: Holder, observer: KazooClient, address: str
) -> None:
    (port,) = free_ports(1)
    session_id, password = holder.ask("[client.client_id[0], client.client_id[1].hex()]")
    asked = ([("127.0.0.1", port)], session_id, bytes.fromhex(password), 60)
    asking = Thread(target=close_session, args=asked)
    asking.start()
    time.sleep(A_WHILE_S)
    link = Link(split_address(address), port, silent=1)
    took_s = gone_after_s(observer, holder)
    asking.join()
    link.close()
    assert took_s < AT_ONCE_S


def test_any_member_of_an_ensemble_will_do(tmp_path: Path) -> None:
    with own_ensemble(tmp_path) as members:
        members.sort(key=lambda member: "leader" in ask(member.address, "srvr"))
        first, second, leader = (member.address for member in members)
        with observing(leader) as observer:
            with Holder(first, guarded_at=second) as holder:
                holder.kill()
                elsewhere_s = gone_after_s(observer, holder)
            with Holder(first, guarded_at=f"{first},{second},{leader}") as holder:
                members[0].send_signal(signal.SIGSTOP)
                holder.kill()
                paused_s = gone_after_s(observer, holder)
    print(f"another member: the node was gone after {1000 * elsewhere_s:.0f} ms", end=", ")
    print(f"its own paused: after {1000 * paused_s:.0f} ms")
    assert elsewhere_s < AT_ONCE_S
    assert paused_s < AT_ONCE_S


def test_a_server_that_does_not_answer_costs_a_moment_only(
    address: str, observer: KazooClient
) -> None:
    nobody = f"127.0.0.1:{free_ports(1)[0]}"
    with socket.create_server(("127.0.0.1", 0)) as mute:
        silent = f"127.0.0.1:{mute.getsockname()[1]}"
        servers = f"{silent},{nobody},{address}"
        with Holder(address, guarded_at=servers) as holder:
            holder.kill()
            took_s = gone_after_s(observer, holder)
    print(f"the third server of three: the node was gone after {1000 * took_s:.0f} ms")
    assert took_s < AT_ONCE_S


def test_a_guard_gives_up_when_the_session_has_ended_by_itself() -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        began = time.monotonic()
        assert not close_session([mute.getsockname()], 1, b"x" * 16, within_s=0.5)
        assert 0.5 <= time.monotonic() - began < AT_ONCE_S


def test_a_session_whose_password_is_wrong_is_left_alone(
    holder: Holder, address: str, observer: KazooClient
) -> None:
    session = holder.ask("client.client_id[0]")
    server = split_address(address)
    assert close_session([server], session, b"x" * 16, within_s=60)
    assert stays(observer, holder, 0.5)


def test_a_server_that_answers_nonsense_is_passed_over(
    holder: Holder, address: str, observer: KazooClient
) -> None:
    nonsense = subprocess.Popen(
        ["python3", "-c", NONSENSE], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL
    )
    assert nonsense.stdout is not None
    ports = nonsense.stdout.readline().split()
    session = holder.ask("[client.client_id[0], client.client_id[1].hex()]")
    servers = [("127.0.0.1", int(port)) for port in ports] + [split_address(address)]
    try:
        assert close_session(servers, session[0], bytes.fromhex(session[1]), within_s=60)
    finally:
        nonsense.kill()
        nonsense.wait()
        nonsense.stdout.close()
    assert gone_after_s(observer, holder) < AT_ONCE_S


NONSENSE = """
import socket, threading
def serve(listener, answer):
    while True:
        connection, _ = listener.accept()
        connection.recv(100)
        connection.sendall(answer)
        connection.close()
listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(4)]
answers = [b"HTTP/1.1 400 Bad Request", b"", bytes(4), bytes([0, 0, 0, 6]) + bytes(6)]
for pair in zip(listeners, answers):
    threading.Thread(target=serve, args=pair).start()
print(*(one.getsockname()[1] for one in listeners), flush=True)
"""
