"""What decides over a record in compaction, and where what is left of batches goes.

Plain memory, for the kernels of `clean_kernels` to read and to fill.
"""

from array import array
from collections.abc import Iterable
from typing import Final, NamedTuple

from tidelog.base.ports import Buffer
from tidelog.records.arrays import Int64s, mapped, numbers, zeros

DROP: Final = 0
KEEP: Final = 1
KEEP_TOMBSTONE: Final = 2

GROWTH: Final = 13
"""By how much a record may grow when its timestamp is written anew: 9 bytes, and 4 more of
length."""
GROUP_BATCHES: Final = 256

# What `numbers` of the rules hold.
END: Final = 0
NOW_MS: Final = 1
NEW_HORIZON_MS: Final = 2
LAST_POSITION: Final = 3
"""Where in the buffer the last batch of the group ends; -1 if it is not in it."""


class Rules(NamedTuple):
    """What decides over a record. `numbers` by the names above; `active` is sorted."""

    numbers: Int64s
    active: Int64s


def new_rules(end: int, now_ms: int, new_horizon_ms: int, active: Iterable[int]) -> Rules:
    """The rules of one cleaning; `active` are the offsets whose batches stay, if empty."""
    return Rules(numbers(end, now_ms, new_horizon_ms, -1), array("q", sorted(active)))


class Output(NamedTuple):
    """Where cleaned batches go: `used` has one element, how much of `data` is taken. Verdicts
    and positions are of the batches at hand; `positions` has `GROUP_BATCHES` elements."""

    data: "memoryview[int]"
    used: Int64s
    verdicts: Buffer
    positions: Int64s


def new_output(size: int, verdicts: int) -> Output:
    return Output(mapped(size), zeros(1), mapped(verdicts), zeros(GROUP_BATCHES))
