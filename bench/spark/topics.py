"""The topics that Spark reads and writes: 16-byte keys, values of one size, two partitions.

They are filled with batches of 16 KB, as Kafka's own producer makes them unless it is told
otherwise. Topics that were written are deleted before the next one is, so that each finds the same
memory and disk.
"""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa

from bench.load.brokers import Broker
from tidelog.client.client import Client
from tidelog.client.offsets import LATEST, list_offsets
from tidelog.client.topics import NewTopic, create_topics, delete_topics
from tidelog.client.writing import BatchWriter
from tidelog.records.batch import read_header
from tidelog.records.columns import encode

PARTITIONS = 2
KEY_BYTES = 16
BATCH_BYTES = 16 * 1024
_SAMPLE_ROWS = 50_000


class Topics:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.servers = "{}:{}".format(*broker.address)
        self._client = Client(self.servers, client_id="bench")
        self._count = 0

    def close(self) -> None:
        self._client.close()

    def fill(self, name: str, rows: int, value_bytes: int, batch_bytes: int = BATCH_BYTES) -> int:
        """How many rows there are, as batches are whole: as many as were asked for, or a little
        more."""
        self._create(name)
        batches = [bytes(one) for one in encode(_sample(value_bytes), max_bytes=batch_bytes)]
        counts = [read_header(one).record_count for one in batches]
        written = number = 0
        with BatchWriter(self._client) as writer:
            while written < rows:
                index = number % len(batches)
                writer.send(name, number % PARTITIONS, bytearray(batches[index]))
                written += counts[index]
                number += 1
            writer.flush()
        return written

    def ends(self, name: str) -> dict[int, int]:
        return list_offsets(self._client, name, dict.fromkeys(range(PARTITIONS), LATEST))

    @contextmanager
    def made(self) -> Iterator[str]:
        """A topic for a while."""
        self._count += 1
        name = f"written-{self._count}"
        self._create(name)
        yield name
        delete_topics(self._client, [name])
        self._broker.await_deleted(name)

    @contextmanager
    def new(self, rows: int) -> Iterator[str]:
        """A topic that is to get so many rows."""
        with self.made() as name:
            yield name
            found = sum(self.ends(name).values())
        if found != rows:
            raise RuntimeError(f"{found} records were written where {rows} should have been")

    def source(self, kind: str, topic: str, rows: int | None = None) -> dict[str, Any]:
        """How `kind` reads a topic, or the beginning of it."""
        ends = self.ends(topic)
        if rows is not None:
            ends = {number: min(end, rows // PARTITIONS) for number, end in ends.items()}
        told = {str(number): end for number, end in ends.items()}
        if kind == "row-at-a-time":
            options = {"servers": self.servers, "topic": topic, "ends": json.dumps(told)}
        else:
            options = {
                "kafka.bootstrap.servers": self.servers,
                "subscribe": topic,
                "startingOffsets": "earliest",
            }
            if rows is not None:
                options["endingOffsets"] = json.dumps({topic: told})
        return {"format": kind, "options": options}

    def sink(self, kind: str, topic: str) -> dict[str, Any]:
        options = {"kafka.bootstrap.servers": self.servers, "topic": topic}
        return {"format": kind, "options": options, "mode": "append"}

    def _create(self, name: str) -> None:
        topic = NewTopic(name=name, partition_count=PARTITIONS, replication_factor=1)
        for error in create_topics(self._client, [topic]).values():
            if error is not None:
                raise RuntimeError(error.message)
        # Until it is led by somebody.
        self._client.topic_soon(name, 10_000)


def _sample(value_bytes: int) -> pa.RecordBatch:
    words = np.random.default_rng(7)
    # Older records would be deleted as soon as they are written.
    now_ms = time.time_ns() // 1_000_000
    columns = {
        "key": _random(words, KEY_BYTES),
        "value": _random(words, value_bytes),
        "timestamp": pa.array(np.arange(_SAMPLE_ROWS, dtype=np.int64) + now_ms),
    }
    return pa.record_batch(columns)


def _random(words: np.random.Generator, size: int) -> pa.Array:
    content = words.integers(97, 113, (_SAMPLE_ROWS, size), np.uint8)
    ends = np.arange(0, size * _SAMPLE_ROWS + 1, size, dtype=np.int32)
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(content.tobytes())]
    return pa.BinaryArray.from_buffers(pa.binary(), _SAMPLE_ROWS, buffers)
