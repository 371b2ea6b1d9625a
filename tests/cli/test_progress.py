"""Ctrl-C in long work is heard between two steps, and never within one."""

import signal

import pytest

from tidelog.cli.progress import Progress


def test_an_interrupt_is_raised_where_progress_is_told() -> None:
    before = signal.getsignal(signal.SIGINT)
    with Progress("records") as progress:
        progress.tell(1)
    steps = []

    def work() -> None:
        with Progress("records") as progress:
            signal.raise_signal(signal.SIGINT)
            steps.append("the step is finished")
            progress.tell(2)
            steps.append("the next one is not begun")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert steps == ["the step is finished"]
    assert signal.getsignal(signal.SIGINT) is before


def test_an_interrupt_in_the_last_step_is_not_forgotten() -> None:
    with pytest.raises(KeyboardInterrupt), Progress():
        signal.raise_signal(signal.SIGINT)


def test_a_second_interrupt_ends_the_process_at_once() -> None:
    def work() -> None:
        with Progress():
            signal.raise_signal(signal.SIGINT)
            assert signal.getsignal(signal.SIGINT) is signal.SIG_DFL

    with pytest.raises(KeyboardInterrupt):
        work()


def test_no_line_is_shown_to_scripts(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress("records") as progress:
        progress.tell(1)
    assert capsys.readouterr() == ("", "")


def test_the_line_is_gone_when_the_work_is_done(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    with Progress("records read") as progress:
        progress.tell(12_345)
    assert capsys.readouterr().err == "\r12,345 records read" + "\r" + " " * 19 + "\r"
