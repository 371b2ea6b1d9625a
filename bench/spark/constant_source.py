"""A Python source that does nothing: one batch that is always the same, which asks nobody and reads
nothing. What its first micro-batch takes is what Spark takes to start its Python processes, and no
source in Python can be sooner. Only there to be compared with.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

if TYPE_CHECKING:
    import pyarrow as pa

TASKS = 2
ROWS = 500
"""Of a task."""


class ConstantSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "constant"

    def schema(self) -> str:
        return "key binary, value binary"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        del schema
        return ConstantReader()


class ConstantReader(DataSourceStreamReader):
    def initialOffset(self) -> dict[str, Any]:
        return {"batch": 0}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        del start, limit
        return {"batch": 1}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        del start, end
        return [InputPartition(number) for number in range(TASKS)]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        del partition
        # Imported here, as by any source that is careful: for the workers only.
        import pyarrow as pa

        # Of buffers: values of Python's would make pyarrow import pandas.
        empty = [None, pa.py_buffer(bytes(4 * (ROWS + 1))), pa.py_buffer(b"")]
        column = pa.Array.from_buffers(pa.binary(), ROWS, empty)
        yield pa.RecordBatch.from_arrays([column, column], names=["key", "value"])
