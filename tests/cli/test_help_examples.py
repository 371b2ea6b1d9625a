"""The examples in the help and the README can be typed as they stand: ports and folders aside."""

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from support.ports import free_ports
from support.servers import ROOT, TidelogServer
from support.wire_client import METADATA, WireClient
from tidelog.cli.free_ports import HOST
from tidelog.world.real.mortal import mortal

TIDELOG: Final = str(Path(sys.executable).with_name("tidelog"))
README: Final = (ROOT / "README.md").read_text(encoding="utf-8")
PORT: Final = "9092"
FOLDER: Final = "/var/lib/tidelog"


def examples(*command: str) -> list[str]:
    """The lines in a command's help that show how it is used."""
    text = subprocess.run(
        [TIDELOG, *command, "--help"],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env=os.environ | {"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"},
    ).stdout
    found = re.findall(rf"^\W*(tidelog {' '.join(command)}\b[^│\n]*)", text, re.MULTILINE)
    return [line.strip() for line in found]


def of_servers() -> list[str]:
    (shown,) = re.findall(rf"`(--set listeners=\S+ --set log\.dirs={FOLDER})`", README)
    return [*examples("server"), f"tidelog server {shown}"]


def test_there_are_examples_of_servers() -> None:
    assert len(of_servers()) == 4


@pytest.mark.parametrize("number", range(4))
def test_an_example_of_a_server_starts_one_that_clients_reach(number: int, tmp_path: Path) -> None:
    port = free_ports(1)[0]
    line = of_servers()[number].replace(PORT, str(port)).replace(FOLDER, str(tmp_path / "logs"))
    if "listeners" not in line and "--config" not in line:
        line += f" --set listeners=PLAINTEXT://{HOST}:{port}"
    properties = f"broker.id=0\nlisteners=PLAINTEXT://{HOST}:{port}\nlog.dirs={tmp_path}/logs\n"
    (tmp_path / "server.properties").write_text(properties)
    process = subprocess.Popen(
        mortal([TIDELOG, *shlex.split(line)[1:]], signal.SIGKILL),
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            assert process.stdout is not None
            assert "listening on PLAINTEXT://" in process.stdout.readline(), line
            with WireClient(f"{HOST}:{port}") as client:
                answer = client.ask(
                    METADATA, 12, topics=[], include_topic_authorized_operations=False
                )
            assert [broker.port for broker in answer.brokers] == [port]
        finally:
            process.terminate()
        assert process.wait(60) == 0


@pytest.fixture
def node(tmp_path: Path) -> Iterator[TidelogServer]:
    server = TidelogServer(tmp_path, {"broker.id": "0"})
    server.start()
    try:
        with WireClient(server.address) as client:
            client.create("orders")
        yield server
    finally:
        server.close()


def test_the_examples_of_changing_settings_change_them(node: TidelogServer) -> None:
    lines = examples("configs", "set")
    assert len(lines) == 3
    for line in lines:
        subprocess.run(
            [TIDELOG, *shlex.split(line)[1:]],
            check=True,
            env=os.environ | {"TIDELOG_BOOTSTRAP_SERVER": node.address},
        )
