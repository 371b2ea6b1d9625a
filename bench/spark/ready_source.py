"""A Python source that has its Arrow batches ready: a task yields one again and again, of the shape
that a topic's records have, asks nobody and decodes nothing. What is left is what Spark takes to be
handed such batches, which no source in Python can be faster than. Only there to be compared with.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from bench.spark.row_source import COLUMNS

if TYPE_CHECKING:
    import pyarrow as pa

TASKS = 2
KEY_BYTES = 16


class ReadySource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "ready-made"

    def schema(self) -> str:
        return COLUMNS

    def reader(self, schema: StructType) -> DataSourceReader:
        del schema
        return ReadyReader(
            int(self.options["rows"]),
            int(self.options["value_bytes"]),
            int(self.options["batch_rows"]),
        )


class ReadyReader(DataSourceReader):
    def __init__(self, rows: int, value_bytes: int, batch_rows: int) -> None:
        self._rows = rows
        self._value_bytes = value_bytes
        self._batch_rows = batch_rows

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(number) for number in range(TASKS)]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        del partition
        batch = _batch(self._batch_rows, self._value_bytes)
        left = self._rows // TASKS
        while left > 0:
            yield batch.slice(0, min(left, len(batch)))
            left -= len(batch)


def _batch(rows: int, value_bytes: int) -> "pa.RecordBatch":
    # Imported here, as by any source that is careful: for the workers only.
    import numpy as np
    import pyarrow as pa

    def repeated(kind: pa.DataType, cell: bytes) -> pa.Array:
        ends = np.arange(rows + 1, dtype=np.int32) * len(cell)
        return pa.Array.from_buffers(
            kind, rows, [None, pa.py_buffer(ends), pa.py_buffer(cell * rows)]
        )

    def counted(kind: pa.DataType, dtype: str) -> pa.Array:
        numbers = pa.py_buffer(np.arange(rows, dtype=dtype))
        return pa.Array.from_buffers(kind, rows, [None, numbers])

    columns = {
        "key": repeated(pa.binary(), bytes(KEY_BYTES)),
        "value": repeated(pa.binary(), bytes(value_bytes)),
        "topic": repeated(pa.string(), b"ready-made"),
        "partition": counted(pa.int32(), "i4"),
        "offset": counted(pa.int64(), "i8"),
        "timestamp": counted(pa.timestamp("us", "UTC"), "i8"),
        "timestampType": counted(pa.int32(), "i4"),
    }
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
