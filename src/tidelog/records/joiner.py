"""Batches of many partitions, joined by partition: what kernels do, and the memory they do it in.

A request's batches are found (`find`) while it is read. When all requests that came together are
read and it is known which log each batch is for, `join` has each log's batches behind one
another, stamped and ready to be written. A process has one joiner, for its loop: one request is
read, and one lot served, at a time, and no other thread may use it. Where kernels would have to be
compiled first there is none, and batches are appended one by one.
"""

from array import array
from collections.abc import Sequence
from typing import Final

from tidelog.records.batch import HEADER_SIZE
from tidelog.records.join_layout import (
    ANSWER,
    BATCH_COLUMNS,
    BATCH_POSITION,
    BYTES_MAX,
    LOG_WORDS,
    NEXT_OFFSET,
    ROW_WORDS,
    RUN_WORDS,
    TOPIC_WORDS,
)
from tidelog.records.native import address_of, code, find_rows, join_batches

ROWS_MAX: Final = BYTES_MAX // HEADER_SIZE
TOPICS_MAX: Final = 256
"""In a request."""


def _words(count: int) -> "array[int]":
    return array("q", bytes(8 * count))


def _table(words: "array[int]", width: int) -> memoryview:
    return memoryview(words).cast("B").cast("q", (len(words) // width, width))


class Joiner:
    def __init__(self) -> None:
        self._place = _words(4)
        self._topics = _words(TOPIC_WORDS * TOPICS_MAX)
        self._found = _words(ROW_WORDS * ROWS_MAX)
        self._counts = _words(2)
        self._rows = _words(ROW_WORDS * ROWS_MAX)
        self._run_of = _words(ROWS_MAX)
        self._logs = _words(LOG_WORDS * ROWS_MAX)
        self._runs = _words(RUN_WORDS * ROWS_MAX)
        self._batches = _words(BATCH_COLUMNS * ROWS_MAX)
        self._joined = bytearray(BYTES_MAX)
        self._answers = bytearray(ANSWER.size * ROWS_MAX)
        self.joined: Final = memoryview(self._joined)
        self.answers: Final = memoryview(self._answers)
        self._find = find_rows.prepared(
            self._place, _table(self._topics, TOPIC_WORDS), _table(self._found, ROW_WORDS)
        )
        self._join = join_batches.prepared(
            (
                self._counts,
                _table(self._rows, ROW_WORDS),
                self._run_of,
                _table(self._logs, LOG_WORDS),
            ),
            (
                _words(ROWS_MAX),
                _table(self._runs, RUN_WORDS),
                _table(self._batches, ROWS_MAX),
                self._joined,
                self._answers,
            ),
        )

    def find(self, frame: memoryview, at: int, topics: int, have_ids: bool) -> "Found | None":
        """Finds all batches of a request whose first topic begins at `at`; None if somebody has to
        look closer."""
        address = address_of(frame)
        place = self._place
        place[0], place[1] = address + at, address + len(frame)
        place[2], place[3] = topics, have_ids
        count = self._find.on_all_memory()
        if not count:
            return None
        words = self._topics[: TOPIC_WORDS * topics].tolist()
        return Found(self._found[: ROW_WORDS * count], words, address)

    def join(
        self, requests: Sequence["array[int]"], run_of: list[int], logs: list[int]
    ) -> "Joined | None":
        """Joins the rows of some requests, given the run that each is in and, for each run, the
        words of its log; None if one is not ordinary."""
        count = len(run_of)
        assert count <= ROWS_MAX, "requests of more than BYTES_MAX together"
        at = 0
        for rows in requests:
            self._rows[at : at + len(rows)] = rows
            at += len(rows)
        self._run_of[:count] = array("q", run_of)
        self._logs[: len(logs)] = array("q", logs)
        self._counts[0], self._counts[1] = count, len(logs) // LOG_WORDS
        return Joined(self, count) if self._join.on_all_memory() else None

    def runs(self) -> list[int]:
        """The words of the runs that were joined last."""
        return self._runs[: RUN_WORDS * self._counts[1]].tolist()

    def column(self, field: int, count: int) -> list[int]:
        """One of the columns of their batches."""
        start = field * ROWS_MAX
        return self._batches[start : start + count].tolist()


class Found:
    """The batches of a request, for as long as it stays where it is, at `address`: their rows, and
    the words of its topics."""

    __slots__ = ("address", "rows", "topics")

    def __init__(self, rows: "array[int]", topics: list[int], address: int) -> None:
        self.rows = rows
        self.topics = topics
        self.address = address


class Joined:
    """Batches that were joined, until the next are: the words of their runs, and of the batches the
    columns that are asked for."""

    __slots__ = ("_columns", "_count", "_joiner", "data", "next_offsets", "positions", "runs")

    def __init__(self, joiner: Joiner, count: int) -> None:
        self._joiner = joiner
        self._count = count
        self._columns: dict[int, list[int]] = {}
        self.data = joiner.joined
        """What is to be written, at the places that the runs tell."""
        self.runs = joiner.runs()
        self.next_offsets = self.column(NEXT_OFFSET)
        self.positions = self.column(BATCH_POSITION)

    def column(self, field: int) -> list[int]:
        found = self._columns.get(field)
        if found is None:
            found = self._columns[field] = self._joiner.column(field, self._count)
        return found


class _Place:
    joiner: Joiner | None = None
    is_known = False


_place: Final = _Place()


def the_joiner() -> Joiner | None:
    if not _place.is_known:
        _place.is_known = True
        if code.is_at_hand():
            _place.joiner = Joiner()
    return _place.joiner
