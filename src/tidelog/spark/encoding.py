"""Rows as Spark hands them over, to record batches for the partitions they belong in.

An `Encoder` takes one Arrow batch after the other and gives the encoded batches of each
topic-partition, rows in their order. All that is done per row is done by compiled loops. It knows
nothing of brokers: it is told how many partitions a topic has, and how large a batch it takes.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.base.errors import BadValue, KafkaError
from tidelog.records.batch import HEADER_SIZE
from tidelog.records.column_encoder import RowEncoder, columns_of, fixed
from tidelog.records.native import choose_slots, order_rows
from tidelog.records.source_rows import ALL_GOOD, NOT_NAMED, Source, Topics
from tidelog.spark.sink_options import COLUMNS, Batching

GATHERED_BYTES_MAX: Final = 4 * 1024 * 1024
"""Of Arrow data that is encoded at once: enough for large batches in a dozen partitions."""
_NONE: Final = fixed(np.empty(0, np.int64))


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoded:
    topic: str
    partition: int
    batch: bytearray
    """Of the v2 format, base offset 0, no producer."""


def gather(
    batches: Iterable[pa.RecordBatch], linger_ms: int, clock_ms: Callable[[], int]
) -> Iterator[pa.RecordBatch]:
    """Small batches put together, and without columns that nobody writes: rows wait for others
    until there are `GATHERED_BYTES_MAX` of them or, when others come, `linger_ms` have passed."""
    held: list[pa.RecordBatch] = []
    size = since_ms = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        since_ms = since_ms if held else clock_ms()
        held.append(batch.select([name for name in batch.schema.names if name in COLUMNS]))
        size += held[-1].nbytes
        if size >= GATHERED_BYTES_MAX or clock_ms() - since_ms >= linger_ms:
            yield pa.concat_batches(held)
            held, size = [], 0
    if held:
        yield pa.concat_batches(held)


class Encoder:
    def __init__(
        self,
        batching: Batching,
        *,
        topic: str | None,
        partition_count: Callable[[str], int],
        batch_bytes_max: Callable[[str], int],
        first_partition: int,
    ) -> None:
        """`topic` is that of all rows; without it each row names its own. Rows that may go
        anywhere begin with `first_partition`, modulo how many there are."""
        self._topic = topic
        self._partition_count = partition_count
        self._batch_bytes_max = batch_bytes_max
        self._first_partition = first_partition
        self._batching = batching
        self._by_topic: dict[str, RowEncoder] = {}
        self._by_batch_bytes: dict[int, RowEncoder] = {}
        self._counts: dict[str, int] = {}
        self._open_partitions: dict[str, int] = {}

    def encode(self, rows: pa.RecordBatch, now_ms: int) -> Iterator[Encoded]:
        """`now_ms` is the time of rows that have none."""
        source = columns_of(rows, now_ms)
        _check_times(source.timestamp)
        names, row_topics = self._row_topics(rows)
        topics = self._topics(names)
        slots = np.empty(rows.num_rows, np.int64)
        named = _named_partitions(rows)
        body_bytes = self._batching.batch_bytes - HEADER_SIZE
        bad = choose_slots(row_topics, named, source.key, source.value, topics, body_bytes, slots)
        if bad != ALL_GOOD:
            topic = names[row_topics[bad]] if len(row_topics) else names[0]
            raise self._no_such_partition(topic, int(named[bad]))
        self._keep_open_partitions(names, topics)
        yield from self._encode_slots(source, slots, names, topics)

    def _encode_slots(
        self, source: Source, slots: Any, names: list[str], topics: Topics
    ) -> Iterator[Encoded]:
        ends = np.empty(int(topics.partition_count.sum()), np.int64)
        ordered = np.empty(len(slots), np.int64)
        order_rows(slots, ends, ordered)
        ordered = fixed(ordered)
        starts = np.concatenate(([0], ends[:-1]))
        for slot in np.flatnonzero(ends > starts).tolist():
            index = int(np.searchsorted(topics.first_slot, slot, side="right")) - 1
            topic, partition = names[index], slot - int(topics.first_slot[index])
            rows = ordered[starts[slot] : ends[slot]]
            try:
                for batch in self._row_encoder(topic).encode(source, rows):
                    yield Encoded(topic=topic, partition=partition, batch=batch)
            except KafkaError as error:
                advice = "the option kafka.max.request.size says how large one may be"
                why = f"{topic}-{partition}: {error.message}; {advice}"
                raise KafkaError(error.code, why) from error

    def _row_encoder(self, topic: str) -> RowEncoder:
        """Topics that take batches of the same size share one, and its memory."""
        if topic not in self._by_topic:
            batching = self._batching
            size = min(batching.batch_bytes, self._batch_bytes_max(topic))
            if size not in self._by_batch_bytes:
                self._by_batch_bytes[size] = RowEncoder(
                    compression=batching.compression,
                    batch_bytes=size,
                    bytes_max=batching.request_bytes_max,
                )
            self._by_topic[topic] = self._by_batch_bytes[size]
        return self._by_topic[topic]

    def _row_topics(self, rows: pa.RecordBatch) -> tuple[list[str], Any]:
        """The topics there are, and which of them each row is for, if there is a choice."""
        if self._topic is not None:
            return [self._topic], _NONE
        column = rows.column("topic")
        if column.null_count:
            raise BadValue(
                f"{column.null_count} of {rows.num_rows} rows have no topic: the column topic "
                "is null; fill it, or name one for all rows with the option topic"
            )
        try:
            encoded = column.cast(pa.string()).dictionary_encode()
        except pa.ArrowInvalid as error:
            raise BadValue(f"a topic's name must be text: {error}") from error
        return encoded.dictionary.to_pylist(), fixed(encoded.indices.cast(pa.int64()).to_numpy())

    def _topics(self, names: list[str]) -> Topics:
        counts = np.array([self._count(name) for name in names], np.int64)
        opened = np.array([self._open_partitions[name] for name in names], np.int64)
        first_slots = np.cumsum(counts) - counts
        return Topics(fixed(first_slots), fixed(counts), opened, np.zeros(len(names), np.int64))

    def _count(self, topic: str) -> int:
        if topic not in self._counts:
            self._counts[topic] = self._partition_count(topic)
            self._open_partitions[topic] = self._first_partition % self._counts[topic]
        return self._counts[topic]

    def _keep_open_partitions(self, names: list[str], topics: Topics) -> None:
        """The batch that a partition has got is complete, so the next one goes elsewhere."""
        for index, name in enumerate(names):
            step = int(topics.open_bytes[index] > 0)
            following = int(topics.open_partition[index]) + step
            self._open_partitions[name] = following % self._counts[name]

    def _no_such_partition(self, topic: str, partition: int) -> BadValue:
        return BadValue(
            f"partition {partition} of topic {topic}: must be 0 to {self._counts[topic] - 1}, or "
            "null to have one chosen"
        )


def _named_partitions(rows: pa.RecordBatch) -> Any:
    if "partition" not in rows.schema.names:
        return _NONE
    column = rows.column("partition").cast(pa.int64())
    return fixed(np.ascontiguousarray(pc.fill_null(column, NOT_NAMED)))


def _check_times(timestamps: Any) -> None:
    if timestamps.min() < 0:
        raise BadValue(
            f"a timestamp is {-timestamps.min()} ms before 1970: records cannot be that old"
        )
