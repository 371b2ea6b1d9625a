"""What a person sees of Spark in a terminal: nothing, unless it does not start."""

import subprocess

import pytest

from tidelog.base.errors import BadValue
from tidelog.cli.spark_session import java_apart


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
