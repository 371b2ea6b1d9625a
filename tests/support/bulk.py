"""Batches to be written in bulk, and what was read in bulk as values one can compare."""

from collections.abc import Iterable, Mapping
from time import time_ns
from typing import Final

from tidelog.client.client import Client
from tidelog.client.fetching import Range, RangeReader
from tidelog.client.topics import NewTopic, create_topics
from tidelog.client.writing import BatchWriter
from tidelog.records.batch import walk
from tidelog.records.reference import Record, encode_batch, read_records

Configs = Mapping[str, str]
NO_CONFIGS: Final[Configs] = {}


def batch_of(values: Iterable[bytes], key: bytes | None = None) -> bytearray:
    """Written now, so that retention leaves it alone."""
    now_ms = time_ns() // 1_000_000
    records = [
        Record(offset=number, timestamp=now_ms, key=key, value=value)
        for number, value in enumerate(values)
    ]
    return bytearray(encode_batch(records))


def records_in(chunk: memoryview) -> list[tuple[int, bytes]]:
    """Offsets and values; the chunk must consist of whole good batches."""
    found: list[tuple[int, bytes]] = []
    end = 0
    for position, header in walk(chunk):
        end = position + header.size
        records = read_records(chunk[position:end], verify_crc=True)
        found += [(record.offset, record.value or b"") for record in records]
    assert end == len(chunk), "chunks end where a batch ends"
    return found


def whole(topic: str, end: int, *, start: int = 0, partition: int = 0) -> Range:
    return Range(topic=topic, topic_id=None, partition=partition, start=start, end=end)


def read_all(reader: RangeReader, wanted: Range) -> list[tuple[int, bytes]]:
    return drained(reader.read(wanted))


def drained(chunks: Iterable[memoryview]) -> list[tuple[int, bytes]]:
    return [one for chunk in chunks for one in records_in(chunk)]


def made(client: Client, name: str, partitions: int = 1, configs: Configs = NO_CONFIGS) -> str:
    topic = NewTopic(name=name, partition_count=partitions, configs=configs)
    assert create_topics(client, [topic]) == {name: None}
    return name


def filled(
    client: Client, name: str, batches: Iterable[bytearray], configs: Configs = NO_CONFIGS
) -> str:
    """A new topic with these batches in its one partition."""
    made(client, name, configs=configs)
    with BatchWriter(client) as writer:
        for batch in batches:
            writer.send(name, 0, batch)
        writer.flush()
    return name
