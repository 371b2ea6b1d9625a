"""Where in a topic reading begins or ends, as people say it, and the ranges that come of it.

    earliest, latest        the beginning or the end of every partition
    1200                    this offset, in all partitions; what a partition lacks is left out
    0:1200,3:7              offsets in these partitions, and nothing of the others
    2026-05-01T12:00:00Z    the first record since then; in UTC if it does not say otherwise
    1777636800000ms         the same, in milliseconds since 1970

An end is itself left out: `--from 0 --to 10` are ten offsets. Only what is committed counts: a
partition ends where the first open transaction begins.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from tidelog.base.errors import BadValue
from tidelog.client.client import Client
from tidelog.client.cluster import Topic, id_of_text
from tidelog.client.fetching import Range
from tidelog.client.offsets import EARLIEST, LATEST, list_offsets

ALLOWED: Final = (
    "earliest, latest, an offset such as 1200, offsets such as 0:1200,3:7, or a time such as "
    "2026-05-01T12:00:00Z or 1777636800000ms"
)
_MARKS: Final = {"earliest": EARLIEST, "latest": LATEST}
_NO_RECORD: Final = -1
_INT64_MAX: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One of the four kinds; how it was said is for messages."""

    said: str
    mark: int | None = None
    offset: int | None = None
    offsets: Mapping[int, int] = field(default_factory=dict)
    """By partition."""
    time_ms: int | None = None


def parse_place(option: str, text: str) -> Place:
    said = f"{option} {text}"
    cleaned = text.strip()
    if cleaned in _MARKS:
        return Place(said=said, mark=_MARKS[cleaned])
    if re.fullmatch(r"[0-9]+", cleaned):
        return Place(said=said, offset=_bounded(said, int(cleaned)))
    if re.fullmatch(r"[0-9]+:[0-9]+(,[0-9]+:[0-9]+)*", cleaned):
        return Place(said=said, offsets=_offsets(said, cleaned))
    if re.fullmatch(r"[0-9]+ms", cleaned):
        return Place(said=said, time_ms=_bounded(said, int(cleaned[:-2])))
    return Place(said=said, time_ms=_time_ms(said, cleaned))


def find_ranges(
    client: Client, topic: Topic, start: Place, end: Place, *, partition: int | None = None
) -> list[Range]:
    """Of each partition that is meant, in order; they may be empty. With `partition`, of that one
    only."""
    _check_order(start, end)
    chosen = _chosen(topic, start, end, partition)
    begins = list_offsets(client, topic.name, dict.fromkeys(chosen, EARLIEST))
    ends = list_offsets(client, topic.name, dict.fromkeys(chosen, LATEST), committed_only=True)
    logs = {one: (begins[one], max(begins[one], ends[one])) for one in chosen}
    firsts = _resolve(client, topic, start, logs)
    lasts = _resolve(client, topic, end, logs)
    return [
        Range(
            topic=topic.name,
            topic_id=None if topic.topic_id is None else id_of_text(topic.topic_id),
            partition=one,
            start=firsts[one],
            end=max(firsts[one], lasts[one]),
        )
        for one in chosen
    ]


def _bounded(said: str, number: int) -> int:
    if number > _INT64_MAX:
        raise BadValue(f"{said}: {number} is too large for an offset or a time")
    return number


def _offsets(said: str, text: str) -> dict[int, int]:
    pairs = [part.split(":") for part in text.split(",")]
    found = {int(partition): _bounded(said, int(offset)) for partition, offset in pairs}
    if len(found) < len(pairs):
        raise BadValue(f"{said}: names a partition twice")
    return found


def _time_ms(said: str, text: str) -> int:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise BadValue(f"{said}: must be {ALLOWED}") from None
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    since = moment - datetime.fromtimestamp(0, UTC)
    if since.days < 0:
        raise BadValue(f"{said}: lies before 1970")
    return (since.days * 86_400 + since.seconds) * 1000 + since.microseconds // 1000


def _check_order(start: Place, end: Place) -> None:
    if start.offset is not None and end.offset is not None:
        pairs = [(start.offset, end.offset)]
    elif start.time_ms is not None and end.time_ms is not None:
        pairs = [(start.time_ms, end.time_ms)]
    else:
        shared = start.offsets.keys() & end.offsets.keys()
        pairs = [(start.offsets[one], end.offsets[one]) for one in shared]
    if any(first > last for first, last in pairs):
        raise BadValue(f"{end.said}: lies before {start.said}")


def _chosen(topic: Topic, start: Place, end: Place, partition: int | None) -> list[int]:
    there = [one.index for one in topic.partitions]
    named = {"--partition": [] if partition is None else [partition]}
    named |= {place.said: sorted(place.offsets) for place in (start, end)}
    given = {said: ones for said, ones in named.items() if ones}
    for said, ones in given.items():
        missing = [one for one in ones if one not in there]
        if missing:
            raise BadValue(
                f"{said}: {topic.name} has no partition {missing[0]}, only 0 to {there[-1]}"
            )
    if len({tuple(ones) for ones in given.values()}) > 1:
        raise BadValue(f"{' and '.join(given)}: must name the same partitions")
    return next(iter(given.values()), there)


Logs = Mapping[int, tuple[int, int]]
"""Where the log of each partition begins and ends."""


def _resolve(client: Client, topic: Topic, place: Place, logs: Logs) -> dict[int, int]:
    if place.mark is not None:
        return {one: log[0] if place.mark == EARLIEST else log[1] for one, log in logs.items()}
    if place.time_ms is not None:
        times = dict.fromkeys(logs, place.time_ms)
        found = list_offsets(client, topic.name, times, committed_only=True)
        ends = {
            one: end if found[one] == _NO_RECORD else found[one] for one, (_, end) in logs.items()
        }
        return {one: _within(at, logs[one]) for one, at in ends.items()}
    if place.offset is not None:
        _check_reached(place, topic, logs)
        return {one: _within(place.offset, log) for one, log in logs.items()}
    for one, (begin, end) in logs.items():
        if not begin <= place.offsets[one] <= end:
            raise BadValue(
                f"{place.said}: {topic.name}-{one} has no offset {place.offsets[one]}, "
                f"it begins at {begin} and ends at {end}"
            )
    return {one: place.offsets[one] for one in logs}


def _within(offset: int, log: tuple[int, int]) -> int:
    return min(max(offset, log[0]), log[1])


def _check_reached(place: Place, topic: Topic, logs: Logs) -> None:
    """Nobody means an offset that no partition has; a time is soon taken for one."""
    longest = max(end for _, end in logs.values())
    if place.offset is not None and place.offset > longest:
        raise BadValue(
            f"{place.said}: {topic.name} ends at offset {longest}; a time in milliseconds is "
            f"written as {place.offset}ms"
        )
