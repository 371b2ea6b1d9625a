"""Other people's clients, as the demo uses them: each writes with a codec, and reads.

The ones in Python are called here, in this process; kcat and kafkajs are programs of their own.
Where one is not installed the demo says so and goes on; only confluent-kafka is always there.
"""

import asyncio
import json
import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import version
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Final, Protocol

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from tidelog.records.reference import Record

SECONDS_MAX: Final = 30
QUIET: Final = {"log_level": 0}
_LINGER_MS: Final = 20
_NODE_MODULES: Final = Path(sys.prefix) / "node" / "node_modules"


class CannotRead(Exception):
    """What a client that is there would need in order to read."""


class Client(Protocol):
    name: str
    codec: str

    def version(self) -> str | None:
        """None if it is not installed."""

    def write(self, address: str, topic: str, records: Sequence[Record], /) -> None: ...

    def read(self, address: str, topic: str, count: int, /) -> list[bytes]:
        """The values of the first `count` records of partition 0."""


class ConfluentKafka:
    """librdkafka, the C client under many languages' clients, from Python."""

    name = "confluent-kafka"
    codec = "zstd"

    def version(self) -> str | None:
        return version(self.name)

    def write(self, address: str, topic: str, records: Sequence[Record]) -> None:
        producer = Producer(
            {"bootstrap.servers": address, "compression.type": self.codec, "linger.ms": _LINGER_MS}
            | QUIET
        )
        for record in records:
            producer.produce(topic, key=record.key, value=record.value, timestamp=record.timestamp)
        assert producer.flush(SECONDS_MAX) == 0, "confluent-kafka had no answer"

    def read(self, address: str, topic: str, count: int) -> list[bytes]:
        consumer = open_consumer(address)
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        values: list[bytes] = []
        while len(values) < count:
            messages = consumer.consume(count - len(values), SECONDS_MAX)
            assert messages, f"{len(values)} of {count} records came"
            values += [message.value() for message in messages]
        consumer.close()
        return values


def open_consumer(address: str, **settings: object) -> Consumer:
    """One that reads what it is assigned; settings with `_` for `.`."""
    given = {name.replace("_", "."): value for name, value in settings.items()}
    fixed = {"bootstrap.servers": address, "group.id": "demo", "enable.auto.commit": False}
    return Consumer(fixed | QUIET | given)


class Aiokafka:
    """In pure Python, for asyncio."""

    name = "aiokafka"
    codec = "lz4"

    def version(self) -> str | None:
        return version(self.name) if find_spec("aiokafka") else None

    def write(self, address: str, topic: str, records: Sequence[Record]) -> None:
        asyncio.run(self._write(address, topic, records))

    async def _write(self, address: str, topic: str, records: Sequence[Record]) -> None:
        from aiokafka import AIOKafkaProducer

        async with AIOKafkaProducer(
            bootstrap_servers=address, compression_type=self.codec, linger_ms=_LINGER_MS
        ) as producer:
            sent = [await producer.send(topic, record.value, record.key) for record in records]
            await asyncio.gather(*sent)

    def read(self, address: str, topic: str, count: int) -> list[bytes]:
        return asyncio.run(asyncio.wait_for(self._read(address, topic, count), SECONDS_MAX))

    async def _read(self, address: str, topic: str, count: int) -> list[bytes]:
        from aiokafka import AIOKafkaConsumer
        from aiokafka import TopicPartition as Place

        async with AIOKafkaConsumer(
            bootstrap_servers=address, auto_offset_reset="earliest"
        ) as consumer:
            consumer.assign([Place(topic, 0)])
            return [(await consumer.getone()).value for _ in range(count)]


