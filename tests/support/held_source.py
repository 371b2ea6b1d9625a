"""Spark's source of topics with doors in it, at which a test can hold planner and tasks; and notes
of what each attempt of each task has read.

It is the source itself, with something said before and after its methods. Whoever runs it has the
folder in the environment, which all processes of a query inherit.
"""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceStreamReader,
    DataSourceStreamWriter,
    InputPartition,
)
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from support.doors import Doors
from tidelog.spark.sink_options import SinkOptions
from tidelog.spark.source import TidelogDataSource
from tidelog.spark.stream_reader import TidelogStreamReader
from tidelog.spark.tasks import RangePartition

FOLDER: Final = "TIDELOG_TEST_DOORS"
PLANNING: Final = "planning"
"""Before the brokers are asked what there is."""
PLANNED: Final = "planned"
"""A batch is planned, and Spark does not know of it yet."""
DIVIDING: Final = "dividing"
"""Spark has logged the batch, and asks for its tasks."""
READING: Final = "reading"
"""A task has read some of its records, and not all."""
READ: Final = "read"
"""The task of partition 0 has handed over all of its records, and is not done yet."""


class HeldSource(TidelogDataSource):
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return HeldReader(self._read_options(schema, is_stream=True))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from support.held_sink import HeldWriter

        del overwrite
        return HeldWriter(SinkOptions.parse(self.options, is_stream=True), schema)


class HeldReader(TidelogStreamReader):
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        doors_here().go_through(PLANNING)
        end = super().latestOffset(start, limit)
        if end != start:
            doors_here().go_through(PLANNED)
        return end

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        doors_here().go_through(DIVIDING)
        return super().partitions(start, end)

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        assert isinstance(partition, RangePartition)
        doors = doors_here()
        with _new_note(partition).open("wb") as note:
            for batch in super().read(partition):
                with pa.ipc.new_stream(note, batch.schema) as writer:
                    writer.write_batch(batch)
                note.flush()
                yield batch
                doors.go_through(READING)
        if partition.wanted.partition == 0:
            doors.go_through(READ)


def doors_here() -> Doors:
    return Doors(Path(os.environ[FOLDER]) / "doors")


def notes_in(folder: Path) -> Path:
    return folder / "notes"


def _new_note(partition: RangePartition) -> Path:
    """Named after the batch and the attempt."""
    task = TaskContext.get()
    assert task is not None
    batch_id = task.getLocalProperty("streaming.sql.batchId")
    wanted = partition.wanted
    folder = notes_in(Path(os.environ[FOLDER]))
    folder.mkdir(exist_ok=True)
    what = f"{batch_id}_{wanted.partition}_{wanted.start}_{wanted.end}"
    return folder / f"{what}_{os.getpid()}_{task.taskAttemptId()}"
