"""Keys as 128-bit hashes, and the map from them to offsets (`key_table`), inside kernels.

Clients choose the keys, and two keys with one hash would cost one of them its data; so the
hash is SipHash-1-3 with 128 bits of result under a secret that nobody outside the process
knows. 96 bits of it are kept, and some of those say where the key's slot is; from there slots are
probed one after another. Whenever a record takes the place of an older one of the same key, the
older one is marked in a bitmap, if there is one for its offset: that spares the second pass the
lookup.

A lookup in a large map waits for memory. So records go through a `Window`: `add_to_window`
hashes the key and asks for the slot's cache line, and only when the window is full are its
slots read, all of them on their way by then.
"""

from typing import Any, Final

import numpy as np
from numba import types

from tidelog.records.byte_kernels import load_word
from tidelog.records.kernels import BYTES, BYTES_OUT, INT64S_OUT, helper, kernel
from tidelog.records.key_table import (
    FIRST,
    LINE_SLOTS,
    LINE_WORDS,
    SLOT_BYTES,
    SLOT_WORDS,
    SPAN_END,
    SPAN_START,
    USED,
    KeyTable,
    Window,
)
from tidelog.records.memory_kernels import inlined, prefetch

UINT64S: Final = types.Array(types.uint64, 1, "C", readonly=True)
UINT64S_OUT: Final = types.Array(types.uint64, 1, "C")

_FREE: Final = np.uint64(0)
_HALF: Final = np.uint64(32)
_LOW: Final = np.uint64(0xFFFFFFFF)
_START: Final = tuple(
    np.uint64(word)
    for word in (0x736F6D6570736575, 0x646F72616E646F6D, 0x6C7967656E657261, 0x7465646279746573)
)
_WIDE: Final = np.uint64(0xEE)
_SECOND: Final = np.uint64(0xDD)


KEY_TABLE: Final = types.NamedTuple(
    (UINT64S_OUT, UINT64S, INT64S_OUT, BYTES_OUT, BYTES_OUT), KeyTable
)
WINDOW_TYPE: Final = types.NamedTuple((UINT64S_OUT, *(INT64S_OUT,) * 4), Window)


@inlined
def _turn(word: Any, bits: Any) -> Any:
    return (word << np.uint64(bits)) | (word >> np.uint64(64 - bits))


@inlined
def _round(a: Any, b: Any, c: Any, d: Any) -> Any:
    a += b
    b = _turn(b, 13) ^ a
    a = _turn(a, 32)
    c += d
    d = _turn(d, 16) ^ c
    a += d
    d = _turn(d, 21) ^ a
    c += b
    b = _turn(b, 17) ^ c
    c = _turn(c, 32)
    return a, b, c, d


@inlined
def hash_key(buffer: Any, start: int, size: int, secret: Any) -> Any:
    """The two halves of the hash of `size` bytes."""
    a = secret[0] ^ _START[0]
    b = secret[1] ^ _START[1] ^ _WIDE
    c = secret[0] ^ _START[2]
    d = secret[1] ^ _START[3]
    position = start
    for _ in range(size >> 3):
        word = load_word(buffer, position)
        d ^= word
        a, b, c, d = _round(a, b, c, d)
        a ^= word
        position += 8
    word = np.uint64(size) << np.uint64(56)
    for place in range(size & 7):
        word |= np.uint64(buffer[position + place]) << np.uint64(8 * place)
    d ^= word
    a, b, c, d = _round(a, b, c, d)
    a ^= word
    c ^= _WIDE
    for _ in range(3):
        a, b, c, d = _round(a, b, c, d)
    first = a ^ b ^ c ^ d
    b ^= _SECOND
    for _ in range(3):
        a, b, c, d = _round(a, b, c, d)
    return first, a ^ b ^ c ^ d


