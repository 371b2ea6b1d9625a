"""Where offsets of groups can be set: Kafka's eight targets, and the offsets that come of each.

An offset that a partition does not have, because it was asked for by number or by distance,
becomes the nearest one that it has, which is said.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from tidelog.base.errors import BadValue
from tidelog.base.ids import TopicPartition
from tidelog.cli.printing import complain
from tidelog.client.client import Client
from tidelog.client.offsets import EARLIEST, LATEST, list_many_offsets
from tidelog.client.places import parse_place

Offsets = dict[TopicPartition, int]

_NO_RECORD: Final = -1
_DURATION: Final = re.compile(
    r"P(?:(?P<days>[0-9]{1,9})D)?"
    r"(?:T(?:(?P<hours>[0-9]{1,9})H)?(?:(?P<minutes>[0-9]{1,9})M)?"
    r"(?:(?P<seconds>[0-9]{1,9}(?:\.[0-9]{1,9})?)S)?)?",
    re.IGNORECASE,
)
_UNITS_MS: Final = {"days": 86_400_000, "hours": 3_600_000, "minutes": 60_000, "seconds": 1000}


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    option: str
    number: int = 0
    """An offset or a distance."""
    time_ms: int = 0
    file: Path | None = None


def choose_target(given: Mapping[str, bool | int | str | Path | None]) -> Target:
    """The one of Kafka's options that was given: not None, and not False."""
    chosen = [option for option, value in given.items() if value is not None and value is not False]
    if len(chosen) > 1:
        raise BadValue(f"{chosen[0]} and {chosen[1]}: give one of them")
    if not chosen:
        raise BadValue(f"say where to: one of {', '.join(given)}")
    option, value = chosen[0], given[chosen[0]]
    if option == "--to-datetime":
        return Target(option=option, time_ms=_time_ms(option, str(value)))
    if option == "--by-duration":
        return Target(option=option, time_ms=_now_ms() - duration_ms(option, str(value)))
    if isinstance(value, Path):
        return Target(option=option, file=value)
    return Target(option=option, number=int(value or 0))


def resolve(
    client: Client, target: Target, partitions: Iterable[TopicPartition], committed: Offsets
) -> Offsets:
    """The offset of each partition; `committed` is where the group is now."""
    wanted = list(partitions)
    match target.option:
        case "--to-earliest":
            return list_many_offsets(client, dict.fromkeys(wanted, EARLIEST))
        case "--to-latest":
            return list_many_offsets(client, dict.fromkeys(wanted, LATEST))
        case "--to-current":
            return _current(client, wanted, committed)
        case "--to-offset":
            return clamp(client, dict.fromkeys(wanted, target.number))
        case "--shift-by":
            return clamp(client, _shifted(wanted, committed, target.number))
        case _:
            return _since(client, wanted, target.time_ms)


def clamp(client: Client, offsets: Offsets) -> Offsets:
    """Within what each partition has."""
    begins = list_many_offsets(client, dict.fromkeys(offsets, EARLIEST))
    ends = list_many_offsets(client, dict.fromkeys(offsets, LATEST))
    found = {}
    for one, offset in offsets.items():
        found[one] = min(max(offset, begins[one]), ends[one])
        if offset > ends[one]:
            complain(f"{one} ends at {ends[one]}: {offset} becomes {ends[one]}")
        elif offset < begins[one]:
            complain(f"{one} begins at {begins[one]}: {offset} becomes {begins[one]}")
    return found


def duration_ms(option: str, text: str) -> int:
    """`P1DT2H30M5.5S`."""
    match = _DURATION.fullmatch(text)
    given = {} if match is None else match.groupdict()
    amounts = {unit: amount for unit, amount in given.items() if amount}
    if not amounts or text.upper().endswith("T"):
        raise BadValue(f"{option} {text}: must be a duration such as P7D, PT2H or P1DT12H30M")
    return sum(round(float(amount) * _UNITS_MS[unit]) for unit, amount in amounts.items())


def _time_ms(option: str, text: str) -> int:
    place = parse_place(option, text)
    if place.time_ms is None:
        raise BadValue(f"{option} {text}: must be a time such as 2026-05-01T12:00:00.000")
    return place.time_ms


def _now_ms() -> int:
    return int(datetime.now(UTC).timestamp() * 1000)


def _current(client: Client, wanted: list[TopicPartition], committed: Offsets) -> Offsets:
    unread = [one for one in wanted if one not in committed]
    ends = list_many_offsets(client, dict.fromkeys(unread, LATEST))
    return {one: committed[one] if one in committed else ends[one] for one in wanted}


def _shifted(wanted: list[TopicPartition], committed: Offsets, distance: int) -> Offsets:
    unread = [one for one in wanted if one not in committed]
    if unread:
        raise BadValue(
            f"--shift-by {distance}: the group has committed no offset of {unread[0]}: "
            "name partitions it has, or use --all-topics"
        )
    return {one: committed[one] + distance for one in wanted}


def _since(client: Client, wanted: list[TopicPartition], time_ms: int) -> Offsets:
    # Before the times: a record that comes in between is behind the end, or found.
    ends = list_many_offsets(client, dict.fromkeys(wanted, LATEST))
    found = list_many_offsets(client, dict.fromkeys(wanted, time_ms))
    for one in wanted:
        if found[one] == _NO_RECORD:
            found[one] = ends[one]
            complain(f"{one} has no record since then: it is set to the end, {ends[one]}")
    return found
