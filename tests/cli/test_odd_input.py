"""What nobody should type, and some do: each is told in one line, and nothing is done half."""

import subprocess
import sys
from pathlib import Path

import pytest

from support.command_line import run
from support.servers import Server
from support.wire_client import WireClient
from tidelog.records.batch import CRC_START
from tidelog.records.checksum import crc32c
from tidelog.records.reference import Record, encode_batch

TIDELOG = str(Path(sys.executable).with_name("tidelog"))


@pytest.fixture(autouse=True)
def _bootstrap(shared_server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDELOG_BOOTSTRAP_SERVER", shared_server.address)


def refused(*arguments: str) -> str:
    status, _, err = run(*arguments)
    assert status == 1
    assert err.startswith("tidelog: ")
    assert err.count("\n") == 1
    return err


def test_numbers_that_the_protocol_has_no_room_for_are_refused(tmp_path: Path) -> None:
    assert run("topics", "create", "odd-numbers")[0] == 0
    assert "too large" in refused("topics", "create", "odd-more", "--partitions", "99999999999")
    assert "too large" in refused("topics", "alter", "odd-numbers", "--partitions", "99999999999")
    assert "too large" in refused(
        "reassign", "execute", "odd-numbers:0", "--replicas", "9999999999"
    )
    file = tmp_path / "election.json"
    file.write_text('{"partitions": [{"topic": "odd-numbers", "partition": 9999999999}]}')
    assert "too large" in refused("elect-leaders", "--path-to-json-file", str(file))


def test_files_that_are_no_text_are_refused_by_name(tmp_path: Path) -> None:
    file = tmp_path / "odd.file"
    file.write_bytes(b"\xff\xfe=1\n")
    plan = ("--reset-offsets", "--group", "odd", "--from-file", str(file))
    for arguments in (
        ("server", "--config", str(file)),
        ("configs", "alter", "--topic", "odd", "--add-config-file", str(file)),
        ("groups", *plan),
    ):
        assert str(file) in refused(*arguments)


def test_a_group_is_named_by_a_flag_or_a_setting_and_has_a_name() -> None:
    assert run("topics", "create", "odd-groups")[0] == 0
    assert run("produce", "odd-groups", "one") == (0, "", "")
    command = ("consume", "odd-groups", "--from-beginning", "--exit")
    setting = ("--consumer-property", "group.id=odd-readers")
    assert run(*command, *setting) == (0, "one\n", "")
    assert run(*command, *setting, "--group", "odd-readers") == (0, "", ""), "it was committed"
    assert "give one of them" in refused(*command, *setting, "--group", "odd-others")
    assert "must not be empty" in refused(*command, "--group", "")
    assert "must not be empty" in refused(*command, "--consumer-property", "group.id=")


def test_keys_are_said_once_or_line_by_line() -> None:
    assert "--key k" in refused("produce", "odd-keys", "a:b", "--key", "k", "-K", ":")


def shell(command: str) -> tuple[int, str, str]:
    ended = subprocess.run(
        ["sh", "-c", command, TIDELOG], capture_output=True, text=True, timeout=120, check=False
    )
    return ended.returncode, ended.stdout, ended.stderr


def test_json_that_is_nested_too_deeply_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "deep.json"
    file.write_text("[" * 100_000)
    assert str(file) in refused("reassign", "execute", "--reassignment-json-file", str(file))
    assert str(file) in refused("elect-leaders", "--path-to-json-file", str(file))


def test_output_that_finds_no_room_is_told_in_one_line() -> None:
    assert run("topics", "create", "odd-room")[0] == 0
    assert run("produce", "odd-room", "one")[0] == 0
    for command in ("topics list", "consume odd-room -f -e"):
        status, _, err = shell(f'"$0" {command} >/dev/full')
        assert (status, err.count("\n")) == (1, 1)
        assert "No space left on device" in err


def test_closed_standard_streams_are_streams_to_nowhere() -> None:
    assert shell('"$0" topics create odd-streams >&- 2>&- <&-') == (0, "", "")
    assert shell('"$0" produce odd-streams <&-') == (0, "", ""), "no lines are no records"
    assert shell('"$0" produce odd-streams one <&- >&-') == (0, "", "")
    assert shell('"$0" consume odd-streams -f -e >&-') == (0, "", "")
    assert shell('"$0" topics describe odd-missing 2>&-') == (1, "", "")


@pytest.mark.parametrize(
    "command",
    [
        "topics create BYTE",
        "topics describe --topic-id BYTE",
        "configs describe topic BYTE",
        "groups describe BYTE",
        "consume BYTE",
        "consume odd-bytes -f -e --group BYTE",
        "consume odd-bytes -f -e --property key.separator=BYTE",
        "consume odd-bytes -f -e --consumer-property client.id=BYTE",
        "produce odd-bytes a --key-separator BYTE",
        "produce odd-bytes a --header BYTE=1",
        "produce odd-bytes a --producer-property client.id=BYTE",
    ],
)
def test_arguments_that_are_no_text_are_refused(command: str) -> None:
    run("topics", "create", "odd-bytes", "--if-not-exists")
    byte = '"$(printf "\\377")"'
    status, _, err = shell(f'"$0" {command.replace("BYTE", byte)}')
    assert (status, err.count("\n")) == (1, 1), err
    assert "\\udcff" in err


def test_a_line_with_a_header_that_is_no_text_is_refused_and_those_before_are_written() -> None:
    assert run("topics", "create", "odd-lines")[0] == 0
    lines = "a:1\\tone\\n\\377:1\\ttwo\\na:1\\tthree\\n"
    status, _, err = shell(f'printf "{lines}" | "$0" produce odd-lines --headers')
    assert (status, err.count("\n")) == (1, 1), err
    assert "line 2 has a header whose name is no text" in err
    assert run("consume", "odd-lines", "-f", "-e") == (0, "one\n", "")


def test_a_file_that_is_no_csv_is_refused_by_name(tmp_path: Path) -> None:
    file = tmp_path / "odd.csv"
    for content in (b"a" * 200_000, b"orders,0," + b"9" * 5_000):
        file.write_bytes(content)
        assert str(file) in refused("groups", "reset", "odd", "--from-file", str(file))


def test_a_folder_that_was_removed_meanwhile_is_told() -> None:
    for command in ("server", "znode ls"):
        gone = 'folder=$(mktemp -d) && cd "$folder" && rmdir "$folder" && '
        status, _, err = shell(f'{gone}"$0" {command}')
        assert (status, err.count("\n")) == (1, 1), err
        assert "current folder" in err


def test_a_record_with_a_header_that_is_no_text_holds_up_no_reader(shared_server: Server) -> None:
    """However often it happens: CPython calls differently what it has called a few times."""
    count = 20
    assert run("topics", "create", "odd-headers")[0] == 0
    assert run("produce", "odd-headers", "one")[0] == 0
    record = Record(offset=0, timestamp=0, value=b"two", headers=(("name", b"1"),))
    batch = encode_batch([record]).replace(b"name", b"n\xffme")
    batch[CRC_START - 4 : CRC_START] = crc32c(batch[CRC_START:]).to_bytes(4, "big")
    with WireClient(shared_server.address) as client:
        for _ in range(count):
            assert client.produce("odd-headers", bytes(batch)).error_code.name == "none"
    assert run("produce", "odd-headers", "three")[0] == 0
    status, out, err = run("consume", "odd-headers", "-f", "-e")
    assert (status, out) == (0, "one\n" + "two\n" * count + "three\n"), err
    told = "a header's name is no text in UTF-8: its headers are left out"
    lines = [f"tidelog: odd-headers-0 at {offset}: {told}\n" for offset in range(1, count + 1)]
    assert err == "".join(lines)
