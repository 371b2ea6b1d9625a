"""Flags that somebody used to Kafka's tools types: settings from a file, topics by a pattern, and
those that are refused with what to use instead (O2)."""

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Final

import pytest
from typer.testing import CliRunner

from support.servers import Server
from tidelog.base.errors import BadValue
from tidelog.cli.admin import admin_client
from tidelog.cli.kafka_style import rename_flags
from tidelog.cli.main import app
from tidelog.cli.produce import codec_named
from tidelog.client.client import TIMEOUT_MS
from tidelog.client.errors import Unreachable
from tidelog.log.dump import DumpOptions, dump
from tidelog.world.real.disk import RealDisk

TIDELOG: Final = str(Path(sys.executable).with_name("tidelog"))
SECONDS_MAX: Final = 60


@pytest.fixture(autouse=True)
def _bootstrap(shared_server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDELOG_BOOTSTRAP_SERVER", shared_server.address)


def run(*arguments: str, lines: bytes = b"") -> tuple[int, bytes, str]:
    result = CliRunner().invoke(app, list(arguments), prog_name="tidelog", input=lines)
    return result.exit_code, result.stdout_bytes, result.stderr


def written(topic: str, *values: str) -> None:
    assert run("produce", topic, *values) == (0, b"", "")


@pytest.mark.parametrize(
    "arguments",
    [
        "topics list",
        "topics create of-a-file",
        "topics describe",
        "topics alter t --partitions 9",
        "topics delete t",
        "configs describe topics",
        "configs set topic t retention.ms=5",
        "configs unset topic t retention.ms",
        "configs alter --topic t --add-config retention.ms=5",
        "groups list",
        "groups describe g",
        "groups delete g",
        "groups delete-offsets g --topic t",
        "groups reset g --topic t --to-earliest",
        "transactions list",
        "transactions describe t",
        "transactions describe --topic t --partition 0",
        "transactions describe-producers --topic t --partition 0",
        "transactions abort --topic t --partition 0 --start-offset 0",
        "transactions find-hanging t",
        "reassign list",
        "reassign generate t --broker-list 0",
        "reassign execute t --replicas 0",
        "reassign verify t",
        "reassign cancel t",
        "elect-leaders --all",
    ],
)
def test_every_command_that_administers_takes_a_file_of_settings(
    arguments: str, tmp_path: Path
) -> None:
    """And reads it before it does anything: a setting that nobody knows ends it."""
    file = tmp_path / "client.properties"
    file.write_text("client.id=ops\nsecurity.protocl=SSL\n")
    status, out, err = run(*arguments.split(), "--command-config", str(file))
    assert (status, out) == (1, b"")
    assert err == f"tidelog: {file}: security.protocl: is no setting of a client that administers\n"


def test_settings_of_an_admin_client_act_or_change_nothing(
    shared_server: Server, tmp_path: Path
) -> None:
    file = tmp_path / "client.properties"
    file.write_text("security.protocol=PLAINTEXT\nretries=3\nssl.keystore.location=/a\n")
    made = ("--create", "--topic", "by-a-file", "--command-config", str(file))
    assert run("topics", *made) == (0, b"Created topic by-a-file.\n", "")
    assert run("elect-leaders", "--all", "--admin.config", str(file))[0] == 0
    with admin_client(shared_server.address, file) as client:
        assert client.timeout_ms == TIMEOUT_MS
    file.write_text("request.timeout.ms=5000\n")
    assert admin_client("a:1", file).timeout_ms == 5000
    file.write_text("default.api.timeout.ms=7000\nrequest.timeout.ms=5000\n")
    assert admin_client("a:1", file).timeout_ms == 7000


def test_a_broker_is_told_the_name_that_the_file_gives(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("client.id=name-of-a-file\n")
    heard: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def hear() -> None:
            connection, _ = listening.accept()
            with connection:
                heard.append(connection.recv(4096))

        thread = Thread(target=hear)
        thread.start()
        where = f"127.0.0.1:{listening.getsockname()[1]}"
        with pytest.raises(Unreachable), admin_client(where, file) as client:
            client.cluster()
        thread.join(SECONDS_MAX)
    assert b"name-of-a-file" in heard[0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("security.protocol=SASL_SSL", "security.protocol=SASL_SSL: only PLAINTEXT"),
        ("request.timeout.ms=soon", "request.timeout.ms=soon: must be a number of milliseconds"),
        ("request.timeout.ms=99999999999999", "request.timeout.ms=99999999999999: must be"),
        ("default.api.timeout.ms=0", "default.api.timeout.ms=0: must be a number of milli"),
    ],
)
def test_a_setting_that_cannot_be_had_is_refused(text: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(text)
    with pytest.raises(BadValue, match=f"{file}: {message}"):
        admin_client("a:1", file)


@pytest.mark.parametrize("command", ["topics list", "produce t x", "consume t -e"])
def test_brokers_are_named_by_the_flag_and_not_by_a_file(command: str, tmp_path: Path) -> None:
    """As in Kafka; but a file that names others is not passed over where there was no flag."""
    run("topics", "create", "t", "--if-not-exists")
    file = tmp_path / "client.properties"
    file.write_text("bootstrap.servers=elsewhere.invalid:9092\n")
    with_file = (*command.split(), "--command-config", str(file))
    assert run(*with_file)[0] == 0
    status, _, err = run(*with_file, "-b", "127.0.0.1:9092")
    assert status == 1
    refused = "bootstrap.servers=elsewhere.invalid:9092: say --bootstrap-server elsewhere.invalid"
    assert err.startswith((f"tidelog: {refused}", "tidelog: cannot reach 127.0.0.1:9092"))


def test_topics_are_read_by_a_pattern() -> None:
    """It must match the whole name, and never means what brokers keep for themselves."""
    for topic in ("by-pattern-a", "by-pattern-b", "not-by-pattern-a"):
        written(topic, f"of {topic}")
    for flag in ("--include", "--whitelist"):
        status, out, err = run("consume", flag, "by-pattern-[ab]", "-f", "-e")
        assert (status, err) == (0, "")
        assert sorted(out.splitlines()) == [b"of by-pattern-a", b"of by-pattern-b"]
    in_json = run("consume", "--include", "by-pattern.*", "-f", "-e", "--json")[1].splitlines()
    assert {json.loads(line)["topic"] for line in in_json} == {"by-pattern-a", "by-pattern-b"}
    assert run("consume", "--include", "no-such.*", "-f", "-e") == (0, b"", "")
    group = ("--group", "by-pattern")
    assert (
        run("consume", "--include", "by-pattern-a", "-f", "-e", *group)[1] == b"of by-pattern-a\n"
    )
    assert run("consume", "--include", ".*consumer_off.*", "-f", "-e") == (0, b"", "")
    assert run("consume", "--include", "no-such.*", "-f", "-e", *group) == (0, b"", "")


@contextmanager
def consuming(*arguments: str) -> "Iterator[subprocess.Popen[str]]":
    process = subprocess.Popen(
        [TIDELOG, "consume", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate(timeout=SECONDS_MAX)


@pytest.mark.parametrize("group", [(), ("--group", "late-comers")])
def test_topics_that_are_made_later_are_read_too(group: tuple[str, ...]) -> None:
    name = f"late{len(group)}"
    written(f"{name}-a", "early")
    often = ("--consumer-property", "metadata.max.age.ms=100")
    with consuming("--include", f"{name}-.*", "-f", "-n", "3", *often, *group) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "early\n"
        written(f"{name}-b", "late")
        assert process.stdout.readline() == "late\n"
        assert run("topics", "delete", f"{name}-a")[0] == 0
        written(f"{name}-b", "later")
        assert process.stdout.readline() == "later\n", "the others go on"
        assert process.wait(SECONDS_MAX) == 0


def test_partitions_that_are_added_are_read_too() -> None:
    assert run("topics", "create", "growing", "-p", "1")[0] == 0
    written("growing", "early")
    often = ("--consumer-property", "metadata.max.age.ms=100")
    with consuming("growing", "-f", "-n", "2", *often) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "early\n"
        assert run("topics", "alter", "growing", "-p", "2")[0] == 0
        assert run("produce", "growing", "late", "--partition", "1")[0] == 0
        assert process.stdout.readline() == "late\n"


def test_flags_that_are_settings_of_a_producer_become_them(shared_server: Server) -> None:
    topic = "with-flags"
    where = ("--topic", topic, "--sync", "--timeout", "5", "--batch-size=5000")
    more = ("--message-send-max-retries", "2", "--request-timeout-ms", "20000")
    last = ("--retry-backoff-ms", "50", "--compression-codec", "--socket-buffer-size", "100000")
    assert run("produce", *where, *more, *last, lines=b"x" * 500) == (0, b"", "")
    (segment,) = (shared_server.log_dir / f"{topic}-0").glob("*.log")
    assert "compresscodec: gzip" in "".join(dump(RealDisk(), str(segment), DumpOptions()))
    status, _, err = run("produce", topic, "x", "--batch-size", "many")
    assert status == 1
    assert "batch.size" in err


def test_only_flags_are_given_other_names() -> None:
    names = {"--timeout": "--set=linger.ms="}
    given = ["t", "--timeout", "5", "--timeout=6", "--", "--timeout", "7"]
    expected = ["t", "--set=linger.ms=5", "--set=linger.ms=6", "--", "--timeout", "7"]
    assert rename_flags(given, names) == expected
    assert rename_flags(["--timeout"], names) == ["--timeout"]
    assert codec_named(["--compression-codec", "lz4"]) == ["--compression-codec", "lz4"]
    assert codec_named(["--compression-codec"]) == ["--compression-codec=gzip"]


def test_properties_come_from_a_file_and_from_flags_of_their_own(tmp_path: Path) -> None:
    file = tmp_path / "line.properties"
    file.write_text("parse.key=true\nkey.separator=:\n")
    assert run("produce", "propertied", "--reader-config", str(file), lines=b"k:12345678\n")[0] == 0
    file.write_text("print.key=true\nkey.separator=-\nprint.epoch=true\n")
    read = ("consume", "propertied", "-f", "-e", "--formatter-config", str(file))
    assert run(*read)[1] == b"Epoch:0-k-12345678\n"
    number = "org.apache.kafka.common.serialization.LongDeserializer"
    value = int.from_bytes(b"12345678")
    assert run(*read, "--value-deserializer", number)[1] == f"Epoch:0-k-{value}\n".encode()


def test_records_that_do_not_decode_can_be_passed_over() -> None:
    written("half-numbers", "eight by", "no number", "tes long")
    number = "org.apache.kafka.common.serialization.LongDeserializer"
    read = ("consume", "half-numbers", "-f", "-e", "--value-deserializer", number)
    status, _, err = run(*read)
    assert (status, err.count("LongDeserializer takes 8 bytes, not 9")) == (1, 1)
    status, out, err = run(*read, "--skip-message-on-error")
    assert (status, len(out.splitlines())) == (0, 2)
    assert "half-numbers-0 at 1: LongDeserializer takes 8 bytes, not 9" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            "topics --alter --topic t --config a=b",
            "--config: settings are changed with `tidelog co",
        ),
        ("topics --alter --topic t --delete-config a", "--delete-config: settings are taken back"),
        ("topics --describe --partition-size-limit-per-response 9", "--partition-size-limit-per-"),
        ("topics --version", "--version: `tidelog --version` tells it"),
        ("configs --describe --user me", "--user: only topics and brokers have settings here"),
        ("configs --describe --client-defaults", "--client-defaults: only topics and brokers"),
        ("configs --bootstrap-controller a:1 --describe", "--bootstrap-controller: brokers are"),
        ("produce t x --line-reader=Mine", "--line-reader: lines are read as --property says"),
        ("produce t x --max-block-ms 5", "--max-block-ms: use --producer-property message.timeout"),
        ("produce t x --max-memory-bytes 5", "--max-memory-bytes: use --producer-property queue."),
        ("consume t --formatter Mine", "--formatter: --property says what is printed, --json"),
        ("consume t --enable-systest-events", "--enable-systest-events: only Kafka's own tests"),
        ("consume t --include t", "t and --include t: give one of them"),
        ("consume --include t -p 0", "--partition and --include t: name a topic instead"),
        ("consume --include t -o 5", "--offset and --include t: name a topic instead"),
        ("consume --include a(", "--include a(: is no regular expression"),
    ],
)
def test_a_flag_that_is_not_there_is_refused_with_what_to_use(arguments: str, message: str) -> None:
    status, out, err = run(*arguments.split())
    assert (status, out) == (1, b"")
    assert err.startswith(f"tidelog: {message}")
    assert len(err.splitlines()) == 1