@inlined
def _home(words: Any, second: Any) -> int:
    """The slot at which a key is looked for first, by the part of its hash that slots hold: the
    first one of a cache line, so that the next ones are there too."""
    lines = np.uint64((len(words) + LINE_WORDS - 1) // LINE_WORDS)
    return int(((second >> _HALF) * lines) >> _HALF) * LINE_SLOTS


@inlined
def add_to_window(
    table: Any, window: Any, buffer: Any, start: int, size: int, offset: int, ordinal: int
) -> None:
    first, second = hash_key(buffer, start, size, table.secret)
    slot = _home(table.words, second)
    prefetch(table.words, slot * SLOT_BYTES)
    place = window.count[0]
    window.hashes[2 * place] = first
    window.hashes[2 * place + 1] = second
    window.slots[place] = slot
    window.offsets[place] = offset
    window.ordinals[place] = ordinal
    window.count[0] = place + 1


@inlined
def find_slot(words: Any, slot: int, first: Any, second: Any) -> int:
    """The word at which the slot of a key begins: its own, or the free one where it belongs."""
    at = slot * SLOT_WORDS
    tag = first & _LOW
    while words[at + 1] & _LOW != _FREE and (words[at] != second or words[at + 1] >> _HALF != tag):
        at += SLOT_WORDS
        if at == len(words):
            at = 0
    return at


@inlined
def is_in_span(table: Any, offset: int) -> bool:
    return bool(table.tally[SPAN_START] <= offset < table.tally[SPAN_END])


@helper
def mark(table: Any, bits: Any, offset: int) -> None:
    """Sets the bit of an offset, if it has one."""
    if is_in_span(table, offset):
        bit = offset - table.tally[SPAN_START]
        bits[bit >> 3] |= np.uint8(1 << (bit & 7))


@inlined
def has_marks(bits: Any, first: int, last: int) -> bool:
    """Whether a bit is set among those from the first to the last, both included."""
    at, end = first >> 3, last >> 3
    begun, ended = 0xFF << (first & 7), 0xFF >> (7 - (last & 7))
    if at == end:
        return bool(bits[at] & begun & ended)
    found = bits[at] & begun | bits[end] & ended
    for place in range(at + 1, end):
        found |= bits[place]
    return bool(found & 0xFF)


@inlined
def is_untouched(table: Any, first: int, last: int) -> bool:
    """Whether the map has seen all records between two offsets, and each has a key and a value,
    and none a later one of the same key."""
    if not is_in_span(table, first) or not is_in_span(table, last):
        return False
    start = table.tally[SPAN_START]
    return not has_marks(table.outdated, first - start, last - start) and not has_marks(
        table.lacking, first - start, last - start
    )


@helper
def put_window(table: Any, window: Any) -> None:
    """Puts the records of the window into the map, which must have room for them. They come in
    the order of their offsets, none below the map's first, nor `OFFSETS_MAX` above it."""
    words = table.words
    for place in range(window.count[0]):
        first = window.hashes[2 * place]
        second = window.hashes[2 * place + 1]
        at = find_slot(words, window.slots[place], first, second)
        before = int(words[at + 1] & _LOW)
        if before:
            mark(table, table.outdated, before - 1 + table.tally[FIRST])
        else:
            words[at] = second
            table.tally[USED] += 1
        number = np.uint64(window.offsets[place] - table.tally[FIRST] + 1)
        words[at + 1] = first << _HALF | number
    window.count[0] = 0


@inlined
def has_mark(table: Any, offset: int) -> bool:
    """Whether the map knows a later record of the same key. Only for offsets within the span."""
    bit = offset - table.tally[SPAN_START]
    return bool(table.outdated[bit >> 3] >> (bit & 7) & 1)


@helper
def drop_outdated(table: Any, window: Any, verdicts: Any, dropped: int) -> None:
    """Writes `dropped` to the verdicts of those records of the window that have a later one of
    the same key in the map."""
    words = table.words
    for place in range(window.count[0]):
        first = window.hashes[2 * place]
        second = window.hashes[2 * place + 1]
        at = find_slot(words, window.slots[place], first, second)
        number = int(words[at + 1] & _LOW)
        if number and number - 1 + table.tally[FIRST] > window.offsets[place]:
            verdicts[window.ordinals[place]] = dropped
    window.count[0] = 0


@kernel(types.void(UINT64S_OUT, types.int64, types.int64, KEY_TABLE))
def move_keys(words: Any, start: int, end: int, table: Any) -> None:
    """Puts the keys of those slots of a smaller map into one that has no others."""
    for at in range(start * SLOT_WORDS, end * SLOT_WORDS, SLOT_WORDS):
        if words[at + 1] & _LOW != _FREE:
            second = words[at]
            to = find_slot(table.words, _home(table.words, second), words[at + 1] >> _HALF, second)
            table.words[to] = second
            table.words[to + 1] = words[at + 1]


@kernel(types.void(BYTES, UINT64S, UINT64S_OUT))
def hash_of(key: Any, secret: Any, result: Any) -> None:
    """The hash of one key, for those who check it."""
    result[0], result[1] = hash_key(key, 0, len(key), secret)
