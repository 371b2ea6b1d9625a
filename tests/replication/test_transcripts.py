"""The figures of the specification, replayed: R2 (both), I1, I3, I5, L3, L4, L5.

Each transcript says which row it shows. They are written anew only on purpose:
TIDELOG_WRITE_TRANSCRIPTS=1 pytest tests/replication/test_transcripts.py, and then read.
"""

import os
from pathlib import Path

import pytest

from support.transcripts import replay

TRANSCRIPTS = sorted((Path(__file__).parent / "transcripts").glob("*.txt"))


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_machines_do_what_the_transcript_says(path: Path) -> None:
    expected = path.read_text(encoding="utf-8")
    happens = replay(expected)
    if os.environ.get("TIDELOG_WRITE_TRANSCRIPTS"):
        path.write_text(happens, encoding="utf-8")
    assert happens == path.read_text(encoding="utf-8")


def test_every_row_that_has_a_figure_has_a_transcript() -> None:
    rows = {path.stem.partition("-")[0] for path in TRANSCRIPTS}
    assert {"R2", "I1", "I3", "I5", "L3", "L4", "L5"} <= rows


def test_transcript_that_says_something_else_is_noticed() -> None:
    text = (Path(__file__).parent / "transcripts" / "R2-two-rounds.txt").read_text()
    assert replay(text) == text
    wrong = text.replace("HW 1", "HW 2")
    assert replay(wrong) != wrong
