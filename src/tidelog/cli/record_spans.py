"""What `tidelog consume` is to read: which partitions, and from where to where in each.

One topic is named, or many by a pattern as in kafka-console-consumer's `--include`; topics that
brokers keep for themselves match none.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tidelog.base.errors import BadValue, ErrorCode, KafkaError
from tidelog.base.ids import TopicPartition
from tidelog.cli.printing import complain
from tidelog.client.client import TIMEOUT_MS, Client
from tidelog.client.cluster import NO_LEADER, Cluster
from tidelog.client.offsets import EARLIEST, LATEST, RETRIED, list_many_offsets
from tidelog.client.sockets import now_ms

_SILENT_MS: Final = 3_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    topic: str | re.Pattern[str]
    partition: int | None
    start: str | int
    """`earliest`, `latest`, or an offset; for a group, where it has committed nothing."""
    bootstrap: str
    group: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    start: int
    end: int


Place = tuple[str, int]
"""A topic and the number of a partition: one is made for each record, and this is quick."""
Spans = Mapping[Place, Span]


def find_spans(source: Source, settings: Mapping[str, str], patience_ms: float) -> Spans:
    """Of all there is to read now. Where a partition has no leader, that is soon said, and one is
    waited for, if patience lasts; who leads and cannot answer yet is not waited for so long."""
    began_ms, told = now_ms(), ""
    with Client(source.bootstrap) as client:
        places = _places(client, source)
        while True:
            try:
                return _spans(client, source, places, settings, _SILENT_MS)
            except KafkaError as error:
                is_leaderless = error.code is ErrorCode.leader_not_available
                waited_ms_max = patience_ms if is_leaderless else min(patience_ms, TIMEOUT_MS)
                if error.code not in RETRIED or now_ms() - began_ms >= waited_ms_max:
                    raise
                if is_leaderless and error.message != told:
                    told = error.message
                    complain(f"{told}: waiting for a leader (Ctrl-C ends)")


def find_new_spans(
    source: Source, known: Spans, settings: Mapping[str, str], patience_ms: int = TIMEOUT_MS
) -> Spans:
    """All of them again: those that are known as they were, and what is new from its beginning."""
    with Client(source.bootstrap, timeout_ms=patience_ms) as client:
        places = _places(client, source)
        new = [place for place in places if place not in known]
        found = _spans(client, source, new, settings, patience_ms) if new else {}
    whole = {place: Span(start=0, end=span.end) for place, span in found.items()}
    return {place: span for place, span in known.items() if place in places} | whole


def find_end(source: Source, place: Place, settings: Mapping[str, str]) -> int:
    """Where a partition ends now; a leader that is new and does not know yet is waited for."""
    one = TopicPartition(*place)
    committed_only = _is_committed_only(settings)
    with Client(source.bootstrap) as client:
        return list_many_offsets(client, {one: LATEST}, committed_only=committed_only)[one]


def find_leaderless(source: Source, patience_ms: int) -> frozenset[Place]:
    """Which partitions of these topics nobody leads now."""
    names = [source.topic] if isinstance(source.topic, str) else None
    with Client(source.bootstrap, timeout_ms=patience_ms) as client:
        topics = client.cluster(names).topics.values()
    return frozenset(
        (topic.name, partition.index)
        for topic in topics
        for partition in topic.partitions
        if partition.leader == NO_LEADER
    )


def _places(client: Client, source: Source) -> list[Place]:
    if isinstance(source.topic, re.Pattern):
        return _matching(client.cluster(), source.topic)
    topic = client.cluster([source.topic]).topic(source.topic)
    known = [partition.index for partition in topic.partitions]
    if source.partition is not None:
        if source.partition not in known:
            raise BadValue(
                f"--partition {source.partition}: {source.topic} has partitions 0 to {known[-1]}"
            )
        known = [source.partition]
    if isinstance(source.start, int) and len(known) > 1:
        raise BadValue(
            f"--offset {source.start}: say of which --partition; {source.topic} has {len(known)}"
        )
    return [(source.topic, index) for index in known]


def _matching(cluster: Cluster, pattern: re.Pattern[str]) -> list[Place]:
    return [
        (name, partition.index)
        for name, topic in cluster.topics.items()
        if not topic.is_internal and pattern.fullmatch(name)
        for partition in topic.partitions
    ]


def _spans(
    client: Client,
    source: Source,
    places: list[Place],
    settings: Mapping[str, str],
    patience_ms: int,
) -> Spans:
    asked = [TopicPartition(*place) for place in places]
    firsts = list_many_offsets(client, dict.fromkeys(asked, EARLIEST), patience_ms=patience_ms)
    ends = list_many_offsets(
        client,
        dict.fromkeys(asked, LATEST),
        committed_only=_is_committed_only(settings),
        patience_ms=patience_ms,
    )
    return {(one.topic, one.partition): _span(source, one, firsts[one], ends[one]) for one in asked}


def _is_committed_only(settings: Mapping[str, str]) -> bool:
    return settings["isolation.level"] == "read_committed"


def _span(source: Source, place: TopicPartition, first: int, end: int) -> Span:
    if isinstance(source.start, str):
        return Span(start=first if source.start == "earliest" else end, end=end)
    if source.start > end:
        there = f"has offsets {first} to {end - 1}" if end > first else "is empty"
        raise BadValue(f"--offset {source.start}: {place} {there}, and the next will be {end}")
    return Span(start=max(first, source.start), end=end)
