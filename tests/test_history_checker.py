"""The history checker itself: each anomaly is found where it is, and nothing where it is not.

A checker that was never seen to fail is not evidence. So each kind of anomaly has histories that
hold it, made by hand, and thousands of histories of a log that behaves, with
retries, lost answers, gaps and slow clients, must pass.
"""

import gc
import time
from collections import Counter
from random import Random

import pytest

from support.history_checker import (
    KINDS,
    Assign,
    EndOffset,
    Operation,
    Outcome,
    Poll,
    Record,
    Send,
    check,
)

KEY = ("orders", 0)
OTHER = ("orders", 1)
GOOD_HISTORIES = 10_000
LONG_HISTORY = 20_000


def sent(at: int, *places: tuple[str, int], by: str = "p1", until: int | None = None) -> Send:
    """Acknowledged, one tick later if nothing else is said."""
    return Send(
        process=by,
        key=KEY,
        invoked=at,
        completed=at + 1 if until is None else until,
        outcome="ok",
        values=tuple(value for value, _ in places),
        offsets=tuple(offset for _, offset in places),
    )


def unanswered(at: int, *values: str, outcome: Outcome = "info", by: str = "p1") -> Send:
    return Send(process=by, key=KEY, invoked=at, completed=at + 1, outcome=outcome, values=values)


def unsafe(at: int, value: str, offset: int) -> Send:
    """With acks=1, and without idempotence."""
    return Send(
        process="p1",
        key=KEY,
        invoked=at,
        completed=at + 1,
        outcome="ok",
        values=(value,),
        offsets=(offset,),
        is_durable=False,
        is_idempotent=False,
    )


def read(at: int, *records: tuple[str, int], by: str = "c1", start: int | None = None) -> Poll:
    return Poll(
        process=by,
        key=KEY,
        invoked=at,
        completed=at + 1,
        records=tuple((offset, value) for value, offset in records),
        start=start,
    )


def final(at: int, *records: tuple[str, int], by: str = "f1") -> Poll:
    found = tuple((offset, value) for value, offset in records)
    return Poll(
        process=by, key=KEY, invoked=at, completed=at + 1, records=found, start=0, is_final=True
    )


def moved(at: int, by: str = "c1") -> Assign:
    return Assign(process=by, key=KEY, invoked=at)


def end(at: int, offset: int) -> EndOffset:
    return EndOffset(process="e", key=KEY, invoked=at, completed=at + 1, offset=offset)


A0, B1, C2, D3 = ("a", 0), ("b", 1), ("c", 2), ("d", 3)
FOUR = [sent(0, A0), sent(2, B1), sent(4, C2), sent(6, D3)]