class KafkaPython:
    """In pure Python, with threads."""

    name = "kafka-python"
    codec = "gzip"

    def version(self) -> str | None:
        return version(self.name) if find_spec("kafka") else None

    def write(self, address: str, topic: str, records: Sequence[Record]) -> None:
        from kafka import KafkaProducer

        logging.getLogger("kafka").addHandler(logging.NullHandler())
        producer = KafkaProducer(
            bootstrap_servers=address, compression_type=self.codec, linger_ms=_LINGER_MS
        )
        sent = [producer.send(topic, record.value, record.key) for record in records]
        for future in sent:
            future.get(SECONDS_MAX)
        producer.close()

    def read(self, address: str, topic: str, count: int) -> list[bytes]:
        from kafka import KafkaConsumer
        from kafka import TopicPartition as Place
        from kafka.codec import has_lz4, has_snappy, has_zstd

        if not (has_lz4() and has_snappy() and has_zstd()):
            raise CannotRead("needs codecs")
        consumer = KafkaConsumer(
            bootstrap_servers=address,
            auto_offset_reset="earliest",
            consumer_timeout_ms=SECONDS_MAX * 1000,
        )
        consumer.assign([Place(topic, 0)])
        values = [message.value for message in islice(consumer, count)]
        consumer.close()
        return values


class Kcat:
    """A program in C; Debian's has a librdkafka of 2023."""

    name = "kcat"
    codec = "snappy"

    def version(self) -> str | None:
        if shutil.which("kcat") is None:
            return None
        shown = self._run("-V").decode()
        return shown.partition("Version ")[2].split()[0]

    def write(self, address: str, topic: str, records: Sequence[Record]) -> None:
        lines = b"".join(
            b"%b\t%b\n" % (record.key or b"", record.value or b"") for record in records
        )
        linger = f"linger.ms={_LINGER_MS}"
        self._run(
            *("-b", address, "-P", "-t", topic, "-p", "0", "-K", "\t", "-z", self.codec),
            *("-X", linger),
            given=lines,
        )

    def read(self, address: str, topic: str, count: int) -> list[bytes]:
        start = ("-b", address, "-C", "-t", topic, "-p", "0", "-o", "beginning", "-q")
        return self._run(*start, "-c", str(count), "-f", "%s\n").splitlines()

    def _run(self, *arguments: str, given: bytes = b"") -> bytes:
        command = ["kcat", *arguments]
        return subprocess.run(
            command, input=given, capture_output=True, check=True, timeout=SECONDS_MAX
        ).stdout


class Kafkajs:
    """For Node. Its consumer always joins a group, so here it only writes."""

    name = "kafkajs"
    codec = "gzip"

    _SCRIPT: Final = """
        const { Kafka, CompressionTypes, Partitioners, logLevel } = require('kafkajs')
        const [address, topic] = process.argv.slice(1)
        const messages = JSON.parse(require('fs').readFileSync(0))
        const kafka = new Kafka({ brokers: [address], logLevel: logLevel.NOTHING })
        const producer = kafka.producer({ createPartitioner: Partitioners.DefaultPartitioner })
        producer.connect()
          .then(() => producer.send({ topic, messages, compression: CompressionTypes.GZIP }))
          .then(() => producer.disconnect())
          .catch(error => { console.error(error.message); process.exit(1) })
    """

    def version(self) -> str | None:
        package = _NODE_MODULES / self.name / "package.json"
        if shutil.which("node") is None or not package.exists():
            return None
        return str(json.loads(package.read_text())["version"])

    def write(self, address: str, topic: str, records: Sequence[Record]) -> None:
        messages = [
            {"key": (record.key or b"").decode(), "value": (record.value or b"").decode()}
            for record in records
        ]
        subprocess.run(
            ["node", "-e", self._SCRIPT, address, topic],
            input=json.dumps(messages).encode(),
            capture_output=True,
            check=True,
            timeout=SECONDS_MAX,
            env=os.environ | {"NODE_PATH": str(_NODE_MODULES)},
        )

    def read(self, _address: str, _topic: str, _count: int, /) -> list[bytes]:
        raise CannotRead("needs groups")


CLIENTS: Final[Sequence[Client]] = (
    ConfluentKafka(),
    Aiokafka(),
    KafkaPython(),
    Kcat(),
    Kafkajs(),
)
