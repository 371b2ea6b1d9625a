"""What the headers of dead letters say, taken out of them column by column (A6)."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from tidelog.records.columns import SCHEMA
from tidelog.spark import dead_letter_counts
from tidelog.spark import dead_letter_format as names
from tidelog.spark.dead_letter_counts import OTHERS, Counts
from tidelog.spark.dead_letter_reading import Choice, dead_letter_topic, with_origin

Header = tuple[str, bytes | None]


def letters(
    *headers: Sequence[Header] | None, timestamps: list[int] | None = None
) -> pa.RecordBatch:
    rows = [
        {
            "offset": number,
            "timestamp": timestamps[number] if timestamps else 1000 + number,
            "timestamp_type": 0,
            "key": None,
            "value": b"v",
            "headers": None if one is None else [{"key": k, "value": v} for k, v in one],
        }
        for number, one in enumerate(headers)
    ]
    return with_origin(pa.RecordBatch.from_pylist(rows, SCHEMA))


def column(batch: pa.RecordBatch, name: str) -> list[Any]:
    found: list[Any] = batch.column(name).to_pylist()
    return found


def test_each_record_gets_its_own_headers_and_the_first_of_a_name() -> None:
    batch = letters(
        None,
        [("x", b"1"), (names.REASON, b"first"), (names.REASON, b"second")],
        [],
        [(names.STAGE, b"silver"), (names.TOPIC, b"orders"), (names.PARTITION, b"7")],
        [(names.REASON, None)],
    )
    assert column(batch, "reason") == [None, "first", None, None, None]
    assert column(batch, "stage") == [None, None, None, "silver", None]
    assert column(batch, "origin_topic") == [None, None, None, "orders", None]
    assert column(batch, "origin_partition") == [None, None, None, 7, None]


def test_headers_that_make_no_sense_say_nothing() -> None:
    bad = [b"", b"-1", b"x", b"1.5", b"9" * 30, b"\xff", "\N{ARABIC-INDIC DIGIT FIVE}".encode()]
    batch = letters(*([(names.ATTEMPT, text), (names.REASON, text)] for text in bad))
    assert column(batch, "attempt") == [None] * len(bad)
    assert column(batch, "reason")[5] == "\N{REPLACEMENT CHARACTER}"
    illegal = letters(*([(names.TOPIC, name)] for name in (b"a/b", b"..", b"", b"x" * 250, b"ok")))
    assert column(illegal, "origin_topic") == [None, None, None, None, "ok"]


def test_letters_are_chosen_by_all_that_was_asked_for() -> None:
    batch = letters(
        [(names.REASON, b"not JSON"), (names.STAGE, b"a"), (names.ATTEMPT, b"1")],
        [(names.REASON, b"is not JSON of id"), (names.STAGE, b"b"), (names.ATTEMPT, b"3")],
        None,
    )
    assert column(Choice(reason="not JSON").of(batch), "offset") == [0, 1]
    assert column(Choice(reason="not.JSON").of(batch), "offset") == [], "it is no expression"
    assert column(Choice(stage="b").of(batch), "offset") == [1]
    assert column(Choice(attempts_max=2).of(batch), "offset") == [0, 2]
    assert column(Choice(reason="JSON", attempts_max=2).of(batch), "offset") == [0]
    assert column(Choice().of(batch), "offset") == [0, 1, 2]


def test_reasons_that_all_differ_do_not_fill_the_memory() -> None:
    counts = Counts(("reason",))
    limit = dead_letter_counts.GROUPS_MAX
    for start in range(0, 3 * limit, 500):
        some = range(start, start + 500)
        counts.add(letters(*([(names.REASON, b"no. %d" % n + b"x" * 1000)] for n in some)))
    assert counts.records == 3 * limit
    first, *rest = counts.sorted()
    assert (first.group, first.records) == ((OTHERS,), 2 * limit)
    assert len(rest) == limit
    assert max(len(one.group[0] or "") for one in rest) == dead_letter_counts.REASON_LENGTH_MAX


def test_counts_are_the_same_however_the_letters_come() -> None:
    headers = [[(names.REASON, b"a"), (names.ATTEMPT, b"%d" % n)] for n in (1, 5, 2)]
    times = [30, 10, 20]
    together, apart = Counts(("reason",)), Counts(("reason",))
    together.add(letters(*headers, timestamps=times))
    for one, time in zip(headers, times, strict=True):
        apart.add(letters(one, timestamps=[time]))
    assert together.sorted() == apart.sorted()
    (count,) = apart.sorted()
    assert (count.records, count.first_ms, count.last_ms, count.attempt_max) == (3, 10, 30, 5)


def test_a_dead_letter_topic_is_found_by_the_topic_and_by_itself() -> None:
    assert dead_letter_topic("orders") == dead_letter_topic("orders.dlq") == "orders.dlq"
