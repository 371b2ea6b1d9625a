"""What `tidelog dlq` prints: counts as a table, and dead letters one by one, as text that is safe
for a terminal or as JSON, an object in each line.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from tidelog.cli.printing import counted, json_text, say, say_table
from tidelog.cli.record_text import json_bytes
from tidelog.log.dump_text import printable
from tidelog.spark.dead_letter_format import HEADER_PREFIX

if TYPE_CHECKING:
    from tidelog.spark.dead_letter_counts import Count

NOTHING: Final = "-"
_SHOWN_BYTES_MAX: Final = 2_000


def time_text(time_ms: int) -> str:
    """In UTC; a number where there is no such date."""
    try:
        moment = datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=time_ms)
    except OverflowError:
        return f"{time_ms}ms"
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def say_counts(target: str, counts: "Iterable[Count]") -> None:
    """`target` is the heading of the first column, a topic's."""
    headings = (target, "STAGE", "REASON", "RECORDS", "ATTEMPT", "FIRST", "LAST")
    say_table(headings, [_count_row(count) for count in counts])


def _count_row(count: "Count") -> tuple[object, ...]:
    named = [NOTHING if text is None else text for text in count.group]
    attempt = NOTHING if count.attempt_max is None else count.attempt_max
    return *named, count.records, attempt, time_text(count.first_ms), time_text(count.last_ms)


def counts_as_json(target: str, counts: "Iterable[Count]") -> list[dict[str, Any]]:
    return [
        {
            **dict(zip((target, "stage", "reason"), count.group, strict=True)),
            "records": count.records,
            "attempt_max": count.attempt_max,
            "first_timestamp": count.first_ms,
            "last_timestamp": count.last_ms,
        }
        for count in counts
    ]


def say_letter(topic: str, partition: int, letter: Mapping[str, Any]) -> None:
    say(f"{topic}-{partition} offset {letter['offset']}, {time_text(letter['timestamp'])}")
    for name, text in _lines(letter):
        say(f"  {name:<8} {text}")


def _lines(letter: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    yield "from", _origin(letter)
    for name in ("reason", "stage", "attempt"):
        if letter[name] is not None:
            yield name, _shown(str(letter[name]).encode())
    for header in letter["headers"] or ():
        if not header["key"].startswith(HEADER_PREFIX):
            yield "header", f"{_shown(header['key'].encode())}: {_shown(header['value'])}"
    yield "key", _shown(letter["key"])
    yield "value", _shown(letter["value"])


def _origin(letter: Mapping[str, Any]) -> str:
    if letter["origin_topic"] is None:
        return "it does not say where"
    place, offset = letter["origin_partition"], letter["origin_offset"]
    text = f"{letter['origin_topic']}-{'?' if place is None else place}"
    text += f" offset {'?' if offset is None else offset}"
    moment = letter["origin_timestamp"]
    return text if moment is None else f"{text}, {time_text(moment)}"


def _shown(data: bytes | None) -> str:
    if data is None:
        return "null"
    if len(data) <= _SHOWN_BYTES_MAX:
        return printable(data)
    return f"{printable(data[:_SHOWN_BYTES_MAX])}... ({len(data)} bytes, all of them with --json)"


def letter_as_json(topic: str, partition: int, letter: Mapping[str, Any]) -> str:
    """Bytes that are not UTF-8 are given in base64, in a field of that name."""
    return json_text(
        {
            "topic": topic,
            "partition": partition,
            "offset": letter["offset"],
            "timestamp": letter["timestamp"],
            "origin": {
                name: letter[f"origin_{name}"]
                for name in ("topic", "partition", "offset", "timestamp")
            },
            **{name: letter[name] for name in ("reason", "stage", "attempt")},
            **json_bytes("key", letter["key"]),
            **json_bytes("value", letter["value"]),
            "headers": [
                {"key": header["key"], **json_bytes("value", header["value"])}
                for header in letter["headers"] or ()
            ],
        }
    )


def say_left_out(topic: str, read: int, matching: int, homeless: int) -> None:
    if read > matching:
        say(f"{counted(read - matching)} of {topic} left out: not what was asked for")
    if homeless:
        say(f"{counted(homeless)} left out: no origin is in their headers; --into names a topic")
