"""The step of the demo in which clients that know nothing of tidelog write and read."""

import time
from pathlib import Path
from typing import Final

from confluent_kafka import TopicPartition

from tidelog.cli.demo_clients import CLIENTS, CannotRead, Client, open_consumer
from tidelog.cli.demo_serving import SHARED, Play
from tidelog.cli.demo_stage import order
from tidelog.records.batch import BatchHeader, walk
from tidelog.records.compression import NAMES
from tidelog.records.reference import Record, encode_batch

RECORDS_EACH: Final = 1_000
NEEDS: Final = {
    "needs groups": "kafkajs reads as a member of a group only, and groups are not there yet.",
    "needs codecs": "kafka-python reads lz4, snappy and zstd if packages for them are there.",
}
"""What a client would need in order to read, and a sentence about it."""


def let_clients_in(play: Play) -> None:
    """Each that is installed writes to one topic; then each reads what all of them wrote."""
    screen = play.screen
    screen.step("Clients: other people's, unmodified, each with its own codec")
    there = [client for client in CLIENTS if client.version() is not None]
    missing = [client.name for client in CLIENTS if client not in there]
    sent: list[Record] = []
    for client in there:
        records = _orders(len(sent))
        client.write(play.address, SHARED, records)
        sent += records
        assert _log_end(play) == len(sent), f"{client.name} wrote all it was given, and once"
    stored = _stored(play)
    rows = [
        (
            client.name,
            client.version(),
            RECORDS_EACH,
            *_how_stored(stored, sent, index * RECORDS_EACH),
            _read_back(client, play.address, sent),
        )
        for index, client in enumerate(there)
    ]
    screen.table(["client", "version", "wrote", "stored as", "smaller by", "read"], rows)
    for need, why in NEEDS.items():
        if any(row[-1] == need for row in rows):
            screen.say(why)
    if missing:
        screen.say(f"Not installed, so not shown: {', '.join(missing)}.")
    screen.notice(
        "How they are stored was read from the log's own file: as they were sent. Who read got "
        "all that all of them wrote, in order and byte for byte."
    )


def _orders(first: int) -> list[Record]:
    now_ms = time.time_ns() // 1_000_000
    return [order(first + n, now_ms, offset=n) for n in range(RECORDS_EACH)]


def _log_end(play: Play) -> int:
    consumer = open_consumer(play.address)
    _, end = consumer.get_watermark_offsets(TopicPartition(SHARED, 0), timeout=10)
    consumer.close()
    return int(end)


def _stored(play: Play) -> list[BatchHeader]:
    """The header of every batch in the topic's files."""
    files = sorted((play.node.log_dir / f"{SHARED}-0").glob("*.log"))
    return [header for data in map(Path.read_bytes, files) for _, header in walk(data)]


def _how_stored(stored: list[BatchHeader], sent: list[Record], first: int) -> tuple[str, str]:
    """The codecs of the batches that one client wrote, and how much smaller they made them."""
    end = first + RECORDS_EACH
    own = [header for header in stored if first <= header.base_offset < end]
    codecs = sorted({NAMES[header.compression] for header in own})
    plain = len(encode_batch(sent[first:end]))
    return ", ".join(codecs), f"{plain / sum(header.size for header in own):.1f}x"


def _read_back(client: Client, address: str, sent: list[Record]) -> str:
    try:
        values = client.read(address, SHARED, len(sent))
    except CannotRead as why:
        return str(why)
    assert values == [record.value for record in sent], f"{client.name} read something else"
    return f"{len(values):,}"
