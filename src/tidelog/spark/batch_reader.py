"""Topics as a DataFrame: what is there between two places when the DataFrame is first used.

A DataFrame keeps the tasks of its first action, so it is a snapshot: what is written later is seen
by the next `load()`. A Spark Connect server keeps them as long as it remembers the plan
(`read_commits`).
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from tidelog.spark.options import SourceOptions
from tidelog.spark.tasks import RangePartition, read_partition

if TYPE_CHECKING:
    import pyarrow as pa


class TidelogReader(DataSourceReader):
    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        # For the one process that plans: tasks have a copy of this reader too.
        from tidelog.spark.batch_planning import batch_tasks

        return [RangePartition(wanted) for wanted in batch_tasks(self._options)]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        return read_partition(partition, self._options)