BAD: list[tuple[str, str, list[Operation]]] = [
    # One offset, two records.
    ("inconsistent-offsets", "two readers differ", [*FOUR, read(9, A0), read(9, ("b", 0), by="c")]),
    ("inconsistent-offsets", "reader and writer differ", [*FOUR, read(9, ("b", 0))]),
    ("inconsistent-offsets", "two writers got it", [sent(0, A0, until=9), sent(0, ("b", 0))]),
    ("inconsistent-offsets", "it changed later", [*FOUR, read(9, A0, B1), final(20, A0, ("z", 1))]),
    (
        "inconsistent-offsets",
        "what was read changed, though it was written with acks=1",
        [unsafe(0, "a", 0), unsafe(2, "b", 0), read(4, A0), read(6, ("b", 0), by="c2")],
    ),
    # One record, two offsets.
    ("duplicate", "a retry was appended again", [unanswered(0, "a"), read(4, A0, ("a", 1))]),
    ("duplicate", "two readers see it elsewhere", [*FOUR, read(9, A0), read(9, ("a", 4), by="c")]),
    ("duplicate", "acknowledged here, read there", [sent(0, A0), read(4, ("a", 7))]),
    # What failed must not be there.
    ("aborted-read", "a failed one", [unanswered(0, "a", outcome="fail"), read(4, A0)]),
    (
        "aborted-read",
        "a failed one among good ones",
        [sent(0, A0), unanswered(2, "b", outcome="fail"), sent(4, C2), read(9, A0, B1, C2)],
    ),
    ("aborted-read", "at the end only", [unanswered(0, "a", outcome="fail"), final(4, A0)]),
    # What nobody wrote must not be there.
    ("unwritten", "from nowhere", [read(4, A0)]),
    ("unwritten", "behind good ones", [*FOUR, read(9, A0, B1, C2, D3, ("ghost", 4))]),
    ("unwritten", "at the end", [sent(0, A0), final(9, A0, ("ghost", 1))]),
    # Skipped by all.
    ("lost-write", "the second", [*FOUR, read(9, A0), moved(11), read(12, C2)]),
    ("lost-write", "the first", [*FOUR, read(9, D3)]),
    ("lost-write", "one of two at once", [sent(0, A0, B1), sent(2, C2), read(9, C2, by="c2")]),
    # Not there at the end.
    ("unseen", "the last one", [*FOUR, final(20, A0, B1, C2)]),
    ("unseen", "all of them", [*FOUR, final(20)]),
    ("unseen", "for one of two readers", [*FOUR, final(20, A0, B1, C2, D3), final(20, A0, by="f")]),
    ("unseen", "half of what was sent at once", [sent(0, A0, B1), final(9, A0)]),
    # Read, and gone.
    ("vanished", "an unanswered one", [unanswered(0, "a"), read(4, A0), final(9)]),
    ("vanished", "the tail", [sent(0, A0), unanswered(2, "b"), read(6, A0, B1), final(9, A0)]),
    ("vanished", "one with acks=1 that was read", [unsafe(0, "a", 0), read(4, A0), final(9)]),
    # Readers go on where they were.
    ("poll-skip", "one is left out", [*FOUR, read(9, A0), read(11, C2)]),
    ("poll-skip", "two are left out", [*FOUR, read(9, A0), read(11, D3)]),
    (
        "poll-skip",
        "also what others know only",
        [*FOUR, read(8, B1, by="c2"), *map(read, (9,), (A0,)), read(11, C2)],
    ),
    ("nonmonotonic-poll", "again the same", [*FOUR, read(9, A0), read(11, A0)]),
    ("nonmonotonic-poll", "back by two", [*FOUR, read(9, A0, B1, C2), read(11, A0)]),
    (
        "nonmonotonic-poll",
        "back after a jump",
        [*FOUR, read(9, C2), moved(11), read(12, B1), read(14, A0)],
    ),
    ("int-poll-skip", "one is left out", [*FOUR, read(9, A0, C2)]),
    ("int-poll-skip", "at the end of the answer", [*FOUR, read(9, A0, B1, D3)]),
    ("int-nonmonotonic-poll", "back", [*FOUR, read(9, B1, A0)]),
    ("int-nonmonotonic-poll", "twice", [*FOUR, read(9, A0, A0)]),
    # Producers' records stay in order.
    ("nonmonotonic-send", "swapped", [sent(0, ("a", 1), until=9), sent(1, ("b", 0), until=9)]),
    ("nonmonotonic-send", "back by two", [sent(0, D3, until=9), sent(2, ("e", 1), until=9)]),
    ("int-nonmonotonic-send", "swapped", [sent(0, ("a", 1), ("b", 0))]),
    ("int-nonmonotonic-send", "twice the same", [sent(0, ("a", 0), ("b", 0))]),
    # Offsets follow real time.
    ("real-time-order", "before one that was there", [sent(0, D3), sent(5, A0, by="p2")]),
    (
        "real-time-order",
        "before one that was read",
        [sent(0, D3, until=20), read(2, D3), sent(5, A0, by="p2", until=9)],
    ),
    (
        "real-time-order",
        "an unanswered one",
        [sent(0, D3), unanswered(5, "a", by="p2"), read(9, A0)],
    ),
    ("real-time-order", "the same offset again", [sent(0, A0), sent(5, ("b", 0), by="p2")]),
    # What was acknowledged is in later answers.
    ("acknowledged-not-read", "the first", [*FOUR, read(9, B1, C2, start=0)]),
    ("acknowledged-not-read", "in the middle", [*FOUR, read(9, B1, D3, start=1)]),
    ("stale-end", "before the last", [*FOUR, end(9, 3)]),
    ("stale-end", "empty", [sent(0, A0), end(9, 0)]),
]

