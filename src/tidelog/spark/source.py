"""The format `tidelog` of Spark: topics as DataFrames and as streams, in both directions.

Spark makes one of these for each `load` or `save`, hands it the options, and asks it for readers
and writers; `pyspark_tidelog` is how Spark finds it. Spark imports this in several processes, one
after the other, before the first row is read: what only one of them needs is imported there.
"""

from dataclasses import replace
from typing import Final

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from tidelog.base.errors import BadValue
from tidelog.spark.options import SourceOptions, parse_table_columns

_HEADER: Final = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
_TYPES: Final[dict[str, DataType]] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": ArrayType(_HEADER),
}


class TidelogDataSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "tidelog"

    def schema(self) -> StructType:
        """A table that is being declared names no topic: that is said where it is read."""
        if "provider" in self.options:
            return spark_schema(parse_table_columns(self.options))
        return spark_schema(SourceOptions.parse_for_either(self.options).columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        from tidelog.spark.batch_reader import TidelogReader

        return TidelogReader(self._read_options(schema, is_stream=False))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from tidelog.spark.stream_reader import TidelogStreamReader

        return TidelogStreamReader(self._read_options(schema, is_stream=True))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from tidelog.spark.sink import TidelogWriter
        from tidelog.spark.sink_options import SinkOptions

        options = SinkOptions.parse(self.options, is_stream=False)
        return TidelogWriter(options, schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Mode `complete` comes as an overwrite; a log can only be added to, and so it is."""
        from tidelog.spark.sink import TidelogStreamWriter
        from tidelog.spark.sink_options import SinkOptions

        del overwrite
        return TidelogStreamWriter(SinkOptions.parse(self.options, is_stream=True), schema)

    def _read_options(self, schema: StructType, *, is_stream: bool) -> SourceOptions:
        """A schema that was given, or that a table was declared with, chooses columns too."""
        options = SourceOptions.parse(self.options, is_stream=is_stream)
        names = tuple(schema.names)
        are_named = "columns" in self.options or "includeHeaders" in self.options
        is_other = names != options.columns
        if not all(map(_is_of_topics, schema)) or (are_named and is_other):
            chosen = spark_schema(options.columns if are_named else tuple(_TYPES))
            raise BadValue(
                f"the schema {schema.simpleString()}: must be {chosen.simpleString()}"
                f"{'' if are_named else ', or some of it'}"
            )
        return replace(options, columns=names)


def spark_schema(columns: tuple[str, ...]) -> StructType:
    return StructType([StructField(name, _TYPES[name]) for name in columns])


def _is_of_topics(field: StructField) -> bool:
    right = _TYPES.get(field.name)
    return right is not None and field.dataType.simpleString() == right.simpleString()
