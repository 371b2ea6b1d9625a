"""What a person sees of Spark in a terminal: nothing, unless it cannot start; then a sentence."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tidelog.base.errors import BadValue
from tidelog.cli.spark_session import java_apart, spark_environment

TIDELOG = str(Path(sys.executable).with_name("tidelog"))
NEEDED = "tidelog: this needs Java 17 or newer, for Spark"
ADVICE = "install it, or set JAVA_HOME\n"
COMMANDS = (
    ("audit", "orders"),
    ("pipeline", "run"),
    ("replay", "orders", "--from", "0", "--into", "again", "--execute"),
    ("demo", "--spark"),
)


def told(command: tuple[str, ...], **changes: str | None) -> str:
    """What it says to whoever runs it, and nothing else."""
    given = {**os.environ, "JAVA_HOME": None, **changes}
    environment = {name: value for name, value in given.items() if value is not None}
    done = subprocess.run(
        [TIDELOG, *command], env=environment, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout) == (1, "")
    return done.stderr


def java_that_says(folder: Path, line: str) -> str:
    """The path of a folder that has it."""
    java = folder / "java"
    java.write_text(f"#!/bin/sh\necho '{line}' >&2\n")
    java.chmod(0o755)
    return str(folder)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_without_java_a_command_says_so_in_one_sentence(
    command: tuple[str, ...], tmp_path: Path
) -> None:
    assert told(command, PATH=str(tmp_path)) == f"{NEEDED}: {ADVICE}"
    assert told(command, JAVA_HOME=str(tmp_path)) == f"{NEEDED}: {ADVICE}"


@pytest.mark.parametrize(
    ("line", "version"), [('java version "1.8.0_392"', 8), ('openjdk version "11.0.21"', 11)]
)
def test_a_java_that_is_too_old_is_named_with_its_version(
    line: str, version: int, tmp_path: Path
) -> None:
    path = java_that_says(tmp_path, line)
    expected = f"{NEEDED}, and {tmp_path}/java is Java {version}: {ADVICE}"
    assert told(COMMANDS[0], PATH=path) == expected


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_with_another_pyspark_a_command_says_so_in_one_sentence(
    command: tuple[str, ...], tmp_path: Path
) -> None:
    info = tmp_path / "pyspark-3.5.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: pyspark\nVersion: 3.5.1\n")
    assert told(command, PYTHONPATH=str(tmp_path)) == (
        "tidelog: this needs PySpark 4.3.x, and 3.5.1 is installed: pip install 'tidelog[spark]'\n"
    )


@pytest.mark.parametrize(
    ("remote", "why"),
    [
        ("sc://127.0.0.1:1", "no Connect server is there: connection refused"),
        ("sc://127.0.0.1:x", "must be sc://HOST:PORT"),
        ("http://127.0.0.1:1", "must be sc://HOST:PORT"),
        ("127.0.0.1:1", "must be sc://HOST:PORT"),
    ],
)
def test_a_connect_server_that_is_not_there_is_noticed_at_once(remote: str, why: str) -> None:
    began = time.monotonic()
    assert told(("pipeline", "run", "--remote", remote)) == f"tidelog: --remote {remote}: {why}\n"
    assert time.monotonic() - began < 30


def test_only_a_spark_of_this_machine_is_told_to_keep_to_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On a cluster, executors of other machines must reach the driver."""
    for name in ("SPARK_LOCAL_IP", "PYSPARK_PYTHON", "PYSPARK_UDS_MODE"):
        monkeypatch.delenv(name, raising=False)
    for master in (None, "local[*]", "local[2]", "local"):
        assert spark_environment(master)["SPARK_LOCAL_IP"] == "127.0.0.1"
    assert "SPARK_LOCAL_IP" not in spark_environment("spark://10.0.0.1:7077")
    assert Path(spark_environment("yarn")["PYSPARK_PYTHON"]).parent == Path(sys.executable).parent
    monkeypatch.setenv("SPARK_LOCAL_IP", "10.0.0.2")
    monkeypatch.setenv("PYSPARK_PYTHON", "/usr/bin/other")
    monkeypatch.setenv("PYSPARK_UDS_MODE", "false")
    assert spark_environment("local") == {
        "SPARK_LOCAL_IP": "10.0.0.2",
        "PYSPARK_PYTHON": "/usr/bin/other",
        "PYSPARK_UDS_MODE": "false",
    }


def speak(line: str) -> None:
    subprocess.run(["sh", "-c", f"echo {line} >&2"], check=True)


def start_badly() -> None:
    with java_apart():
        for number in range(9):
            speak(f"line {number}")
        raise RuntimeError("no gateway")


def test_what_is_started_for_spark_is_not_heard(capfd: pytest.CaptureFixture[str]) -> None:
    with java_apart():
        speak("WARNING: modules")
    speak("ours")
    assert capfd.readouterr() == ("", "ours\n")


def test_if_spark_does_not_start_its_last_lines_are_told(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(BadValue) as raised:
        start_badly()
    assert str(raised.value).splitlines() == [
        "Spark did not start:",
        "no gateway",
        *(f"line {number}" for number in range(4, 9)),
    ]
    assert capfd.readouterr() == ("", "")