GOOD: list[tuple[str, list[Operation]]] = [
    ("nothing happened", []),
    ("gaps are legal", [sent(0, A0), sent(2, ("b", 5)), read(4, A0, ("b", 5))]),
    ("unanswered and gone", [unanswered(0, "a"), final(9)]),
    ("unanswered and there", [unanswered(0, "a"), read(5, A0), final(9, A0)]),
    ("acks=1 and gone", [unsafe(0, "a", 0), sent(2, ("b", 0)), final(9, ("b", 0))]),
    ("acks=1 and twice", [unsafe(0, "a", 0), read(2, A0, ("a", 1)), final(9, A0, ("a", 1))]),
    ("failed and gone", [unanswered(0, "a", outcome="fail"), final(9)]),
    ("not read yet", [*FOUR, read(9, A0)]),
    ("moved back", [*FOUR, read(9, C2), moved(11), read(12, A0, B1)]),
    (
        "asked while it was written",
        [sent(0, A0, until=9), sent(1, B1, by="p2"), read(4, B1, start=1), final(9, A0, B1)],
    ),
    ("the end while it was written", [sent(0, A0, until=9), end(4, 0)]),
    ("the very same moment", [sent(0, B1, until=5), sent(5, A0, by="p2"), final(9, A0, B1)]),
]


@pytest.mark.parametrize(
    ("kind", "history"), [pytest.param(k, h, id=f"{k}: {t}") for k, t, h in BAD]
)
def test_an_anomaly_is_found_where_it_is(kind: str, history: list[Operation]) -> None:
    found = check(history)
    assert kind in {anomaly.kind for anomaly in found}
    assert all(KINDS[anomaly.kind] in str(anomaly) for anomaly in found)


@pytest.mark.parametrize("history", [pytest.param(h, id=text) for text, h in GOOD])
def test_what_may_happen_is_no_anomaly(history: list[Operation]) -> None:
    assert check(history) == []


def test_every_kind_of_anomaly_has_bad_histories() -> None:
    counts = Counter(kind for kind, _, _ in BAD)
    assert set(counts) == set(KINDS)
    assert min(counts.values()) >= 2
    assert len(BAD) >= 40


def test_partitions_are_looked_at_one_by_one() -> None:
    elsewhere = Poll(process="c1", key=OTHER, invoked=9, completed=10, records=((0, "x"),))
    (found,) = check([*FOUR, read(9, A0, B1, C2, D3), elsewhere])
    assert (found.kind, found.key, found.offset) == ("unwritten", OTHER, 0)


