"""`tidelog server` as people use it: a process with settings, output and signals."""

import os
import re
import resource
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from confluent_kafka import Producer

from support.brokers import one_batch
from support.ports import free_ports
from support.servers import TidelogServer
from support.two_dirs import two_dirs
from support.wire_client import CREATE_TOPICS, WireClient, children, creation, wait_until
from tidelog.cli.server import read_settings
from tidelog.client import apis
from tidelog.client.client import Client
from tidelog.world.real.disk import RealDisk

LOG_LINE = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3} [A-Z]+ tidelog\.[\w.]+ \S.*"
"""Time, level, who, and what."""
ROOM = 400
"""Bytes of a file: enough for a tree that is empty, and not for what a first start puts there."""
TIDELOG = str(Path(sys.executable).with_name("tidelog"))


def run(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [TIDELOG, "server", *arguments], cwd=folder, capture_output=True, text=True, timeout=120
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_says_where_it_listens_and_ends_cleanly(tmp_path: Path, number: int) -> None:
    """O1: no settings but a free port."""
    command = [TIDELOG, "server", "--set", "listeners=PLAINTEXT://127.0.0.1:0"]
    with subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert re.fullmatch(r"listening on PLAINTEXT://127.0.0.1:\d+\n", process.stdout.readline())
        process.send_signal(number)
        _, log = process.communicate(timeout=60)
    assert process.returncode == 0
    started = re.search(r"started broker=0 cluster=\S+ partitions=0 seconds=([\d.]+)", log)
    assert started is not None
    assert float(started[1]) < 5, "well under a second where nobody else uses the machine"
    for line in log.splitlines():
        assert re.fullmatch(LOG_LINE, line), line
    assert (tmp_path / "tidelog-data" / ".kafka_cleanshutdown").exists()


def test_with_no_settings_it_serves_this_machine_from_a_folder_beside_it() -> None:
    """O1"""
    settings = read_settings(None, [])
    assert settings["listeners"] == "PLAINTEXT://127.0.0.1:9092"
    assert settings["log.dirs"] == f"{Path.cwd()}/tidelog-data"


def test_a_single_node_needs_no_java_and_no_other_process(tmp_path: Path) -> None:
    """O1: no program is in the PATH, and records are written and read."""
    no_programs = {**os.environ, "PATH": str(tmp_path), "JAVA_HOME": str(tmp_path)}
    command = [TIDELOG, "server", "--set", "listeners=PLAINTEXT://127.0.0.1:0"]
    with subprocess.Popen(
        command, cwd=tmp_path, env=no_programs, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdout is not None
        address = process.stdout.readline().decode().strip().rpartition("/")[2]
        with WireClient(address) as client:
            client.create("events")
            assert client.produce("events", one_batch("a")).error_code.name == "none"
            assert client.fetch("events", 0).high_watermark == 1
        assert children(process.pid) == []
        process.terminate()
    assert process.returncode == 0


def test_what_is_wrong_with_a_setting_is_said_by_name(tmp_path: Path) -> None:
    """O2."""
    for setting in ("no.such.setting=1", "num.partitions=many", "nothing"):
        ended = run("--set", setting, folder=tmp_path)
        assert ended.returncode == 1
        assert setting.partition("=")[0] in ended.stderr
        assert "Traceback" not in ended.stderr
    assert list(tmp_path.iterdir()) == []


def test_settings_come_from_a_file_and_single_ones_count_before_it(tmp_path: Path) -> None:
    config = tmp_path / "server.properties"
    config.write_text("broker.id=5\nlog.dirs=in-file\nlisteners=PLAINTEXT://127.0.0.1:0\n")
    command = [TIDELOG, "server", "--config", str(config), "--set", "log.dirs=given"]
    with subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.terminate()
        process.communicate(timeout=60)
    assert "broker.id=5" in (tmp_path / "given" / "meta.properties").read_text()
    assert not (tmp_path / "in-file").exists()


def test_others_are_told_from_the_root_where_its_folders_are(tmp_path: Path) -> None:
    """Who reads the files, as an audit does, may have been started elsewhere."""
    listener = "listeners=PLAINTEXT://127.0.0.1:0"
    command = [TIDELOG, "server", "--set", listener, "--set", "log.dirs=first, second/.."]
    with subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        with Client(process.stdout.readline().strip().rpartition("/")[2]) as client:
            dirs = client.ask(apis.DESCRIBE_LOG_DIRS, {"topics": None}).results
        process.terminate()
    assert [one.log_dir for one in dirs] == [f"{tmp_path}/first", str(tmp_path)]


def test_a_folder_or_a_port_in_use_is_named(tmp_path: Path) -> None:
    server = TidelogServer(tmp_path, {})
    server.start()
    try:
        port = server.address.rpartition(":")[2]
        same_port = run("--set", f"listeners=PLAINTEXT://127.0.0.1:{port}", folder=tmp_path)
        assert same_port.returncode == 1
        assert same_port.stderr == (
            f"tidelog: Address already in use: cannot listen on 127.0.0.1:{port}; "
            "stop what uses it, or set listeners\n"
        )
        same_metrics = run(
            "--set",
            "listeners=PLAINTEXT://127.0.0.1:0",
            "--set",
            f"metrics.port={port}",
            folder=tmp_path,
        )
        assert same_metrics.returncode == 1
        assert same_metrics.stderr.splitlines()[-1] == (
            f"tidelog: Address already in use: cannot listen on 127.0.0.1:{port}; "
            "stop what uses it, or set metrics.port"
        )
        same_folder = run(
            "--set",
            "listeners=PLAINTEXT://127.0.0.1:0",
            "--set",
            f"log.dirs={server.log_dir}",
            folder=tmp_path,
        )
        assert same_folder.returncode == 1
        assert str(server.log_dir) in same_folder.stderr
        said = same_port.stderr + same_metrics.stderr + same_folder.stderr
        assert "Traceback" not in said
    finally:
        server.close()


def test_nobody_opens_the_tree_while_another_may_still_write_to_it(tmp_path: Path) -> None:
    """A process lets go of its log dir before its threads have ended."""
    server = TidelogServer(tmp_path, {})
    server.start()
    folder = f"{server.log_dir}/znodes"
    try:
        with pytest.raises(BlockingIOError):
            RealDisk().lock(f"{folder}/.lock")
    finally:
        server.close()
    held = RealDisk().lock(f"{folder}/.lock")
    settings = ("listeners=PLAINTEXT://127.0.0.1:0", f"log.dirs={server.log_dir}")
    ended = run("--set", settings[0], "--set", settings[1], folder=tmp_path)
    held.release()
    assert ended.returncode == 1
    assert ended.stderr == (
        f"tidelog: {folder} is in use by another process: stop it, or set log.dirs\n"
    )


def test_a_level_there_is_none_of_is_refused(tmp_path: Path) -> None:
    ended = run("--log-level", "loud", folder=tmp_path)
    assert ended.returncode == 1
    assert ended.stderr == (
        "tidelog: --log-level loud: must be one of debug, info, warning, error\n"
    )


def test_it_says_which_zookeeper_it_waits_for(tmp_path: Path) -> None:
    """As long as nobody answers there, nothing else would be said."""
    nobody = f"127.0.0.1:{free_ports(1)[0]}"
    settings = (f"zookeeper.connect={nobody}", "listeners=PLAINTEXT://127.0.0.1:0", "broker.id=1")
    command = [TIDELOG, "server", *(part for one in settings for part in ("--set", one))]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            assert f"connecting to ZooKeeper at {nobody}" in process.stderr.readline()
            process.terminate()
            assert process.wait(60) == 0
        finally:
            process.kill()


def test_it_ends_when_its_last_log_dir_has_failed_and_not_before(tmp_path: Path) -> None:
    """S10: as Kafka does, with a line that says which they are."""
    with two_dirs(tmp_path) as server:
        server.lose_dir_of(1, "offline partition=events-1")
        server.produce(0, "has a place")
        server.lose_dir_of(0, "all log dirs have failed")
        assert server.wait_until_ended() == 1
    said = server.output.read_text()
    assert "Traceback" not in said
    (last,) = (line for line in said.splitlines() if "all log dirs have failed" in line)
    assert all(f"{one}: " in last for one in server.dirs)


def metric(page: str, name: str) -> float:
    return float(next(line for line in page.splitlines() if line.startswith(name)).split()[-1])


def test_metrics_are_served_in_the_form_prometheus_reads(tmp_path: Path) -> None:
    """O3."""
    server = TidelogServer(tmp_path, {"metrics.port": "0"})
    server.start()
    try:
        assert wait_until(lambda: re.search(r"metrics on \S+\s", server.output.read_text()))
        found = re.search(r"metrics on (http://\S+)", server.output.read_text())
        assert found is not None
        producer = Producer({"bootstrap.servers": server.address})
        for number in range(10):
            producer.produce("events", str(number))
        assert producer.flush(60) == 0
        with urllib.request.urlopen(found[1], timeout=60) as answer:
            assert answer.headers["Content-Type"].startswith("text/plain")
            page = answer.read().decode()
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(found[1] + "x", timeout=60)
    finally:
        server.close()
    for name in ("under_replicated", "offline", "under_min_isr"):
        assert metric(page, f"tidelog_{name}_partitions") == 0
    assert metric(page, 'tidelog_log_end_offset{topic="events",partition="0"}') == 10
    assert metric(page, 'tidelog_bytes_in_total{topic="events"}') > 100
    assert metric(page, 'tidelog_request_seconds_count{api="produce"}') >= 1
    for line in page.splitlines():
        assert re.fullmatch(r"# (HELP|TYPE) .*|tidelog_\w+(\{.*\})? \S+", line), line


@pytest.mark.parametrize("is_full", [True, False], ids=["full", "gone"])
def test_it_serves_although_nobody_takes_what_it_says(tmp_path: Path, is_full: bool) -> None:
    """As in `tidelog server | head -1`, or with its output on a full disk."""
    server = TidelogServer(tmp_path, {})
    reading, writing = os.pipe()
    os.close(reading)
    output = os.open("/dev/full", os.O_WRONLY) if is_full else writing
    command = [TIDELOG, "server", "--set", f"log.dirs={server.log_dir}"]
    command += ["--set", f"listeners=PLAINTEXT://{server.address}"]
    with subprocess.Popen(command, stdout=output, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        said = ""
        try:
            while " started " not in said:
                said += process.stderr.readline()
                assert "Traceback" not in said, said
            with WireClient(server.address) as client:
                client.create("events")
                assert client.produce("events", one_batch("a")).error_code.name == "none"
            process.terminate()
            said += process.communicate(timeout=60)[1]
        finally:
            process.kill()
    os.close(writing)
    assert process.returncode == 0
    assert f"cannot be said: listening on PLAINTEXT://{server.address}" in said


def test_a_disk_without_room_for_the_tree_ends_it_and_the_next_start_goes_on(
    tmp_path: Path,
) -> None:
    """S10: it would go on without new topics and producer ids, also when there is room again."""
    server = TidelogServer(tmp_path, {})
    server.start()
    try:
        with WireClient(server.address) as client:
            client.create("before")
            assert client.produce("before", one_batch("a")).error_code.name == "none"
            resource.prlimit(server.process_id, resource.RLIMIT_FSIZE, (16_384, 16_384))
            client.send(CREATE_TOPICS, 7, **creation("large", partitions=3_000))
            assert server.wait_until_ended() == 1
        assert "the tree of znodes is lost until the next start" in server.output.read_text()
        server.start()
        with WireClient(server.address) as client:
            client.create("after")
            assert client.fetch("before", 0).high_watermark == 1
    finally:
        server.close()


def test_a_start_without_room_for_the_tree_says_so_in_one_line(tmp_path: Path) -> None:
    limit = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({ROOM}, {ROOM})); "
    program = limit + "from tidelog.cli.entry import main; main()"
    settings = ("--set", "listeners=PLAINTEXT://127.0.0.1:0", "--log-level", "error")
    ended = subprocess.run(
        [sys.executable, "-P", "-c", program, "server", *settings],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode == 1
    assert "Traceback" not in ended.stderr
    assert re.search(r"^tidelog: /\S+/znodes/journal-\w+: File too large$", ended.stderr, re.M)
