"""A task of a read, as Spark carries it from who plans to who reads.

Spark makes readers in processes that neither plan nor read, and waits for each before the first
row comes, so that nothing is imported here before it is needed.
"""

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

    return read_range(partition.wanted, options)
