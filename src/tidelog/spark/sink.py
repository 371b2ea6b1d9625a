"""Writes DataFrames and streams into topics.

Spark calls `write` once in each task, and `commit` in the driver when all of them are done. Rows
are written by the tasks, each idempotent by itself; a task or a batch that Spark runs again writes
its rows again: at least once. Deciding in `commit` over what tasks have prepared is the place of
an exactly-once sink.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from tidelog.base.errors import BadValue
from tidelog.spark.sink_columns import check_columns
from tidelog.spark.sink_options import SinkOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskWritten(WriterCommitMessage):
    """What one task has written and brokers have confirmed."""

    rows: int
    rows_by_partition: dict[tuple[str, int], int]


class TidelogWriter(DataSourceArrowWriter):
    def __init__(self, options: SinkOptions, schema: StructType, *, overwrite: bool) -> None:
        if overwrite:
            raise BadValue(
                'mode "overwrite": a topic is a log, to which rows can only be added; '
                'write with .mode("append")'
            )
        check_columns(schema, options.topic)
        self._options = options

    def write(self, iterator: Iterator[Any]) -> TaskWritten:
        return _write(self._options, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """All that the messages tell of is written already."""

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """What was written stays: a log takes nothing back."""


class TidelogStreamWriter(DataSourceStreamArrowWriter):
    """In output mode `complete` the whole result is added anew by each batch, as Spark's own
    Kafka sink does it."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        check_columns(schema, options.topic)
        self._options = options

    def write(self, iterator: Iterator[Any]) -> TaskWritten:
        return _write(self._options, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """All that the messages tell of is written already."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """What was written stays; the batch that is run again adds its rows again."""


def _write(options: SinkOptions, batches: Iterator[Any]) -> TaskWritten:
    # Imported here: the compiled loops are for executors, and a driver starts sooner without.
    from tidelog.spark.task_writing import write_rows

    counts = write_rows(options, batches)
    return TaskWritten(rows=counts.total(), rows_by_partition=dict(counts))
