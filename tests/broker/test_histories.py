"""Whole-broker histories against a model: whatever is asked, in whatever order, and whatever
ends in the middle of it, what was promised holds."""

import pytest

from support.histories import History

SEEDS = 60
MOVES = 40


@pytest.mark.parametrize("seed", range(SEEDS))
def test_what_was_promised_holds_whatever_happens(seed: int) -> None:
    """R4, R5, A1, T6, S5, S9, S10: a failing seed is the whole recipe."""
    History(seed).run(MOVES)
