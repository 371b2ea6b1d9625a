"""Offsets of many partitions, and the form in which Spark keeps them in a query's checkpoint.

    {"start": "latest"}                                        nothing was looked up yet
    {"version": 1, "from": P, "to": P, "tasks": T}             one planned micro-batch
    P = {"events": {"id": "9Nq…", "partitions": {"0": 17}}}    T = {"events": {"0": 4}}

Spark asks for the initial offset twice and uses the second answer, so that one must not depend on
when it is asked. Where a query really begins is therefore part of the first end, which is written
down before the batch runs; in how many tasks a partition is read goes there too, and so a batch
that is run again is the same batch. A topic's id tells it from one that was made later under the
same name.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tidelog.base.errors import BadValue
from tidelog.base.ids import TopicPartition

VERSION: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicOffsets:
    topic_id: str | None
    """None from brokers that have none."""
    offsets: Mapping[int, int]
    """By partition."""


Positions = Mapping[str, TopicOffsets]
"""By topic."""


def each_partition(positions: Positions) -> Iterator[tuple[TopicPartition, int]]:
    """In the order of topics and partitions."""
    for topic in sorted(positions):
        offsets = positions[topic].offsets
        for partition in sorted(offsets):
            yield TopicPartition(topic, partition), offsets[partition]


def topics_behind(found: Positions, known: Positions) -> list[str]:
    """Those that end, in what was found, before what is known of them, or lack a partition."""
    ends = dict(each_partition(found))
    return sorted(
        topic
        for topic, was in known.items()
        if topic in found
        and found[topic].topic_id == was.topic_id
        and any(ends.get(TopicPartition(topic, one), -1) < at for one, at in was.offsets.items())
    )


def topics_replaced(found: Positions, known: Positions) -> dict[str, str]:
    """Those that are others, in what was found, than those that are known, and the known ids."""
    return {
        topic: was.topic_id
        for topic, was in known.items()
        if topic in found and was.topic_id not in (None, found[topic].topic_id)
    }


def with_offsets(positions: Positions, offsets: Mapping[TopicPartition, int]) -> Positions:
    """The same partitions, at these offsets where there is one."""
    return {
        topic: TopicOffsets(
            topic_id=found.topic_id,
            offsets={
                partition: offsets.get(TopicPartition(topic, partition), offset)
                for partition, offset in found.offsets.items()
            },
        )
        for topic, found in positions.items()
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """What one micro-batch reads: from `start` on, and before `end`."""

    start: Positions
    end: Positions
    tasks: Mapping[TopicPartition, int] = field(default_factory=dict)
    """In how many tasks a partition is read, where that is more than one."""

    def to_json(self) -> dict[str, Any]:
        tasks: dict[str, dict[str, int]] = {}
        for one, count in sorted(self.tasks.items()):
            tasks.setdefault(one.topic, {})[str(one.partition)] = count
        return {
            "version": VERSION,
            "from": positions_to_json(self.start),
            "to": positions_to_json(self.end),
            "tasks": tasks,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Symbolic:
    """Where a new query begins, in words."""

    name: str

    def to_json(self) -> dict[str, Any]:
        return {"start": self.name}


def read_offset(found: Mapping[str, Any]) -> Planned | Symbolic:
    """From a checkpoint; what somebody else wrote there is refused."""
    if set(found) == {"start"}:
        return Symbolic(name=str(found["start"]))
    if found.get("version") != VERSION:
        raise BadValue(
            f"the checkpoint has offset {str(found)[:200]}: not one of tidelog's, version {VERSION}"
        )
    try:
        return Planned(
            start=positions_from_json(found["from"]),
            end=positions_from_json(found["to"]),
            tasks={
                TopicPartition(topic, int(partition)): int(count)
                for topic, counts in found["tasks"].items()
                for partition, count in counts.items()
            },
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadValue(f"the checkpoint has a damaged offset: {str(found)[:200]}") from error


def read_if_ours(text: str | None) -> dict[TopicPartition, int]:
    """Behind the last records that an offset of any source's covers, as a checkpoint or a query's
    progress has it: nothing if the source is of another kind, or nothing was read yet."""
    try:
        found = json.loads(text or "")
    except ValueError:
        return {}
    if not isinstance(found, dict) or not {"version", "from", "to"} <= found.keys():
        return {}
    offset = read_offset(found)
    return dict(each_partition(offset.end)) if isinstance(offset, Planned) else {}


def positions_to_json(positions: Positions) -> dict[str, Any]:
    return {
        topic: {
            "id": positions[topic].topic_id,
            "partitions": {
                str(partition): offset
                for partition, offset in sorted(positions[topic].offsets.items())
            },
        }
        for topic in sorted(positions)
    }


def positions_from_json(found: Mapping[str, Any]) -> Positions:
    return {
        topic: TopicOffsets(
            topic_id=None if content["id"] is None else str(content["id"]),
            offsets={
                int(partition): int(offset) for partition, offset in content["partitions"].items()
            },
        )
        for topic, content in found.items()
    }
