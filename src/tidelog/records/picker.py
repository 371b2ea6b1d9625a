"""What a scan collects of a log's batches: leader epochs, and what the producer state needs.

Replaying what is picked gives the same state as replaying everything: all markers, and of
a producer's data batches the first one, those that begin an epoch or a transaction, the last
five with a sequence number, and the last without one. So what comes back from a scan grows with
producers and transactions, not with the log. `producer_kernels` does the picking.
"""

from typing import Any, Final, NamedTuple

from tidelog.records.arrays import Int64s, Table, numbers, rows_of, table_of, zeros

# The numbers of a batch that are handed on; the last two are a marker's.
ROW: Final = 10
DATA_ROW: Final = 8

KEPT_BATCHES: Final = 5
BATCHES_OF_ONE: Final = KEPT_BATCHES + 1
ENTRY: Final = 4
ID: Final = 0
FREE: Final = -1

PRODUCERS: Final = 0
PICKED: Final = 1


class Picker(NamedTuple):
    """`entries` and `batches` are the table, by slot, a power of two of them; `picked` are batches
    that stay for certain; `counts` how many there are of producers and of those."""

    entries: Table
    batches: Table
    picked: Table
    counts: Int64s


class EpochStarts(NamedTuple):
    """Pairs of a leader epoch and the offset at which the log changes to it; the latest epoch;
    how many pairs there are."""

    pairs: Table
    latest: Int64s
    count: Any


def new_picker(slots: int, room: int) -> Picker:
    entries, batches = table_of(slots, ENTRY), table_of(slots, BATCHES_OF_ONE, ROW)
    return Picker(entries, batches, rows_of(room, ROW), zeros(2))


def new_epoch_starts(room: int) -> EpochStarts:
    return EpochStarts(rows_of(room, 2), numbers(-1), zeros(1))


def take_picked(picker: Picker) -> list[list[int]]:
    """The batches that stay for certain, since the last call."""
    count = picker.counts[PICKED]
    picker.counts[PICKED] = 0
    return _rows(picker.picked, ROW, count)


def take_epochs(epochs: EpochStarts) -> list[list[int]]:
    """The epochs since the last call, and where they begin."""
    count = epochs.count[0]
    epochs.count[0] = 0
    return _rows(epochs.pairs, 2, count)


def last_batches(picker: Picker) -> list[list[int]]:
    """The last batches of every producer."""
    rows = []
    size = BATCHES_OF_ONE * ROW
    batches = picker.batches.cast("B").cast("q")
    for slot in range(len(picker.entries)):
        if picker.entries[slot, ID] != FREE:
            flat = batches[slot * size : (slot + 1) * size].tolist()
            rows += [flat[at : at + ROW] for at in range(0, size, ROW) if flat[at] != FREE]
    return rows


def _rows(table: Table, width: int, count: int) -> list[list[int]]:
    flat = table.cast("B")[: 8 * width * count].cast("q").tolist() if count else []
    return [flat[at : at + width] for at in range(0, len(flat), width)]
