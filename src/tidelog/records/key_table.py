"""The map of compaction, from keys to their last offsets, as memory that kernels fill.

The map is one array, two words a slot, so that none lies in two cache lines: 96 bits of
the key's hash, and 32 for the offset, counted from 1 at the first of the map, 0 where the slot
is free. It begins small and grows in a few large steps while there are more keys, up to what it
may take; where a key belongs follows from the bits that its slot holds, in their order, so a
table is moved into a larger one from front to back, and what was moved is given back on the way.
`key_kernels` is the code.
"""

from array import array
from typing import Any, Final, NamedTuple, TypeAlias

from tidelog.base.errors import BadValue
from tidelog.records.arrays import Int64s, forget, mapped, numbers, zeros
from tidelog.records.native import move_keys

SLOT_WORDS: Final = 2
SLOT_BYTES: Final = 8 * SLOT_WORDS
LINE_SLOTS: Final = 4
LINE_WORDS: Final = LINE_SLOTS * SLOT_WORDS
"""Of a cache line."""
WINDOW: Final = 128
OFFSETS_MAX: Final = (1 << 32) - 1
"""How many offsets, from the first one on, a map can tell apart."""

# What `tally` holds: how many slots are used, how many may be, the first offset of the map, the
# offsets with a bit, and how many slots may be used of the largest table.
USED: Final = 0
LIMIT: Final = 1
FIRST: Final = 2
SPAN_START: Final = 3
SPAN_END: Final = 4
LIMIT_MAX: Final = 5
SLOTS_MAX: Final = 6

_ROOMY: Final = 1.2
"""Slots a key where memory allows: fewer make probes long, more cost memory."""
_BITS_SHARE: Final = 16
"""Bits for offsets may take one part in so many, on top of the map."""
_FIRST_SLOTS: Final = 1 << 17
_STEP: Final = 4
"""A map that is too small becomes so many times as large, so that keys are seldom moved."""
_FULL: Final = 0.6
"""The share of slots in use at which a map grows while it may: probes stay within a cache line."""
_MOVED_SLOTS: Final = 1 << 17

Words: TypeAlias = "memoryview[Any]"


class KeyTable(NamedTuple):
    """The map: its slots, the secret of the hash (2 words), the numbers named above, and two bits
    for each offset of the span: set for those whose key has a later one, and for those whose
    record has no key or no value."""

    words: Words
    secret: "array[int]"
    tally: Int64s
    outdated: "memoryview[int]"
    lacking: "memoryview[int]"


class Window(NamedTuple):
    """Records on their way to the map. `count` has one element; an ordinal is whatever the
    one who added the record wants to know it by."""

    hashes: "array[int]"
    slots: Int64s
    offsets: Int64s
    ordinals: Int64s
    count: Any


def new_window() -> Window:
    hashes = array("Q", bytes(16 * WINDOW))
    return Window(hashes, zeros(WINDOW), zeros(WINDOW), zeros(WINDOW), zeros(1))


def make_table(
    map_bytes: int, load_factor: float, span: tuple[int, int], secret: bytes
) -> KeyTable:
    """An empty map that may grow to `map_bytes`, less if there are not that many offsets in
    `span`, with bits for each of them if those take little."""
    most = map_bytes // SLOT_BYTES
    limit = min(int(most * load_factor), most - 1)
    if limit < 1:
        raise BadValue(
            f"log.cleaner.dedupe.buffer.size: {map_bytes} bytes hold no key; "
            f"each takes {SLOT_BYTES} bytes"
        )
    first, offsets = span[0], max(1, span[1] - span[0])
    if offsets // 4 > map_bytes // _BITS_SHARE:
        span = (0, 0)
    start, end = span
    slots_max = min(most, int(_ROOMY * offsets) + 1)
    tally = numbers(0, 0, first, start, end, min(limit, slots_max - 1), slots_max)
    slots = min(_FIRST_SLOTS, slots_max)
    tally[LIMIT] = _limit(tally, slots)
    words = array("Q")
    words.frombytes(secret)
    bits = (end - start + 7) // 8
    return KeyTable(_words(slots), words, tally, mapped(bits), mapped(bits))


def grown(table: KeyTable, keys: int, next_offset: int) -> KeyTable:
    """The map with room for so many keys more than those of the records before `next_offset`, as
    far as it may grow."""
    tally = table.tally
    is_mostly_new = 2 * tally[USED] > next_offset - tally[FIRST]
    slots = len(table.words) // SLOT_WORDS
    while tally[LIMIT] < min(tally[USED] + keys, tally[LIMIT_MAX]):
        slots = _next_size(slots, tally[SLOTS_MAX], is_mostly_new)
        tally[LIMIT] = _limit(tally, slots)
    larger = table._replace(words=_words(slots))
    count = len(table.words) // SLOT_WORDS
    for start in range(0, count, _MOVED_SLOTS):
        end = min(start + _MOVED_SLOTS, count)
        move_keys(table.words, start, end, larger)
        forget(table.words, start * SLOT_BYTES, end * SLOT_BYTES)
    return larger


def _next_size(slots: int, most: int, is_mostly_new: bool) -> int:
    """A step; or all that may be had, if that is less than twice as much and records mostly bring
    new keys."""
    larger = _STEP * slots
    return most if larger * (2 if is_mostly_new else 1) > most else larger


def _limit(tally: Int64s, slots: int) -> int:
    """How many of so many slots may be used."""
    return tally[LIMIT_MAX] if slots == tally[SLOTS_MAX] else int(slots * _FULL)


def _words(slots: int) -> Words:
    return mapped(slots * SLOT_BYTES).cast("Q")
