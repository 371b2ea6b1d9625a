"""What one task of a write does: encodes its rows, sends them, and waits until brokers have
confirmed them all. Runs in an executor's Python process.
"""

import random
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from itertools import chain
from typing import Final, NamedTuple

import pyarrow as pa

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.client.client import Client
from tidelog.client.coordinators import LATER
from tidelog.client.errors import Unreachable
from tidelog.client.leaders import PAUSE_MS
from tidelog.client.sockets import now_ms, pause_ms
from tidelog.client.transacting import OpenTransaction, begin, end
from tidelog.client.writing import BatchWriter
from tidelog.spark.copy_targets import batch_bytes_max
from tidelog.spark.deciding import check_run, last_decision, transaction_ms_max
from tidelog.spark.decisions import name_of
from tidelog.spark.encoding import Encoder, gather
from tidelog.spark.sink_options import SinkOptions

_NEW_TOPIC_MS: Final = 5_000
_FIRST_PARTITION_MAX: Final = 1 << 30
_BEGIN_MS: Final = 5_000
_PASSING: Final = LATER | {ErrorCode.request_timed_out}


def write_rows(options: SinkOptions, batches: Iterable[pa.RecordBatch]) -> Counter[tuple[str, int]]:
    """How many rows each topic-partition has got."""
    with options.sending.client() as client:
        return _write(options, batches, client, None)


class Place(NamedTuple):
    """Which task this is, of which batch."""

    query: str
    run: str
    batch: int
    number: int
    attempt: int

    @property
    def transactional_id(self) -> str:
        return name_of(self.query, self.run, self.number, self.attempt)


def prepare_rows(
    options: SinkOptions, batches: Iterable[pa.RecordBatch], place: Place
) -> tuple[Counter[tuple[str, int]], OpenTransaction | None]:
    """The same in a transaction, which is left open: what becomes of it is not for a task to say.
    Only if that was decided before the task was done, as it is the slower one of two copies, or if
    it fails, it gives up: nobody else might, and readers would wait. Where there are no rows, or
    the batch was decided before, there is none."""
    rows = (batch for batch in batches if batch.num_rows)
    first = next(rows, None)
    if first is None:
        return Counter(), None
    with options.sending.client() as client:
        transaction = _begin(client, place, transaction_ms_max(client))
        if transaction is None:
            for _ in rows:
                pass
            return Counter(), None
        check_run(client, place.query, place.run)
        try:
            counts = _write(options, chain([first], rows), client, transaction)
        except BaseException:
            # What stands in the way of this, too, leaves it to the driver.
            with suppress(KafkaError, Unreachable):
                end(client, transaction, is_commit=False)
            raise
        if _is_decided(client, place):
            end(client, transaction, is_commit=False)
        return counts, transaction


def _begin(client: Client, place: Place, timeout_ms: int) -> OpenTransaction | None:
    """None for a late copy, if the batch was decided before. Another stage, or a later batch, may
    have given its name to a task whose rows count: to begin would abort them. So that is asked
    before each attempt, and none lasts until names are used again."""
    deadline_ms = now_ms() + client.timeout_ms
    while not _is_decided(client, place):
        try:
            with client.within(_BEGIN_MS):
                return begin(client, place.transactional_id, timeout_ms)
        except (Unreachable, KafkaError) as error:
            is_final = isinstance(error, KafkaError) and error.code not in _PASSING
            if is_final or now_ms() + PAUSE_MS > deadline_ms:
                raise
            pause_ms(PAUSE_MS)
    return None


def _is_decided(client: Client, place: Place) -> bool:
    """Whether what this task writes can no longer count."""
    known = last_decision(client, place.query)
    return known is not None and known.batch >= place.batch


def _write(
    options: SinkOptions,
    batches: Iterable[pa.RecordBatch],
    client: Client,
    transaction: OpenTransaction | None,
) -> Counter[tuple[str, int]]:
    sending = options.sending
    with BatchWriter(
        client,
        acks=sending.acks,
        is_idempotent=sending.is_idempotent,
        in_flight_max=sending.in_flight_max,
        timeout_ms=sending.delivery_timeout_ms,
        transaction=transaction,
    ) as writer:
        _send(options, batches, client, writer)
        writer.flush()
        counts: Counter[tuple[str, int]] = Counter()
        for topic, partition, _, count in writer.acknowledged():
            counts[topic, partition] += count
        return counts


def _send(
    options: SinkOptions, batches: Iterable[pa.RecordBatch], client: Client, writer: BatchWriter
) -> None:
    encoder = Encoder(
        options.batching,
        topic=options.topic,
        partition_count=lambda topic: len(client.topic_soon(topic, _NEW_TOPIC_MS).partitions),
        batch_bytes_max=lambda topic: batch_bytes_max(client, topic),
        # Many small tasks, one after the other, shall not all write to the first partition.
        first_partition=random.randrange(_FIRST_PARTITION_MAX),
    )
    for rows in gather(batches, options.batching.linger_ms, _clock_ms):
        for one in encoder.encode(rows, time.time_ns() // 1_000_000):
            writer.send(one.topic, one.partition, one.batch)


def _clock_ms() -> int:
    return time.monotonic_ns() // 1_000_000
