"""What the README shows is what happens: its commands and examples print what it says they do.

Those for a node and for a cluster run against ones of our own, on other ports than the README's.
What a cluster prints differs in numbers, which are left out; how many there are is not.
"""

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from support.ports import free_ports, free_row
from support.servers import TidelogServer
from support.zookeepers import require_zookeeper

ROOT: Final = Path(__file__).parents[1]
README: Final = (ROOT / "README.md").read_text(encoding="utf-8")
HELLO: Final = (ROOT / "examples" / "hello.py").read_text(encoding="utf-8")
ADDRESS: Final = "127.0.0.1:9092"
BIN: Final = ".venv/bin/"
FOLDER: Final = "tidelog-data"
OTHERS: Final = ("kcat",)
"""Programs that are not ours, and not everywhere."""
PROGRAMS: Final = re.findall(r"```python\n(.*?)```\n\n```\n(.*?)```", README, re.DOTALL)
SESSIONS: Final = re.findall(r"```console\n(.*?)```", README, re.DOTALL)
COMMANDS, CLUSTER_COMMANDS = (
    re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", session, re.MULTILINE) for session in SESSIONS
)
(STARTED,) = re.findall(r"```\n(ZooKeeper serves on .*?)```", README, re.DOTALL)
BROKERS: Final = 3
SETTLED_SECONDS_MAX: Final = 60


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TidelogServer]:
    server = TidelogServer(tmp_path_factory.mktemp("readme"), {})
    try:
        server.start()
        yield server
    finally:
        server.close()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """The folder of a cluster, and what was said when it started."""
    require_zookeeper()
    folder = tmp_path_factory.mktemp("readme-cluster")
    port, zookeeper_port = free_row(BROKERS), free_ports(1)[0]
    command = [f"{Path(sys.executable).parent}/tidelog", "up", "--port", str(port)]
    with subprocess.Popen(
        [*command, "--zookeeper-port", str(zookeeper_port)],
        cwd=folder,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            said = ""
            for line in process.stdout:
                said += line
                if line.startswith("bootstrap servers"):
                    break
            yield folder, said
        finally:
            process.terminate()
            process.wait(60)


def printed(command: list[str], folder: Path, **environment: str) -> str:
    return subprocess.run(
        command,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        cwd=folder,
        timeout=120,
        env=os.environ | environment,
    ).stdout


def test_readme_session_prints_what_the_readme_shows(node: TidelogServer, tmp_path: Path) -> None:
    assert len(COMMANDS) > 3
    (tmp_path / FOLDER).symlink_to(node.log_dir)
    for command, shown in COMMANDS:
        program = command.split()[0]
        if program in OTHERS and shutil.which(program) is None:
            continue
        here = command.replace(ADDRESS, node.address).replace(
            BIN, f"{Path(sys.executable).parent}/"
        )
        found = printed(["sh", "-c", here], tmp_path, TIDELOG_BOOTSTRAP_SERVER=node.address)
        assert found == shown, command


def test_readme_shows_what_is_said_when_a_cluster_starts(cluster: tuple[Path, str]) -> None:
    assert _without_numbers(cluster[1]) == _without_numbers(STARTED)


def test_readme_session_with_a_cluster_prints_what_the_readme_shows(
    cluster: tuple[Path, str],
) -> None:
    folder, said = cluster
    processes = dict(zip(_processes(STARTED), _processes(said), strict=True))
    bootstrap = said.split()[-1]
    killed = [command for command, _ in CLUSTER_COMMANDS if command.startswith("kill -9 ")]
    assert len(killed) == 1
    for command, shown in CLUSTER_COMMANDS:
        here = command.replace(BIN, f"{Path(sys.executable).parent}/")
        if command in killed:
            shown_process = command.split()[2]
            here = here.replace(shown_process, processes[shown_process])
        wanted = _without_numbers(shown)
        deadline = time.monotonic() + SETTLED_SECONDS_MAX
        found = _without_numbers(_said(here, folder, bootstrap))
        while "describe" in command and found != wanted and time.monotonic() < deadline:
            found = _without_numbers(_said(here, folder, bootstrap))
        assert found == wanted, command


def _said(command: str, folder: Path, bootstrap: str) -> str:
    return printed(["sh", "-c", command], folder, TIDELOG_BOOTSTRAP_SERVER=bootstrap)


def _processes(said: str) -> list[str]:
    return re.findall(r"^broker .*\(process (\d+)", said, re.MULTILINE)


def _without_numbers(text: str) -> str:
    return re.sub(r"\d+(\.\d+)*", "N", re.sub(r"TopicId: \S+", "TopicId", text))


def test_readme_example_of_a_client_is_the_file_it_names() -> None:
    assert HELLO.endswith('"""\n\n' + PROGRAMS[0][0])


def test_readme_example_of_a_client_prints_what_the_readme_shows(
    node: TidelogServer, tmp_path: Path
) -> None:
    code, shown = PROGRAMS[0]
    assert ADDRESS in code
    here = code.replace(ADDRESS, node.address)
    assert printed([sys.executable, "-c", here], tmp_path) == shown


def test_readme_example_of_a_log_prints_what_the_readme_shows(tmp_path: Path) -> None:
    code, shown = PROGRAMS[2]
    here = code.replace("/tmp/tidelog-readme", str(tmp_path / "log"))
    found = printed([sys.executable, "-c", here], tmp_path)
    assert _without_times(found) == _without_times(shown)


def _without_times(text: str) -> str:
    return re.sub(r"'timestamp': \d+", "", text)
