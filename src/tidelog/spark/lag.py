"""How far a query is behind its topics: in records, and in time, for each partition.

What a query has read is known from its progress or its checkpoint; where the topics end is asked
of their leaders. The time a partition is behind is the age of the first record that was not read.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from tidelog.base.errors import KafkaError
from tidelog.base.ids import TopicPartition
from tidelog.client.client import Client
from tidelog.client.fetching import Range, RangeReader
from tidelog.client.offsets import LATEST, list_many_offsets
from tidelog.records.batch import read_header

UNKNOWN_MS: Final = -1
_HEAD_BYTES: Final = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Lag:
    partition: TopicPartition
    read: int
    """The offset of the first record that was not read."""
    end: int
    time_ms: int
    """0 if everything was read, -1 if it is not known."""

    @property
    def records(self) -> int:
        return max(0, self.end - self.read)


def measure_lag(client: Client, read: Mapping[TopicPartition, int], now_ms: int) -> list[Lag]:
    """Of each partition, in order. Records are counted by their offsets."""
    ends = list_many_offsets(client, dict.fromkeys(sorted(read), LATEST))
    with RangeReader(client, partition_bytes_max=_HEAD_BYTES) as reader:
        return [
            Lag(
                partition=one,
                read=read[one],
                end=end,
                time_ms=_age_ms(reader, one, (read[one], end), now_ms),
            )
            for one, end in ends.items()
        ]


def _age_ms(reader: RangeReader, one: TopicPartition, unread: tuple[int, int], now_ms: int) -> int:
    start, end = unread
    if start >= end:
        return 0
    wanted = Range(topic=one.topic, topic_id=None, partition=one.partition, start=start, end=end)
    try:
        first = next(reader.read(wanted), None)
    except KafkaError:
        # Aged out, or a leader that moves: the number of records is told all the same.
        return UNKNOWN_MS
    return UNKNOWN_MS if not first else max(0, now_ms - _first_time_ms(first))


def _first_time_ms(batch: memoryview) -> int:
    header = read_header(batch)
    has_horizon = header.delete_horizon_ms is not None
    return header.max_timestamp if has_horizon else header.base_timestamp


def total_records(lags: Iterable[Lag]) -> int:
    return sum(lag.records for lag in lags)


def longest_ms(lags: Iterable[Lag]) -> int:
    return max((lag.time_ms for lag in lags), default=0)
