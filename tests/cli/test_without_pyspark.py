"""Broker and commands where PySpark, and what comes with it, is not installed (trap 11)."""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from support.servers import ROOT, Server

LEFT_OUT = ("pyspark", "py4j", "pandas", "grpc", "googleapis", "yaml", "_yaml", "pyyaml")
NEEDED = "tidelog: this needs PySpark: pip install 'tidelog[spark]'\n"


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """All that is installed, but for these."""
    packages = tmp_path_factory.mktemp("packages")
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if not path.name.lower().startswith(LEFT_OUT):
            (packages / path.name).symlink_to(path)
    assert not list(packages.glob("pyspark*"))
    return {**os.environ, "PYTHONPATH": f"{packages}:{ROOT / 'src'}"}


def command(*arguments: str) -> list[str]:
    """Without the folder of packages that this Python has."""
    return [sys.executable, "-S", "-m", "tidelog.cli.main", *arguments]


def run(environment: dict[str, str], *arguments: str) -> tuple[int, str, str]:
    done = subprocess.run(
        command(*arguments), env=environment, capture_output=True, text=True, timeout=60
    )
    return done.returncode, done.stdout, done.stderr


def test_it_is_really_not_there(environment: dict[str, str]) -> None:
    program = [sys.executable, "-S", "-c", "import pyspark"]
    done = subprocess.run(program, env=environment, capture_output=True, text=True)
    assert "ModuleNotFoundError: No module named 'pyspark'" in done.stderr


def test_a_broker_starts(environment: dict[str, str], tmp_path: Path) -> None:
    with subprocess.Popen(
        command("server", "--set", "listeners=PLAINTEXT://127.0.0.1:0"),
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("listening on PLAINTEXT://127.0.0.1:")
        process.terminate()
    assert process.returncode == 0


def test_commands_that_need_no_spark_work(
    environment: dict[str, str], shared_server: Server
) -> None:
    given = {**environment, "TIDELOG_BOOTSTRAP_SERVER": shared_server.address}
    for topic in ("sparkless", "sparkless.dlq"):
        assert run(given, "topics", "create", topic) == (0, f"Created topic {topic}.\n", "")
    assert run(given, "produce", "sparkless.dlq", "a letter") == (0, "", "")
    status, out, err = run(given, "dlq", "list", "sparkless")
    assert (status, err) == (0, "")
    assert out.splitlines()[1].split()[3] == "1", "records"
    planned = ("--from", "earliest", "--into", "sparkless")
    status, out, err = run(given, "replay", "sparkless.dlq", *planned)
    assert (status, err) == (0, "")
    assert "at most 1 record would be copied" in out


@pytest.mark.parametrize(
    "arguments",
    [
        ("audit", "orders"),
        ("pipeline", "run"),
        ("replay", "orders", "--from", "0", "--into", "again", "--execute"),
        ("demo", "--spark"),
    ],
    ids=lambda arguments: arguments[0],
)
def test_commands_that_need_spark_say_so(
    environment: dict[str, str], arguments: tuple[str, ...]
) -> None:
    assert run(environment, *arguments) == (1, "", NEEDED)
