"""What one task of a write does: encodes its rows, sends them, and waits until brokers have
confirmed them all. Runs in an executor's Python process.
"""

import random
import time
from collections import Counter
from collections.abc import Iterable
from typing import Final

import pyarrow as pa

from tidelog.client.client import Client
from tidelog.client.writing import BatchWriter
from tidelog.spark.copy_targets import batch_bytes_max
from tidelog.spark.encoding import Encoder, gather
from tidelog.spark.sink_options import SinkOptions

_NEW_TOPIC_MS: Final = 5_000
_FIRST_PARTITION_MAX: Final = 1 << 30


def write_rows(options: SinkOptions, batches: Iterable[pa.RecordBatch]) -> Counter[tuple[str, int]]:
    """How many rows each topic-partition has got."""
    sending = options.sending
    with (
        Client(
            sending.bootstrap_servers, client_id=sending.client_id, timeout_ms=sending.timeout_ms
        ) as client,
        BatchWriter(
            client,
            acks=sending.acks,
            is_idempotent=sending.is_idempotent,
            in_flight_max=sending.in_flight_max,
            timeout_ms=sending.delivery_timeout_ms,
        ) as writer,
    ):
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
