"""What `groups reset` reads: durations, targets, and files of offsets."""

from pathlib import Path

import pytest

from tidelog.base.errors import BadValue
from tidelog.base.ids import TopicPartition
from tidelog.cli.groups import arranged
from tidelog.cli.reset_file import csv_lines, read_resets
from tidelog.cli.reset_target import Target, choose_target, duration_ms


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("P7D", 604_800_000),
        ("PT2H", 7_200_000),
        ("P1DT2H30M5.5S", 95_405_500),
        ("pt90m", 5_400_000),
        ("PT0S", 0),
    ],
)
def test_durations_are_read_as_iso_has_them(text: str, expected: int) -> None:
    assert duration_ms("--by-duration", text) == expected


@pytest.mark.parametrize("text", ["", "P", "PT", "P1DT", "1D", "P1H", "P-1D", "PT1.5H", "P1W"])
def test_a_duration_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(BadValue, match=f"--by-duration {text}: must be a duration such as P7D"):
        duration_ms("--by-duration", text)


def test_one_target_is_taken_even_if_it_is_zero() -> None:
    absent = {"--to-latest": False, "--to-datetime": None}
    assert choose_target({**absent, "--to-offset": 0}) == Target(option="--to-offset")
    assert choose_target({**absent, "--to-latest": True}).option == "--to-latest"
    noon = choose_target({"--to-datetime": "2026-05-01T12:00:00.000"})
    assert noon == Target(option="--to-datetime", time_ms=1_777_636_800_000)


def test_files_of_offsets_come_back_as_they_were_written(tmp_path: Path) -> None:
    resets = {'a,"b"': {TopicPartition("orders", 0): 5}, "c": {TopicPartition("users", 3): 0}}
    file = tmp_path / "offsets.csv"
    file.write_text("\n".join(csv_lines(resets, with_groups=True)))
    assert read_resets(file) == resets
    lines = csv_lines({"c": resets["c"]}, with_groups=False)
    assert lines == ["users,3,0"]
    file.write_text("\r\n".join([*lines, "", " users , 4 , 1 ", ""]))
    assert read_resets(file) == {
        None: {TopicPartition("users", 3): 0, TopicPartition("users", 4): 1}
    }


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "has no lines such as orders,0,42"),
        ("orders,0", "line 1: must be TOPIC,PARTITION,OFFSET or GROUP,"),
        ("orders,0,1\norders,x,1", "line 2: must be TOPIC,"),
        ("orders,0,-1", "line 1: must be TOPIC,"),
        ("orders,0,1\norders,0,2", "line 2: orders-0 stands there more than once"),
        ("orders,0,1\ng,orders,1,2", "either all lines begin with a group or none does"),
    ],
)
def test_a_bad_line_of_a_file_is_named(tmp_path: Path, content: str, message: str) -> None:
    file = tmp_path / "offsets.csv"
    file.write_text(content)
    with pytest.raises(BadValue, match=message):
        read_resets(file)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("--list --state", "list --state="),
        ("list --state Empty --type", "list --state Empty --type="),
        ("list --type --state -b a:1", "list --type= --state= -b a:1"),
        ("--describe --group g --state", "describe --group g --state"),
        ("--reset-offsets --group g", "reset --group g"),
    ],
)
def test_flags_with_or_without_values_are_told_apart(given: str, expected: str) -> None:
    actions = dict.fromkeys(("list", "describe", "reset", "delete"))
    assert arranged(given.split(), actions) == expected.split()
