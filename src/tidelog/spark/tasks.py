"""A task of a read, as Spark carries it from who plans to who reads.

Spark makes readers in processes that neither plan nor read, and waits for each before the first
row comes, so that nothing is imported here before it is needed.
"""

import gc
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from tidelog.spark.options import SourceOptions

if TYPE_CHECKING:
    import pyarrow as pa

    from tidelog.client.fetching import Range


@dataclass
class RangePartition(InputPartition):
    wanted: "Range"


def read_partition(partition: InputPartition, options: SourceOptions) -> "Iterator[pa.RecordBatch]":
    """Where nothing was planned Spark makes a partition of its own, which has nothing in it."""
    if not isinstance(partition, RangePartition):
        return iter(())
    from tidelog.spark.reading import read_range

    set_modules_aside()
    return read_range(partition.wanted, options)


def set_modules_aside() -> None:
    """For a process that Spark gives tasks, once it has imported what they need. Spark has it
    collect garbage after each task, which else looks at all that was imported: 7 to 17 ms."""
    if not gc.get_freeze_count():
        gc.freeze()
