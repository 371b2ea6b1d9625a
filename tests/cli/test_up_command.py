"""`tidelog up` as people use it: what it starts, where, and what is left of it in the end."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from support.cluster_processes import children_of, wait_until
from support.ports import free_ports, free_row
from support.zookeepers import require_zookeeper
from tidelog.base.errors import KafkaError
from tidelog.cli.local_cluster import LocalBroker
from tidelog.client import apis
from tidelog.client.client import Client
from tidelog.client.configs import Resource, describe_configs
from tidelog.world.real.mortal import mortal
from tidelog.world.real.zookeeper_server import is_serving

TIDELOG: Final = str(Path(sys.executable).with_name("tidelog"))
ENDED_SECONDS_MAX: Final = 60
SHORT_SESSIONS: Final = ("--set", "zookeeper.session.timeout.ms=2000")
"""The guard of a broker that is killed together with ZooKeeper ends with the session."""
INTERNAL_TOPICS: Final = ("__consumer_offsets", "__transaction_state")
PATIENCE_MS: Final = 60_000


class Up:
    """One that runs, and all it has said so far."""

    def __init__(self, process: subprocess.Popen[bytes], said: Path) -> None:
        self.process = process
        self._said = said

    @property
    def said(self) -> str:
        return self._said.read_text(encoding="utf-8")

    def wait_for(self, words: str) -> None:
        def is_said() -> bool:
            assert self.process.poll() is None, self.said
            return words in self.said

        wait_until(is_said, f"it says: {words}")

    @property
    def bootstrap(self) -> str:
        return str(re.findall(r"^bootstrap servers: (\S+)$", self.said, re.MULTILINE)[0])

    @property
    def zookeeper(self) -> str:
        return str(re.findall(r"^ZooKeeper serves on (\S+)", self.said, re.MULTILINE)[0])

    @property
    def brokers(self) -> list[int]:
        return [int(found) for found in re.findall(r"broker \d+ .*\(process (\d+)", self.said)]

    def descendants(self) -> list[int]:
        """ZooKeeper, the brokers, and whatever they have started."""
        found = [self.process.pid]
        for process_id in found:
            found += children_of(process_id)
        return found[1:]

    def end(self, number: signal.Signals, meanwhile: Callable[[], None] | None = None) -> int:
        """Its status; what it had started is gone by then, or soon after."""
        started = self.descendants()
        assert started
        self.process.send_signal(number)
        if meanwhile is not None:
            meanwhile()
        status = self.process.wait(ENDED_SECONDS_MAX)
        wait_until(lambda: not [one for one in started if runs(one)], "nothing of it runs")
        return status


def runs(process_id: int) -> bool:
    """A process that nobody has waited for yet does not."""
    try:
        status = Path(f"/proc/{process_id}/stat").read_text(encoding="utf-8")
    except (FileNotFoundError, ProcessLookupError):
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


@contextmanager
def up(folder: Path, brokers: int) -> Iterator[Up]:
    """It serves, with all its data in `kept`."""
    require_zookeeper()
    ports = ["--port", str(free_row(brokers)), "--zookeeper-port", str(free_ports(1)[0])]
    command = [TIDELOG, "up", "--brokers", str(brokers), "--data", "kept", *ports, *SHORT_SESSIONS]
    said = folder / "said"
    with said.open("wb") as output:
        process = subprocess.Popen(command, cwd=folder, stdout=output, stderr=output)
    running = Up(process, said)
    try:
        running.wait_for("bootstrap servers")
        yield running
    finally:
        process.kill()
        process.wait()


def run(folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [TIDELOG, "up"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, **environment},
    )


def kill_all(running: Up) -> None:
    for number, process_id in enumerate(running.brokers, 1):
        os.kill(process_id, signal.SIGKILL)
        running.wait_for(f"broker {number} has ended with status -9")


def test_as_many_brokers_as_asked_for_run_until_ctrl_c(tmp_path: Path) -> None:
    """Its data is where it was told to be, and nothing is left of it that runs."""
    with up(tmp_path, brokers=2) as running:
        assert len(running.brokers) == 2
        with Client(running.bootstrap) as client:
            assert sorted(client.cluster().brokers) == [1, 2]
            check_internal_topics(client)
        assert running.end(signal.SIGINT) == 0
        assert running.said.splitlines()[-3:] == [
            "broker 1 has stopped",
            "broker 2 has stopped",
            "ZooKeeper has stopped",
        ]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kept", "said"]
    kept = {path.name for path in (tmp_path / "kept").iterdir()}
    assert kept >= {"zookeeper", "broker-1", "broker-2", "broker-1.log", "broker-2.log"}


def check_internal_topics(client: Client) -> None:
    """O1: they have as many replicas as there are brokers for, and what is in them is in two."""
    for key_type, name in enumerate(INTERNAL_TOPICS):
        client.ask(apis.FIND_COORDINATOR, {"key_type": key_type, "coordinator_keys": ["any"]})
        assert client.topic_soon(name, PATIENCE_MS).replication_factor == 2
        resource = Resource(kind="topic", name=name)
        configs = describe_configs(client, [resource])[resource]
        assert not isinstance(configs, KafkaError)
        found = next(one.value for one in configs if one.name == "min.insync.replicas")
        assert found == "2", name


def test_zookeeper_stays_when_all_brokers_have_died(tmp_path: Path) -> None:
    """One that is started again by hand, as README shows it, can join. That it went badly is told
    by the status."""
    with up(tmp_path, brokers=1) as running:
        kill_all(running)
        running.wait_for("no broker that was started here runs any more")
        with by_hand(tmp_path, running) as address, Client(address) as client:
            assert sorted(client.cluster().brokers) == [1]
            wait_until(lambda: is_serving(running.zookeeper), "ZooKeeper serves")
            assert running.process.poll() is None
        assert running.end(signal.SIGTERM) == 1
        assert "all brokers had ended before it was told to stop" in running.said
        assert "Traceback" not in running.said
    assert not is_serving(running.zookeeper)


@contextmanager
def by_hand(folder: Path, running: Up) -> Iterator[str]:
    """Where broker 1 listens."""
    settings = {
        "zookeeper.connect": running.zookeeper,
        "broker.id": "1",
        "listeners": f"PLAINTEXT://{running.bootstrap}",
        "log.dirs": "kept/broker-1",
    }
    command = [TIDELOG, "server"]
    for name, value in settings.items():
        command += ["--set", f"{name}={value}"]
    said = folder / "said-by-hand"
    with said.open("wb") as output:
        process = subprocess.Popen(
            mortal(command, signal.SIGKILL), cwd=folder, stdout=output, stderr=output
        )
    try:
        wait_until(lambda: b"listening on" in said.read_bytes(), "the broker serves")
        yield running.bootstrap
    finally:
        process.kill()
        process.wait()


def test_ctrl_c_twice_kills_a_broker_that_does_not_stop(tmp_path: Path) -> None:
    with up(tmp_path, brokers=1) as running:
        (paused,) = running.brokers
        os.kill(paused, signal.SIGSTOP)
        wait_until(lambda: is_stopped(paused), "the broker is paused")

        def again() -> None:
            wait_until(lambda: has_pending(paused, signal.SIGTERM), "the broker is told to stop")
            running.process.send_signal(signal.SIGINT)

        began = time.monotonic()
        assert running.end(signal.SIGINT, again) == 1
        assert time.monotonic() - began < 25, "it is not waited for"
        assert running.said.splitlines()[-1].startswith("tidelog: told to stop twice")
        assert "Traceback" not in running.said


def is_stopped(process_id: int) -> bool:
    """Whether none of its threads can take a signal any more."""
    threads = Path(f"/proc/{process_id}/task").glob("*/status")
    return all("\nState:\tT" in thread.read_text(encoding="utf-8") for thread in threads)


def has_pending(process_id: int, number: signal.Signals) -> bool:
    """Whether a signal was sent to a process that has not taken it yet."""
    status = Path(f"/proc/{process_id}/status").read_text(encoding="utf-8")
    (mask,) = re.findall(r"^ShdPnd:\s*(\w+)$", status, re.MULTILINE)
    return bool(int(mask, 16) >> (number - 1) & 1)


def refused(folder: Path, **environment: str) -> str:
    """Why; nothing was made."""
    before = sorted(folder.rglob("*"))
    ended = run(folder, **environment)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "`tidelog server`, needs neither ZooKeeper nor Java" in ended.stderr
    assert len(ended.stderr.splitlines()) == 1
    assert sorted(folder.rglob("*")) == before
    return ended.stderr


def test_without_java_it_says_how_to_run_a_single_node(tmp_path: Path) -> None:
    assert "Java 17" in refused(tmp_path, PATH=str(tmp_path), JAVA_HOME=str(tmp_path))


def test_a_java_that_is_too_old_is_named(tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.21\"' >&2\n")
    java.chmod(0o755)
    said = refused(tmp_path, JAVA_HOME=str(tmp_path))
    assert f"needs Java 17 or newer, for ZooKeeper, and {java} is Java 11" in said


def test_without_pyspark_it_says_how_to_run_a_single_node(tmp_path: Path) -> None:
    """A package of that name without jars is as good as none."""
    package = tmp_path / "path" / "pyspark" / "__init__.py"
    package.parent.mkdir(parents=True)
    package.write_text("raise AssertionError('imported')")
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.symlink_to("/bin/true")
    said = refused(tmp_path, PYTHONPATH=str(tmp_path / "path"), JAVA_HOME=str(tmp_path))
    assert "pip install 'tidelog[spark]'" in said


def test_what_was_said_in_earlier_years_is_not_read_at_every_start(tmp_path: Path) -> None:
    broker = LocalBroker(1, free_ports(1)[0], tmp_path, {})
    broker.output.touch()
    os.truncate(broker.output, 1 << 38)
    broker.start()
    try:
        broker.wait_until_serving()
    finally:
        broker.end(signal.SIGKILL)