class GoodLog:
    """A log that does what it promises, and clients of all kinds around it. Time is a counter."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._now = 0
        self._log: list[Record] = []
        self._next_offset = 0
        self._committed = 0
        self._positions: dict[str, int] = {}
        self.history: list[Operation] = []
        self._value = 0

    def _tick(self) -> int:
        self._now += 1
        return self._now

    def run(self, steps: int) -> list[Operation]:
        moves = (self.write, self.write, self.write_side_by_side, self.read, self.ask_end)
        for _ in range(steps):
            self._random.choice(moves)()
        self._committed = len(self._log)
        self.read_all_at_the_end()
        return self.history

    def _append(self) -> Record:
        """Offsets may be left out, as by markers of transactions."""
        self._next_offset += 1 if self._random.random() < 0.9 else 3
        self._value += 1
        record = (self._next_offset - 1, self._value)
        self._log.append(record)
        return record

    def write(self) -> None:
        process, invoked = f"p{self._random.randrange(3)}", self._tick()
        records = [self._append() for _ in range(self._random.randrange(1, 4))]
        outcomes: tuple[Outcome, ...] = ("ok", "ok", "info", "fail")
        outcome = self._random.choice(outcomes)
        if outcome == "fail":
            del self._log[-len(records) :]
        else:
            self._committed = len(self._log)
        self._answer(process, invoked, records, outcome)

    def write_side_by_side(self) -> None:
        """Two producers at once: whoever asked first may come second."""
        first, second = self._tick(), self._tick()
        later, sooner = [self._append()], [self._append()]
        if self._random.random() < 0.5:
            later, sooner = sooner, later
        self._committed = len(self._log)
        self._answer("p4", first, later, "ok")
        outcomes: tuple[Outcome, ...] = ("ok", "info")
        self._answer("p5", second, sooner, self._random.choice(outcomes))

    def _answer(self, process: str, invoked: int, records: list[Record], outcome: Outcome) -> None:
        self.history.append(
            Send(
                process=process,
                key=KEY,
                invoked=invoked,
                completed=self._tick(),
                outcome=outcome,
                values=tuple(value for _, value in records),
                offsets=tuple(offset for offset, _ in records) if outcome == "ok" else (),
            )
        )

    def read(self) -> None:
        process, invoked = f"c{self._random.randrange(2)}", self._tick()
        if self._random.random() < 0.1:
            self.history.append(Assign(process=process, key=KEY, invoked=invoked))
            self._positions[process] = self._random.randrange(len(self._log) + 1)
            return
        first = self._positions.get(process, 0)
        records = self._log[first : min(self._committed, first + self._random.randrange(5))]
        self._positions[process] = first + len(records)
        self._note_poll(process, invoked, records)

    def read_all_at_the_end(self) -> None:
        for process in ("f1", "f2"):
            self._note_poll(process, self._tick(), self._log, is_final=True)

    def _note_poll(
        self, process: str, invoked: int, records: list[Record], is_final: bool = False
    ) -> None:
        self.history.append(
            Poll(
                process=process,
                key=KEY,
                invoked=invoked,
                completed=self._tick(),
                records=tuple(records),
                start=records[0][0] if records else None,
                is_final=is_final,
            )
        )

    def ask_end(self) -> None:
        invoked = self._tick()
        offset = self._log[self._committed - 1][0] + 1 if self._committed else 0
        self.history.append(
            EndOffset(process="e", key=KEY, invoked=invoked, completed=self._tick(), offset=offset)
        )


def test_thousands_of_good_histories_have_no_anomaly() -> None:
    lengths = 0
    for seed in range(GOOD_HISTORIES):
        random = Random(seed)
        history = GoodLog(random).run(random.randrange(2, 10))
        lengths += len(history)
        random.shuffle(history)
        found = check(history)
        assert not found, f"seed {seed}: {found[0]}"
    assert lengths > 5 * GOOD_HISTORIES


def test_a_good_history_that_is_tampered_with_is_good_no_longer() -> None:
    """Every acknowledged record that is taken out of the final reads is missed."""
    missed = 0
    for seed in range(300):
        history = GoodLog(Random(seed)).run(12)
        written = [one for one in history if isinstance(one, Send) and one.outcome == "ok"]
        if not written:
            continue
        victim = Random(seed).choice(written).values[0]
        kinds = {anomaly.kind for anomaly in check([_without(one, victim) for one in history])}
        assert {"unseen", "lost-write"} & kinds, f"seed {seed}"
        missed += 1
    assert missed > 200


def _without(one: Operation, victim: int | str) -> Operation:
    if not isinstance(one, Poll):
        return one
    return Poll(
        process=one.process,
        key=one.key,
        invoked=one.invoked,
        completed=one.completed,
        records=tuple(record for record in one.records if record[1] != victim),
        is_final=one.is_final,
    )


def test_long_histories_take_little_more_than_their_share() -> None:
    """What other tests have left in memory is not looked through meanwhile."""
    seconds = []
    gc.disable()
    try:
        for steps in (LONG_HISTORY // 8, LONG_HISTORY):
            history = GoodLog(Random(7)).run(steps)
            began = time.thread_time()
            assert check(history) == []
            seconds.append(time.thread_time() - began)
    finally:
        gc.enable()
    assert seconds[1] < 8 * 4 * seconds[0], f"{seconds} for {LONG_HISTORY} steps: not n log n"
