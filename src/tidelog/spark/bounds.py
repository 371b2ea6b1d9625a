"""Where reading begins and ends, as options say it: a place, offsets, or times.

Each of the three kinds is a type of its own, and none of them has been looked up yet: brokers are
asked for that in `resolving`. The newest kind that is given counts, as in Spark's connector: one
time for all, times for each partition, then offsets.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tidelog.base.errors import BadValue
from tidelog.base.ids import TopicPartition
from tidelog.client.marks import EARLIEST, LATEST
from tidelog.spark.option_values import OptionValues

ENDINGS: Final = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
_PLACES: Final = {"earliest": EARLIEST, "latest": LATEST}
_MARKS: Final = {EARLIEST: "-2 (earliest)", LATEST: "-1 (latest)"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """All partitions at their beginning, or at their end."""

    mark: int

    @property
    def name(self) -> str:
        return "earliest" if self.mark == EARLIEST else "latest"


@dataclass(frozen=True, slots=True, kw_only=True)
class Offsets:
    """An offset of each partition; EARLIEST and LATEST may be among them."""

    option: str
    offsets: Mapping[str, Mapping[int, int]]
    name: str = "offsets"


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """The first record since a time in ms: one for all partitions, or one for each."""

    option: str
    for_all: int | None = None
    for_each: Mapping[str, Mapping[int, int]] | None = None
    latest_if_none: bool
    """Otherwise it is an error that a partition has no record since then."""
    name: str = "timestamps"

    @property
    def named(self) -> set[TopicPartition]:
        return {
            TopicPartition(topic, partition)
            for topic, times in (self.for_each or {}).items()
            for partition in times
        }

    def of(self, one: TopicPartition) -> int | None:
        return (self.for_each or {}).get(one.topic, {}).get(one.partition, self.for_all)


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """Where a group has come to; the beginning of partitions of which it has said nothing."""

    group_id: str
    name: str = "committed"


Bound = Place | Offsets | Times | Committed


def parse_starting(values: OptionValues, *, is_stream: bool) -> Bound:
    strategy = values.choice("startingOffsetsByTimestampStrategy", ("error", "latest"), "error")
    times = _parse_times(values, "starting", latest_if_none=strategy == "latest")
    if times is not None:
        return times
    if (values.text("startingOffsets") or "").strip().lower() == "committed":
        return Committed(group_id=values.needed("kafka.group.id", "the group that committed"))
    if is_stream:
        return _parse_offsets(values, "startingOffsets", default=LATEST, forbidden=None)
    return _parse_offsets(values, "startingOffsets", default=EARLIEST, forbidden=LATEST)


def parse_ending(values: OptionValues, *, is_stream: bool) -> Bound:
    """A stream has no end that could be set."""
    if is_stream:
        for name in ENDINGS:
            if name in values:
                raise values.bad(name, "left out of a stream, which has no end")
        return Place(mark=LATEST)
    times = _parse_times(values, "ending", latest_if_none=True)
    if times is not None:
        return times
    return _parse_offsets(values, "endingOffsets", default=LATEST, forbidden=EARLIEST)


def check_order(starting: Bound, ending: Bound) -> None:
    """No record is between times that are crossed, so that whoever gives them is mistaken."""
    if not (isinstance(starting, Times) and isinstance(ending, Times)):
        return
    moments = [
        (str(one), starting.of(one), ending.of(one)) for one in starting.named | ending.named
    ]
    for what, start, end in [("a batch", starting.for_all, ending.for_all), *sorted(moments)]:
        if start is not None and end is not None and end < start:
            raise BadValue(
                f"option {ending.option}: {what} ends at {end}, before {starting.option}, {start}"
            )


def _parse_times(values: OptionValues, side: str, *, latest_if_none: bool) -> Times | None:
    one, each = f"{side}Timestamp", f"{side}OffsetsByTimestamp"
    if one in values:
        moment = values.whole(one, 0, least=0)
        return Times(option=one, for_all=moment, latest_if_none=latest_if_none)
    if each in values:
        moments = values.partition_numbers(each)
        if any(when < 0 for times in moments.values() for when in times.values()):
            raise values.bad(each, "JSON with a time in ms for each partition, none below 0")
        return Times(option=each, for_each=moments, latest_if_none=latest_if_none)
    return None


def _parse_offsets(
    values: OptionValues, name: str, *, default: int, forbidden: int | None
) -> Place | Offsets:
    text = (values.text(name) or "").strip()
    places = [place for place, mark in _PLACES.items() if mark != forbidden]
    if not text.startswith("{"):
        mark = _PLACES.get(text.lower(), default if name not in values else forbidden)
        if mark is None or mark == forbidden:
            wanted = f"{' or '.join(places)}, or JSON with an offset for each partition"
            raise values.bad(name, wanted)
        return Place(mark=mark)
    offsets = values.partition_numbers(name)
    numbers = [offset for found in offsets.values() for offset in found.values()]
    if forbidden is not None and forbidden in numbers:
        raise values.bad(name, f"JSON without {_MARKS[forbidden]}, which a batch cannot use there")
    if any(number < EARLIEST for number in numbers):
        raise values.bad(name, "JSON with offsets, -2 for the earliest or -1 for the latest")
    return Offsets(option=name, offsets=offsets)
