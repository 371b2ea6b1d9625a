"""`tidelog dump-log` as a command: what goes where, and its exit status (S4)."""

import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from tidelog.cli.dump_log import dump_log

FIXTURES = Path(__file__).parents[1] / "fixtures" / "kafka"
FOLDER = FIXTURES / "clean" / "codec-zstd-0"
LOG = FOLDER / "00000000000000000000.log"

app = typer.Typer()
app.command("dump-log")(dump_log)


def run(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, list(arguments))
    return result.exit_code, result.stdout, result.stderr


def test_dump_log_prints_several_files_with_commas_between_them() -> None:
    index = LOG.with_suffix(".index")
    status, out, err = run(
        "--files", f"{LOG},{index}", "--files", str(FOLDER / "partition.metadata")
    )
    assert (status, err) == (0, "")
    assert [line.partition(" ")[2] for line in out.splitlines() if line.startswith("Dumping")] == [
        str(LOG),
        str(index),
        str(FOLDER / "partition.metadata"),
    ]
    assert "baseOffset: 0 lastOffset: 4 count: 5 " in out


def test_dump_log_prints_records_with_the_fields_of_the_specification() -> None:
    status, out, _ = run("--files", str(LOG), "--print-data-log")
    assert status == 0
    assert (
        "offset: 1 position: 0 CreateTime: 1700000001000 isvalid: true keysize: 5 valuesize: 24 "
        "magic: 2 compresscodec: zstd producerId: -1 producerEpoch: -1 sequence: -1 "
        "isTransactional: false headerKeys: [trace,none] key: key-1 "
        "payload: value-1 value-1 value-1 \n"
    ) in out


def test_dump_log_says_what_is_wrong_on_the_error_stream_and_exits_with_1(tmp_path: Path) -> None:
    damaged = tmp_path / LOG.name
    damaged.write_bytes(LOG.read_bytes()[:-1])
    status, out, err = run("--files", f"{damaged},{LOG}")
    assert status == 1
    assert err.startswith("Found ")
    assert len(err.splitlines()) == 1
    assert f"Dumping {LOG}" in out, "the next file is dumped all the same"


def test_dump_log_checks_indexes() -> None:
    names = ",".join(str(path) for path in sorted(FOLDER.glob("*index")))
    status, out, err = run("--files", names, "--index-sanity-check")
    assert (status, err) == (0, "")
    assert out.count("passed sanity check.") == 4
    status, out, err = run("--files", names, "--verify-index-only")
    assert (status, err) == (0, "")
    assert "passed" not in out
    assert "offset:" not in out


def test_dump_log_of_a_missing_file_exits_with_1(tmp_path: Path) -> None:
    status, _, err = run("--files", str(tmp_path / "00000000000000000000.log"))
    assert status == 1
    assert "there is no such file" in err


@pytest.mark.parametrize("arguments", [[], ["--files", ","], ["--files", "a", "--max-bytes", "-1"]])
def test_dump_log_refuses_arguments_that_make_no_sense(arguments: list[str]) -> None:
    assert run(*arguments)[0] == 2


def test_dump_log_ends_quietly_when_its_reader_goes_away() -> None:
    script = "import typer; from tidelog.cli.dump_log import dump_log; typer.run(dump_log)"
    files = ",".join([str(LOG)] * 1000)
    command = [sys.executable, "-c", script, "--files", files]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
