"""The rows of topics, as Spark's source gives them and as confluent-kafka does, in one form.

Sources are driven here as Spark drives them, but without a session, so that many options can be
tried in a short time.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition
from pyspark.sql.datasource import CaseInsensitiveDict, InputPartition
from pyspark.sql.types import StructType

from tidelog.spark.source import TidelogDataSource, spark_schema

ALL_COLUMNS = (
    *("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers"),
)


class Row(NamedTuple):
    """In the order of offsets, when sorted."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    time_ms: int
    is_append_time: int
    headers: tuple[tuple[str, bytes | None], ...]


def source(bootstrap: str, **options: Any) -> TidelogDataSource:
    """With `_` for the dots in an option's name."""
    given = {name.replace("_", "."): str(value) for name, value in options.items()}
    return TidelogDataSource(CaseInsensitiveDict({"kafka.bootstrap.servers": bootstrap, **given}))


def batches_of(made: TidelogDataSource) -> list[list[Any]]:
    """The Arrow batches of each task."""
    reader = made.reader(made.schema())
    return [list(reader.read(task)) for task in reader.partitions()]


def by_source(bootstrap: str, **options: Any) -> list[Row]:
    """All columns, by partition and offset."""
    tasks = batches_of(source(bootstrap, includeHeaders="true", **options))
    return rows_of(batch for task in tasks for batch in task)


def by_stream(bootstrap: str, **options: Any) -> list[Row]:
    """All columns of what a stream that begins now finds, by partition and offset."""
    made = source(bootstrap, includeHeaders="true", **options)
    reader: Any = made.streamReader(made.schema())
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    try:
        return read_tasks(reader, reader.partitions(start, end))
    finally:
        reader.stop()


def rows_of(batches: Iterable[Any]) -> list[Row]:
    """Of Arrow batches with all columns."""
    return sorted(as_row(row) for batch in batches for row in batch.to_pylist())


def as_row(row: Any) -> Row:
    """Of a row with all columns, as Arrow or Spark gives it."""
    return Row(
        topic=row["topic"],
        partition=row["partition"],
        offset=row["offset"],
        key=_plain(row["key"]),
        value=_plain(row["value"]),
        time_ms=round(row["timestamp"].timestamp() * 1000),
        is_append_time=row["timestampType"],
        headers=tuple((one["key"], _plain(one["value"])) for one in row["headers"] or ()),
    )


def _plain(value: Any) -> bytes | None:
    return None if value is None else bytes(value)


def by_confluent(bootstrap: str, topic: str, partitions: int = 1, **settings: Any) -> list[Row]:
    """Everything from the beginning to the end of a topic, by partition and offset."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "none",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
    )
    try:
        consumer.assign([TopicPartition(topic, one, OFFSET_BEGINNING) for one in range(partitions)])
        return sorted(_until_ends(consumer, partitions))
    finally:
        consumer.close()


def _until_ends(consumer: Consumer, partitions: int) -> Iterable[Row]:
    ended: set[int] = set()
    while len(ended) < partitions:
        for message in consumer.consume(1000, 0.05):
            error = message.error()
            if error is None:
                yield _row_of(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                ended.add(message.partition())
            else:
                raise KafkaException(error)


def _row_of(message: Any) -> Row:
    kind, time_ms = message.timestamp()
    return Row(
        topic=message.topic(),
        partition=message.partition(),
        offset=message.offset(),
        key=message.key(),
        value=message.value(),
        time_ms=time_ms,
        is_append_time=int(kind == 2),
        headers=tuple(message.headers() or ()),
    )


def read_tasks(reader: Any, tasks: Sequence[InputPartition]) -> list[Row]:
    return rows_of(batch for task in tasks for batch in reader.read(task))


def all_columns() -> StructType:
    return spark_schema(ALL_COLUMNS)
