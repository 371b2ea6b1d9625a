"""Making a request of whichever version was agreed on, out of plain values.

Values are given by field name: nested entities as mappings, durations as whole milliseconds.
Fields that the version does not have are left out, those that were not given have the schema's
default, or zero.
"""

from collections.abc import Mapping
from datetime import timedelta
from functools import cache
from typing import Any

from tidelog.wire.entities import FieldShape, shapes

Values = Mapping[str, Any]


def build(kind: type, values: Values) -> Any:
    return kind(**{shape.name: _content(shape, values) for shape in _shapes_of(kind)})


def _content(shape: FieldShape, values: Values) -> Any:
    if shape.name not in values:
        return shape.default
    value = values[shape.name]
    if value is None:
        return None
    if shape.is_array:
        return tuple(_single(shape, item) for item in value)
    return _single(shape, value)


def _single(shape: FieldShape, value: Any) -> Any:
    if shape.entity is not None:
        return build(shape.entity, value)
    if shape.kafka_type is not None and shape.kafka_type.startswith("timedelta"):
        return timedelta(milliseconds=value)
    return value


@cache
def _shapes_of(kind: type) -> tuple[FieldShape, ...]:
    return tuple(shapes(kind))
