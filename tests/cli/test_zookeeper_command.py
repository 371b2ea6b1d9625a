"""`tidelog zookeeper` as people use it: a process with output, data that stays, and signals."""

import os
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.coordinated import RealZooKeeper
from support.ports import free_ports
from support.zookeepers import new_connect, require_zookeeper
from tidelog.base.coordination import Create
from tidelog.world.real.zookeeper_server import is_serving, split_address

TIDELOG = str(Path(sys.executable).with_name("tidelog"))


@contextmanager
def running(*arguments: str, folder: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The process, and where it says that it serves."""
    require_zookeeper()
    with subprocess.Popen(
        [TIDELOG, "zookeeper", *arguments], cwd=folder, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            words = process.stdout.readline().split()
            assert words[:3] == ["ZooKeeper", "serves", "on"]
            yield process, words[3].rstrip(",")
        finally:
            process.kill()


def granted_ms(address: str, asked_ms: int) -> int:
    """The timeout of a new session, as the server has it."""
    with socket.create_connection(split_address(address), 60) as connection:
        request = struct.pack(">iqiqi16s?", 0, 0, asked_ms, 0, 16, b"", False)
        connection.sendall(struct.pack(">i", len(request)) + request)
        _, _, granted = struct.unpack(">iii", connection.recv(12, socket.MSG_WAITALL))
    return int(granted)


def run(*arguments: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [TIDELOG, "zookeeper", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, **environment},
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_says_where_it_serves_and_ends_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    port = str(free_ports(1)[0])
    with running("--port", port, "--data", "kept", folder=tmp_path) as (process, address):
        assert address == f"127.0.0.1:{port}"
        place = RealZooKeeper(address)
        place.write(Create(path="/kept"))
        place.release()
        assert "tickTime=250\n" in (tmp_path / "kept" / "zoo.cfg").read_text()
        assert [granted_ms(address, asked) for asked in (1, 18_000, 600_000)] == [
            500,
            18_000,
            60_000,
        ]
        process.send_signal(number)
        assert process.wait(60) == 0
    assert not is_serving(address)
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
    with running("--port", port, "--data", "kept", folder=tmp_path) as (_, address):
        place = RealZooKeeper(address)
        assert "kept" in place.children("/")
        place.release()


def test_its_server_dies_with_it(tmp_path: Path) -> None:
    """`kill -9` leaves no Java behind."""
    with running("--port", str(free_ports(1)[0]), folder=tmp_path) as (process, address):
        process.kill()
        deadline = time.monotonic() + 60
        while is_serving(address):
            assert time.monotonic() < deadline
            time.sleep(0.05)
    assert [path.name for path in tmp_path.iterdir()] == ["tidelog-zookeeper"]


def test_a_configuration_of_ones_own_is_used_as_it_is(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    config = tmp_path / "zoo.cfg"
    config.write_text(
        f"# für alle\ntickTime=2000\ndataDir={tmp_path}/own\nclientPort = {port}\n"
        "admin.enableServer=false\n4lw.commands.whitelist=srvr\n",
        encoding="latin-1",
    )
    with running("--config", str(config), folder=tmp_path) as (_, address):
        assert split_address(address) == ("127.0.0.1", port)
    assert (tmp_path / "own").is_dir()


@pytest.mark.parametrize("port", ["", "clientPort=99999\n", "clientPort=0\n"])
def test_a_configuration_without_a_port_is_refused(tmp_path: Path, port: str) -> None:
    config = tmp_path / "zoo.cfg"
    config.write_text(f"tickTime=2000\n{port}")
    ended = run("--config", str(config), folder=tmp_path)
    assert ended.returncode == 1
    assert "clientPort" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_folder_that_another_has_is_refused(tmp_path: Path) -> None:
    """Two that write to the same files leave nothing that either could go on from."""
    first, second = free_ports(2)
    with running("--port", str(first), "--data", "kept", folder=tmp_path):
        data = tmp_path / "kept" / "data" / "version-2"
        before = sorted(data.iterdir())
        ended = run("--port", str(second), "--data", "kept", folder=tmp_path)
        assert ended.returncode == 1
        assert "is in use by another ZooKeeper" in ended.stderr
        assert "Traceback" not in ended.stderr
        assert sorted(data.iterdir()) == before
        assert f"clientPort={first}\n" in (tmp_path / "kept" / "zoo.cfg").read_text()


def test_a_port_that_is_taken_is_refused_by_its_number(tmp_path: Path) -> None:
    port = new_connect().partition("/")[0].rpartition(":")[2]
    ended = run("--port", port, folder=tmp_path)
    assert ended.returncode == 1
    assert f"port {port} cannot be used" in ended.stderr
    assert list(tmp_path.iterdir()) == []


def test_without_java_it_says_what_to_do(tmp_path: Path) -> None:
    ended = run("--port", "1", folder=tmp_path, PATH=str(tmp_path), JAVA_HOME=str(tmp_path))
    assert ended.returncode == 1
    for advice in ("Java 17", "tidelog server"):
        assert advice in ended.stderr
    assert "Traceback" not in ended.stderr
    assert list(tmp_path.iterdir()) == []


def test_without_pyspark_it_says_what_to_do(tmp_path: Path) -> None:
    """A package of that name without jars is as good as none."""
    (tmp_path / "path" / "pyspark").mkdir(parents=True)
    (tmp_path / "path" / "pyspark" / "__init__.py").write_text("raise AssertionError('imported')")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to("/bin/true")
    ended = run(
        folder=tmp_path,
        PYTHONPATH=str(tmp_path / "path"),
        JAVA_HOME=str(tmp_path),
    )
    assert ended.returncode == 1
    for advice in ("pip install 'tidelog[spark]'", "tidelog server"):
        assert advice in ended.stderr
    assert "Traceback" not in ended.stderr
