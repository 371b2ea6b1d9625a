"""The columns that are written, and of which types they may be; others are left alone, so that
what was read from a topic can be written to another one as it is.
"""

from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    StringType,
    StructType,
    TimestampType,
)

from tidelog.base.errors import BadValue
from tidelog.spark.sink_options import COLUMNS

_BYTES: Final = "string or binary"
_TYPES: Final = {
    "key": _BYTES,
    "value": _BYTES,
    "topic": _BYTES,
    "partition": "int",
    "headers": "array<struct<key:string,value:binary>>",
    "timestamp": "timestamp",
}


def check_columns(schema: StructType, topic: str | None) -> None:
    """`topic` is that of all rows, if one was given; a column of that name is then left alone."""
    names = schema.fieldNames()
    for name in names:
        if name in COLUMNS and names.count(name) > 1:
            raise BadValue(f"column {name}: there are {names.count(name)} of this name")
    if "value" not in names:
        raise BadValue(f"column value is missing: it must be {_BYTES}; there are {_listed(names)}")
    if topic is None and "topic" not in names:
        raise BadValue(
            "no topic to write to: name it with the option topic, or each row's in a column topic"
        )
    written = [name for name in COLUMNS if name != "topic" or topic is None]
    for field in schema.fields:
        if field.name in written and not _is_allowed(field.name, field.dataType):
            raise BadValue(
                f"column {field.name} is {field.dataType.simpleString()}: must be "
                f"{_TYPES[field.name]}"
            )


def _listed(names: list[str]) -> str:
    return ", ".join(names) or "none"


def _is_allowed(name: str, kind: DataType) -> bool:
    match name:
        case "partition":
            return isinstance(kind, IntegerType)
        case "timestamp":
            return isinstance(kind, TimestampType)
        case "headers":
            return isinstance(kind, ArrayType) and _is_header(kind.elementType)
    return isinstance(kind, StringType | BinaryType)


def _is_header(kind: DataType) -> bool:
    return (
        isinstance(kind, StructType)
        and kind.fieldNames() == ["key", "value"]
        and isinstance(kind["key"].dataType, StringType)
        and isinstance(kind["value"].dataType, BinaryType)
    )
