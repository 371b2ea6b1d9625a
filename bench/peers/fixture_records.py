"""What is written to Apache Kafka for the fixtures, and how it was acknowledged.

`Writer` sends a list of records as one batch and keeps each with the offset and time that the
broker gave it; the `write_*` functions below are the topics' contents.
"""

import base64
from collections.abc import Callable
from typing import Any

from confluent_kafka import Message, Producer

START_MS = 1_700_000_000_000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

Json = dict[str, Any]


class Writer:
    """Produces to a broker and keeps what was acknowledged."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.run = 1
        self.records: dict[str, list[Json]] = {}
        self.transactions: list[Json] = []

    def producer(self, **settings: Any) -> Producer:
        return Producer(
            {
                "bootstrap.servers": self.address,
                "linger.ms": 200,
                "log_level": 0,
                **{name.replace("_", "."): value for name, value in settings.items()},
            }
        )

    def batch(self, producer: Producer, topic: str, records: list[Json]) -> list[int]:
        """Sends the records as one batch and gives their offsets."""
        offsets: list[int] = []
        for record in records:
            producer.produce(topic, partition=0, on_delivery=self._note(record, offsets), **record)
        producer.flush()
        assert len(offsets) == len(records), f"{topic}: {len(offsets)} of {len(records)} arrived"
        return offsets

    def _note(self, record: Json, offsets: list[int]) -> Callable[[object, Message], None]:
        def delivered(error: object, message: Message) -> None:
            if error is not None:
                raise RuntimeError(f"not delivered: {error}")
            offset = message.offset()
            assert offset is not None
            offsets.append(offset)
            self._keep(message, offset, record)

        return delivered

    def _keep(self, message: Message, offset: int, record: Json) -> None:
        self.records.setdefault(f"{message.topic()}-{message.partition()}", []).append(
            {
                "run": self.run,
                "offset": offset,
                "timestamp": message.timestamp()[1],
                "key": _b64(record.get("key")),
                "value": _b64(record.get("value")),
                "headers": [[name, _b64(value)] for name, value in record.get("headers", [])],
            }
        )


def _b64(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()


def plain_records(first: int, count: int, timestamp_ms: int | None = None) -> list[Json]:
    """Records that differ in which of key, value and headers they have."""
    records: list[Json] = []
    for number in range(first, first + count):
        record: Json = {
            "key": None if number % 3 == 0 else f"key-{number}".encode(),
            "value": None if number % 7 == 6 else (f"value-{number} " * 3).encode(),
        }
        if number % 4 == 1:
            record["headers"] = [("trace", f"t{number}".encode()), ("none", None)]
        if timestamp_ms is not None:
            # Every fifth record is late, so that the latest time is not always the last one.
            record["timestamp"] = timestamp_ms + number * 1000 - (7500 if number % 5 == 4 else 0)
        records.append(record)
    return records


def _odd_records() -> list[Json]:
    values: list[tuple[bytes | None, bytes | None]] = [
        (b"", b""),
        (None, None),
        (b"k", None),
        (None, b"v"),
        ("clé".encode(), "värde ✓ 🎉".encode()),
        (b"\xff\xfe", b"bad \xc3\x28 utf-8 \xe2\x82 end \xf0\x9f\x98"),
        (b"two\nlines", b"a\nb\r\nc\td"),
        (b"esc", b"\x1b[31mred\x1b[0m \x00 \x07 \x7f \xc2\x85 \xe2\x80\xa8"),
        (b"surrogate", b"\xed\xa0\x80 \xf4\x90\x80\x80 \xc0\x80"),
        (b"back\\slash", b"\\n \\x1b"),
    ]
    records: list[Json] = [
        {"key": key, "value": value, "timestamp": START_MS + number}
        for number, (key, value) in enumerate(values)
    ]
    records[3]["headers"] = [("same", b"1"), ("same", b"2"), ("", b""), ("nul", None)]
    records[4]["headers"] = [("naïve,]", b"\x00\xff")]
    return records


def write_codecs(writer: Writer, first: int, batches: int) -> None:
    for codec in CODECS:
        producer = writer.producer(compression_type=codec)
        for number in range(batches):
            records = plain_records(first + number * 5, 5, START_MS)
            writer.batch(producer, f"codec-{codec}", records)


def write_odd(writer: Writer) -> None:
    producer = writer.producer()
    for record in _odd_records():
        writer.batch(producer, "odd", [record])
    writer.batch(writer.producer(compression_type="gzip"), "odd", _odd_records())


def write_append_time(writer: Writer, first: int) -> None:
    producer = writer.producer(compression_type="lz4")
    for number in range(4):
        writer.batch(producer, "append-time", plain_records(first + number * 4, 4, START_MS))


def write_idempotent(writer: Writer) -> None:
    producers = [writer.producer(enable_idempotence=True) for _ in range(3)]
    for number in range(9):
        # The third producer writes once; the first more often than a snapshot remembers.
        producer = producers[2] if number == 4 else producers[number % 4 == 3]
        writer.batch(producer, "idempotent", plain_records(number * 3, 3))


def write_transactions(writer: Writer, topic: str, name: str, *, leave_open: bool) -> Producer:
    producer = writer.producer(
        transactional_id=name, transaction_timeout_ms=900_000, compression_type="snappy"
    )
    producer.init_transactions()
    for number in range(6):
        aborts = number % 3 == 1
        producer.begin_transaction()
        records = _keyed(range(number, number + 3), f"{name}-{number}")
        offsets = writer.batch(producer, topic, records)
        (producer.abort_transaction if aborts else producer.commit_transaction)()
        _note(writer, topic, name, "aborted" if aborts else "committed", offsets)
    if leave_open:
        producer.begin_transaction()
        offsets = writer.batch(producer, topic, _keyed(range(2), f"{name}-open"))
        _note(writer, topic, name, "open", offsets)
    return producer


def _note(writer: Writer, topic: str, name: str, state: str, offsets: list[int]) -> None:
    writer.transactions.append(
        {
            "run": writer.run,
            "topic": topic,
            "transactional_id": name,
            "state": state,
            "offsets": offsets,
        }
    )


def _keyed(numbers: range, value: str) -> list[Json]:
    return [{"key": f"k{number}".encode(), "value": value.encode()} for number in numbers]


def write_compacted(writer: Writer, round_number: int) -> None:
    """Keys come again, some end in a tombstone, and one producer's last batch is wholly replaced:
    the cleaner leaves its empty batch, which remembers the sequence number."""
    early = writer.producer(enable_idempotence=True, compression_type="gzip")
    late = writer.producer(enable_idempotence=True)
    writer.batch(early, "compacted", _keyed(range(3), f"early-{round_number}"))
    for number in range(8):
        records = _keyed(range(number % 4, number % 4 + 3), f"late-{round_number}-{number} " * 3)
        writer.batch(late, "compacted", records)
    tombstones = [{"key": f"k{number}".encode(), "value": None} for number in (0, 4, 9)]
    writer.batch(late, "compacted", tombstones)
    for number in range(4):
        writer.batch(late, "compacted", _keyed(range(20, 24), f"tail-{round_number}-{number} " * 3))


def write_preallocated(writer: Writer, first: int, batches: int) -> None:
    producer = writer.producer()
    for number in range(batches):
        writer.batch(producer, "preallocated", plain_records(first + number * 4, 4, START_MS))
