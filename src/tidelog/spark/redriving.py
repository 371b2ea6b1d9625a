"""Dead letters back to where they came from, after whatever was wrong with them is mended.

`survey` says what would go where, `redrive` writes it. Keys, values and headers stay as they are,
the time is the record's own, and the partition the one it was read from, if it is still there. The
headers of a dead letter stay too, so that the next failure counts on. A dead letter that was
written back stays in its topic: whoever writes all of them back again has them twice.
"""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.client.client import Client
from tidelog.client.fetching import Range
from tidelog.client.writing import BatchWriter
from tidelog.records.compression import NONE
from tidelog.spark.copy_targets import BATCH_BYTES, batch_bytes_max
from tidelog.spark.dead_letter_counts import Counts
from tidelog.spark.dead_letter_reading import Choice, read_letters
from tidelog.spark.encoding import Encoder
from tidelog.spark.sink_options import REQUEST_BYTES_MAX, Batching

Tell = Callable[[int], None]
"""Told now and then how many records have been dealt with so far."""
_NOT_THERE: Final = 0
_BATCHING: Final = Batching(
    compression=NONE,
    batch_bytes=BATCH_BYTES,
    request_bytes_max=REQUEST_BYTES_MAX,
    linger_ms=0,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """What of a range would be written where."""

    read: int
    matching: int
    homeless: int
    """Of those that match: they do not say where they came from."""
    counts: Counts
    """By topic that they would go to, stage and reason."""
    targets: Counter[str]
    missing: Counter[str]
    """Of the targets: there is no such topic."""


class Redriver:
    def __init__(
        self, client: Client, ranges: Sequence[Range], choice: Choice, into: str | None
    ) -> None:
        """`into` is for all of them; otherwise each goes to the topic it came from."""
        self._client = client
        self._ranges = ranges
        self._choice = choice
        self._into = into
        self._partition_counts: dict[str, int] = {}
        self.reached = {one.partition: one.start for one in ranges}
        """What was redriven, by partition: dead letters before these offsets."""

    def survey(self, tell: Tell) -> Survey:
        counts = Counts(("topic", "stage", "reason"))
        targets: Counter[str] = Counter()
        read = matching = 0
        for _, letters in read_letters(self._client, self._ranges):
            chosen = self._choice.of(letters)
            rows = self._addressed(chosen)
            counts.add(rows)
            for entry in rows.column("topic").value_counts().to_pylist():
                targets[entry["values"]] += entry["counts"]
            read += letters.num_rows
            matching += chosen.num_rows
            tell(read)
        missing = [name for name in targets if self._count(name) == _NOT_THERE]
        return Survey(
            read=read,
            matching=matching,
            homeless=matching - targets.total(),
            counts=counts,
            targets=targets,
            missing=Counter({name: targets[name] for name in missing}),
        )

    def redrive(self, tell: Tell) -> int:
        """How many were written. Where `tell` raises KeyboardInterrupt, exactly what lies before
        `reached` has been written."""
        encoder = Encoder(
            _BATCHING,
            topic=None,
            partition_count=self._count_there,
            batch_bytes_max=lambda topic: batch_bytes_max(self._client, topic),
            first_partition=0,
        )
        written = 0
        with BatchWriter(self._client) as writer:
            try:
                for wanted, letters in read_letters(self._client, self._ranges):
                    rows = self._addressed(self._choice.of(letters))
                    if rows.num_rows:
                        for one in encoder.encode(rows, _now_ms()):
                            writer.send(one.topic, one.partition, one.batch)
                    self._pass(wanted, letters)
                    written += _acknowledged(writer)
                    tell(written)
            except KeyboardInterrupt:
                # It comes between two steps, so that nothing is left half sent.
                writer.flush()
                raise
            writer.flush()
            self.reached |= {one.partition: one.end for one in self._ranges}
            return written + _acknowledged(writer)

    def _pass(self, wanted: Range, letters: pa.RecordBatch) -> None:
        """Partitions are read one after the other."""
        for one in self._ranges:
            if one is wanted:
                break
            self.reached[one.partition] = one.end
        self.reached[wanted.partition] = letters.column("offset")[-1].as_py() + 1

    def _addressed(self, letters: pa.RecordBatch) -> pa.RecordBatch:
        """With the columns of the sink; those that have nowhere to go are left out."""
        if self._into is not None:
            topic = pa.repeat(pa.scalar(self._into), letters.num_rows)
            partition = pa.nulls(letters.num_rows, pa.int64())
        else:
            letters = letters.filter(pc.is_valid(letters.column("origin_topic")))
            topic = letters.column("origin_topic")
            partition = self._still_there(topic, letters.column("origin_partition"))
        own = pc.coalesce(letters.column("origin_timestamp"), letters.column("timestamp"))
        changed = {
            "topic": topic,
            "partition": partition,
            "timestamp": pc.if_else(pc.greater_equal(own, 0), own, _now_ms()),
        }
        kept = ("key", "value", "headers", "stage", "reason", "attempt")
        return pa.RecordBatch.from_pydict(
            {**{name: letters.column(name) for name in kept}, **changed}
        )

    def _still_there(self, topic: Any, partition: Any) -> Any:
        """Null where the topic has fewer partitions now."""
        encoded = topic.dictionary_encode()
        counts = np.array([self._count(name) for name in encoded.dictionary.to_pylist()], np.int64)
        limits = pa.array(counts, pa.int64()).take(encoded.indices)
        return pc.if_else(pc.less(partition, limits), partition, None)

    def _count(self, topic: str) -> int:
        if topic not in self._partition_counts:
            found = self._client.cluster([topic])
            there = found.topics.get(topic)
            if there is None and topic in found.refused:
                _raise_unless_unknown(found.refused[topic])
            self._partition_counts[topic] = len(there.partitions) if there else _NOT_THERE
        return self._partition_counts[topic]

    def _count_there(self, topic: str) -> int:
        count = self._count(topic)
        if count == _NOT_THERE:
            what = f"there is no topic {topic}"
            raise KafkaError(ErrorCode.unknown_topic_or_partition, what)
        return count


def _raise_unless_unknown(error: KafkaError) -> None:
    if error.code is not ErrorCode.unknown_topic_or_partition:
        raise error


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _acknowledged(writer: BatchWriter) -> int:
    return sum(count for _, _, _, count in writer.acknowledged())
