"""A broker that holds its log dir's lock ends the session of the process that had it before
(decision 12), also when no guard was left to do so; and never that of a living broker."""

import json
import logging
import os
import shutil
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kazoo.client import KazooClient

from support.guarded import Holder, end, eventually, observing
from support.zookeepers import new_connect
from tidelog.world.real import past_session
from tidelog.world.real.past_session import FILE, close_previous, forget_session, note_session
from tidelog.world.real.zookeeper_server import split_address

PASSWORD = b"0123456789abcdef"
NOBODY = [("127.0.0.1", 1)]
PATIENCE_S = 60.0
A_MOMENT_S = 15.0
"""On a machine that is busy with other tests; a session would last for 30 s."""


@pytest.fixture
def address() -> str:
    """Of a server that others use too."""
    return new_connect().partition("/")[0]


@pytest.fixture
def observer(address: str) -> Iterator[KazooClient]:
    with observing(address) as client:
        yield client


@pytest.fixture
def holder(address: str, tmp_path: Path) -> Iterator[Holder]:
    """With its session noted in `tmp_path`."""
    with Holder(address) as made:
        made.ask(f"past_session.note_session({str(tmp_path)!r}, *client.client_id)")
        yield made


def servers(address: str) -> list[tuple[str, int]]:
    return [split_address(address)]


def is_held(observer: KazooClient, holder: Holder) -> bool:
    return observer.exists(holder.path) is not None


def die_unguarded(holder: Holder) -> None:
    """As if something had killed both at once."""
    guard = holder.guard_pid
    holder.ask("guard._running.process.send_signal(signal.SIGSTOP)")
    holder.kill()
    end(guard)


def test_the_next_process_ends_the_session_of_the_last(
    holder: Holder, address: str, observer: KazooClient, tmp_path: Path
) -> None:
    die_unguarded(holder)
    time.sleep(0.3)
    assert is_held(observer, holder), "nobody has ended it yet"
    began = time.monotonic()
    assert close_previous(str(tmp_path), servers(address), PATIENCE_S)
    print(f"the past session was closed in {1000 * (time.monotonic() - began):.0f} ms")
    assert not is_held(observer, holder)
    assert not (tmp_path / FILE).exists()


def test_a_past_session_that_the_guard_has_closed_is_no_trouble(
    holder: Holder, address: str, observer: KazooClient, tmp_path: Path
) -> None:
    holder.kill()
    assert eventually(lambda: not is_held(observer, holder))
    assert close_previous(str(tmp_path), servers(address), PATIENCE_S)
    assert not (tmp_path / FILE).exists()


def test_the_session_of_the_next_process_is_not_the_one_that_is_closed(
    holder: Holder, address: str, observer: KazooClient, tmp_path: Path
) -> None:
    with Holder(address) as next_one:
        die_unguarded(holder)
        assert close_previous(str(tmp_path), servers(address), PATIENCE_S)
        next_one.ask(f"past_session.note_session({str(tmp_path)!r}, *client.client_id)")
        assert not is_held(observer, holder)
        assert is_held(observer, next_one)
        die_unguarded(next_one)
        assert close_previous(str(tmp_path), servers(address), PATIENCE_S)
        assert not is_held(observer, next_one)


def test_a_copy_of_a_log_dir_does_not_end_the_session_of_the_original(
    holder: Holder,
    address: str,
    observer: KazooClient,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    copy = shutil.copytree(tmp_path, tmp_path.with_name(f"{tmp_path.name}-copy"))
    with caplog.at_level(logging.WARNING, "tidelog.guard"):
        assert close_previous(str(copy), servers(address), PATIENCE_S)
    assert "written in another folder" in caplog.text
    assert is_held(observer, holder)


def test_a_moved_log_dir_is_still_the_same(
    holder: Holder, address: str, observer: KazooClient, tmp_path: Path
) -> None:
    die_unguarded(holder)
    moved = tmp_path.rename(tmp_path.with_name(f"{tmp_path.name}-moved"))
    assert close_previous(str(moved), servers(address), PATIENCE_S)
    assert not is_held(observer, holder)


def test_without_a_past_session_nobody_is_asked(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as asked:
        assert close_previous(str(tmp_path), [asked.getsockname()])
        asked.setblocking(False)
        with pytest.raises(BlockingIOError):
            asked.accept()


@pytest.mark.parametrize("kind", ["refusing", "silent"])
def test_a_zookeeper_that_is_away_delays_the_start_by_no_more_than_a_moment(
    tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    note_session(str(tmp_path), 77, PASSWORD)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        began = time.monotonic()
        with caplog.at_level(logging.WARNING, "tidelog.guard"):
            asked = NOBODY if kind == "refusing" else [mute.getsockname()]
            assert not close_previous(str(tmp_path), asked, within_s=0.5)
        assert 0.5 <= time.monotonic() - began < A_MOMENT_S
    assert "0x4d" in caplog.text
    assert (tmp_path / FILE).exists(), "the next start may have more luck"


def test_only_the_owner_may_read_the_password(tmp_path: Path) -> None:
    (tmp_path / f"{FILE}.new").touch(mode=0o666)
    note_session(str(tmp_path), 77, PASSWORD)
    assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o600
    assert [one.name for one in tmp_path.iterdir()] == [FILE]


def test_a_stop_in_good_order_leaves_no_past_session(tmp_path: Path) -> None:
    note_session(str(tmp_path), 77, PASSWORD)
    forget_session(str(tmp_path))
    forget_session(str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_does_not_stop_the_broker(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "tidelog.guard"):
        note_session(str(tmp_path / "nowhere"), 77, PASSWORD)
    assert "nowhere" in caplog.text


NOTED = {"version": 1, "session_id": "0x4d", "password": PASSWORD.hex(), "folder_inode": 5}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nonsense",
        "[]",
        "7",
        "null",
        json.dumps({**NOTED, "version": 2}),
        json.dumps({**NOTED, "session_id": "0x1" + 16 * "0"}),
        json.dumps({**NOTED, "session_id": "-0x1"}),
        json.dumps({**NOTED, "session_id": 77}),
        json.dumps({**NOTED, "password": "xyz"}),
        json.dumps({**NOTED, "password": None}),
        json.dumps({**NOTED, "folder_inode": "here"}),
        json.dumps({"version": 1}),
        "\udcff",
    ],
)
def test_a_damaged_file_is_passed_over_with_a_word(
    tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / FILE).write_bytes(text.encode("utf-8", "surrogateescape"))
    with caplog.at_level(logging.WARNING, "tidelog.guard"):
        assert close_previous(str(tmp_path), NOBODY)
    assert FILE in caplog.text


@given(
    session_id=st.integers(min_value=-(1 << 63), max_value=(1 << 63) - 1),
    password=st.binary(min_size=1, max_size=64),
)
def test_what_is_noted_is_what_is_read(
    tmp_path_factory: pytest.TempPathFactory, session_id: int, password: bytes
) -> None:
    folder = str(tmp_path_factory.getbasetemp())
    note_session(folder, session_id, password)
    past = past_session._read(folder)
    assert past is not None
    assert (past.session_id, past.password) == (session_id, password)
    assert past.folder_inode == os.stat(folder).st_ino
