"""Writes any of Kafka's messages from kio's dataclasses, and those of `base.control`.

A writer is put together once per entity. A tagged field is written only where it differs from
its default. What cannot be written, a text that is too long or a number out of range, is an
error of the caller and raises. The items of a long array may be written beforehand, one by one.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from struct import Struct
from typing import Any, Final, TypeAlias

from tidelog.wire.entities import FieldShape, shapes
from tidelog.wire.values import encode_count, encode_string, varint

Write: TypeAlias = Callable[[bytearray, Any], None]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
_entity_writers: dict[type[Any], Write] = {}


class Written:
    """The items of an array that were written already, in place of the items."""

    __slots__ = ("count", "data")

    def __init__(self) -> None:
        self.count = 0
        self.data = bytearray()

    def add(self, item: Any) -> None:
        write_entity(self.data, item)
        self.count += 1


def write_entity(out: bytearray, value: Any) -> None:
    """Appends an entity."""
    _entity_writer(type(value))(out, value)


def _entity_writer(entity: type[Any]) -> Write:
    write = _entity_writers.get(entity)
    if write is None:
        write = _entity_writers[entity] = _make_entity_writer(entity)
    return write


def _make_entity_writer(entity: type[Any]) -> Write:
    flexible: bool = entity.__flexible__
    plain: list[tuple[str, Write]] = []
    tagged: list[tuple[int, FieldShape, Write]] = []
    for shape in shapes(entity):
        write = _field_writer(shape, flexible)
        if shape.tag is None:
            plain.append((shape.name, write))
        else:
            tagged.append((shape.tag, shape, write))
    tagged.sort(key=lambda field: field[0])

    def write_fields(out: bytearray, value: Any) -> None:
        for name, write in plain:
            write(out, getattr(value, name))
        if tagged:
            _write_tags(out, value, tagged)
        elif flexible:
            out.append(0)

    return write_fields


def _write_tags(out: bytearray, value: Any, tagged: list[tuple[int, FieldShape, Write]]) -> None:
    written: list[bytes] = []
    for tag, shape, write in tagged:
        content = getattr(value, shape.name)
        if content != shape.default:
            encoded = bytearray()
            write(encoded, content)
            written.append(varint(tag) + varint(len(encoded)) + encoded)
    out += varint(len(written))
    out += b"".join(written)


def _field_writer(shape: FieldShape, flexible: bool) -> Write:
    if shape.entity is not None:
        write = _entity_writer(shape.entity)
    else:
        assert shape.kafka_type is not None, f"{shape.name} has no type"
        write = _value_writer(shape.kafka_type, flexible)
    if shape.is_array:
        return _array_writer(write, shape, flexible)
    if shape.entity is not None and shape.nullable:
        return _nullable(write)
    return write


def _nullable(write: Write) -> Write:
    def write_nullable(out: bytearray, value: Any) -> None:
        if value is None:
            out.append(0xFF)
        else:
            out.append(1)
            write(out, value)

    return write_nullable


def _array_writer(write: Write, shape: FieldShape, flexible: bool) -> Write:
    def write_array(out: bytearray, values: tuple[Any, ...] | Written | None) -> None:
        if values is None:
            assert shape.nullable, f"the array {shape.name} may not be null"
            out += encode_count(-1, flexible)
            return
        if isinstance(values, Written):
            out += encode_count(values.count, flexible)
            out += values.data
            return
        out += encode_count(len(values), flexible)
        for value in values:
            write(out, value)

    return write_array


def _number(code: str) -> Write:
    pack = Struct(f">{code}").pack

    def write_number(out: bytearray, value: Any) -> None:
        out += pack(value)

    return write_number


_INT8, _INT16, _INT32, _INT64 = (_number(code) for code in "bhiq")


def _write_error_code(out: bytearray, value: Any) -> None:
    _INT16(out, value.value)


def _write_uuid(out: bytearray, value: Any) -> None:
    out += bytes(16) if value is None else value.bytes


def _write_topic_id(out: bytearray, value: Any) -> None:
    assert len(value) == 16, f"a topic id of {len(value)} bytes"
    out += value


def _write_timedelta_32(out: bytearray, value: Any) -> None:
    _INT32(out, value // _MILLISECOND)


def _write_timedelta_64(out: bytearray, value: Any) -> None:
    _INT64(out, value // _MILLISECOND)


def _write_datetime(out: bytearray, value: Any) -> None:
    _INT64(out, -1 if value is None else (value - _EPOCH) // _MILLISECOND)


_WRITERS: Final[dict[str, Write]] = {
    "int8": _INT8,
    "int16": _INT16,
    "int32": _INT32,
    "int64": _INT64,
    "uint8": _number("B"),
    "uint16": _number("H"),
    "uint32": _number("I"),
    "uint64": _number("Q"),
    "float64": _number("d"),
    "bool": _number("?"),
    "topic_id": _write_topic_id,
    "uuid": _write_uuid,
    "error_code": _write_error_code,
    "timedelta_i32": _write_timedelta_32,
    "timedelta_i64": _write_timedelta_64,
    "datetime_i64": _write_datetime,
}


def _value_writer(kafka_type: str, flexible: bool) -> Write:
    if kafka_type in _WRITERS:
        return _WRITERS[kafka_type]

    def write_string(out: bytearray, value: Any) -> None:
        out += encode_string(value, flexible)

    def write_bytes(out: bytearray, value: Any) -> None:
        if value is None:
            out += encode_count(-1, flexible)
        else:
            out += encode_count(len(value), flexible)
            out += value

    return write_string if kafka_type == "string" else write_bytes
