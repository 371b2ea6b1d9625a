"""What a source in Python looks like that hands Spark one row after the other: confluent-kafka's
consumer, 10,000 messages at a time, a tuple for each. Only there to be compared with.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

AT_ONCE = 10_000
_WAIT_SECONDS = 10
COLUMNS = (
    "key binary, value binary, topic string, partition int, offset bigint, "
    "timestamp timestamp, timestampType int"
)


@dataclass
class RowRange(InputPartition):
    number: int
    end: int


class RowSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "row-at-a-time"

    def schema(self) -> str:
        return COLUMNS

    def reader(self, schema: StructType) -> DataSourceReader:
        del schema
        return RowReader(dict(self.options))


class RowReader(DataSourceReader):
    def __init__(self, options: dict[str, str]) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        ends = json.loads(self._options["ends"])
        return [RowRange(int(number), end) for number, end in ends.items()]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        # Imported here: for the workers only.
        from confluent_kafka import Consumer, TopicPartition

        assert isinstance(partition, RowRange)
        consumer = Consumer(
            {
                "bootstrap.servers": self._options["servers"],
                "group.id": "row-at-a-time",
                "check.crcs": True,
                "enable.auto.commit": False,
            }
        )
        consumer.assign([TopicPartition(self._options["topic"], partition.number, 0)])
        left = partition.end
        while left > 0:
            messages = consumer.consume(min(AT_ONCE, left), _WAIT_SECONDS)
            left -= len(messages)
            for message in messages:
                kind, time_ms = message.timestamp()
                yield (
                    message.key(),
                    message.value(),
                    message.topic(),
                    message.partition(),
                    message.offset(),
                    datetime.fromtimestamp(time_ms / 1000, UTC),
                    kind - 1,
                )
        consumer.close()
