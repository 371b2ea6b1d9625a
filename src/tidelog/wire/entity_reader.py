"""Reads any of Kafka's messages, and those of `base.control`, from bytes that may be anything.

A reader is put together once per entity from the description of its fields. It skips tagged
fields it does not know, as Kafka does, and checks before it allocates: an array's count against
the bytes that are left, and the values of a whole message against a budget, because an item of
three bytes becomes an object of fifty.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from struct import Struct
from typing import Any, Final, TypeAlias
from uuid import UUID

from tidelog.base.control import ControlEntity
from tidelog.base.errors import ErrorCode
from tidelog.base.ports import Buffer
from tidelog.wire.entities import FieldShape, shapes
from tidelog.wire.values import (
    UNREADABLE,
    malformed,
    read_count,
    read_string,
    read_varint,
    text_malformed,
)

VALUES_MAX: Final = 500_000
REQUEST_VALUES_MAX: Final = 40_000
"""Of a client's request: reading so many takes some thirty milliseconds, and nobody else is served
meanwhile. A name in Metadata is three of them, a topic that is to be made six."""
CONTROL_VALUES_MAX: Final = 20_000_000
"""Of a message between brokers: about 25 for each partition of the cluster."""
_ZERO_ID: Final = bytes(16)
_ERROR_CODES: Final[dict[int, ErrorCode]] = {code.value: code for code in ErrorCode}


class Cursor:
    """Where a reader is in a message, and how many values it may still make."""

    __slots__ = ("at", "data", "values_left", "values_max")

    def __init__(self, data: Buffer, at: int, values_max: int) -> None:
        self.data = data
        self.at = at
        self.values_left = self.values_max = values_max


Read: TypeAlias = Callable[[Cursor], Any]
Put: TypeAlias = Callable[[Any, Any], None]
_new: Final[Callable[[type[Any]], Any]] = object.__new__
_entity_readers: dict[type[Any], tuple[Read, int]] = {}


def read_entity(
    entity: type[Any],
    data: Buffer,
    at: int,
    *,
    with_tail: bool = False,
    values_max: int | None = None,
) -> Any:
    """Reads an entity that must end where the data does, unless it may have a tail."""
    read, _ = _entity_reader(entity)
    if values_max is None:
        values_max = CONTROL_VALUES_MAX if issubclass(entity, ControlEntity) else VALUES_MAX
    cursor = Cursor(data, at, values_max)
    try:
        value = read(cursor)
    except UNREADABLE:
        raise text_malformed(f"{entity.__name__} version {entity.__version__}") from None
    if cursor.at != len(data) and not with_tail:
        raise malformed(f"{entity.__name__} has {len(data) - cursor.at} bytes after its end")
    return value


def _entity_reader(entity: type[Any]) -> tuple[Read, int]:
    """What reads an entity, and the fewest bytes that one takes."""
    reader = _entity_readers.get(entity)
    if reader is None:
        reader = _entity_readers[entity] = _make_entity_reader(entity)
    return reader


def _make_entity_reader(entity: type[Any]) -> tuple[Read, int]:
    """Sets the slots of a new entity one by one: a frozen dataclass's own constructor takes
    three times as long."""
    flexible: bool = entity.__flexible__
    plain: list[tuple[Put, Read]] = []
    tagged: dict[int, tuple[str, Put, Read]] = {}
    defaults: list[tuple[Put, Any]] = []
    bytes_min = 1 if flexible else 0
    for shape in shapes(entity):
        read, size = _field_reader(shape, flexible)
        put: Put = entity.__dict__[shape.name].__set__
        if shape.tag is None:
            plain.append((put, read))
            bytes_min += size
        else:
            tagged[shape.tag] = (shape.name, put, read)
            defaults.append((put, shape.default))

    def read_plain(cursor: Cursor) -> Any:
        made = _new(entity)
        for put, read in plain:
            put(made, read(cursor))
        return made

    def read_flexible(cursor: Cursor) -> Any:
        made = _new(entity)
        for put, read in plain:
            put(made, read(cursor))
        for put, default in defaults:
            put(made, default)
        at = cursor.at
        if cursor.data[at] == 0:
            cursor.at = at + 1
        else:
            _read_tags(cursor, made, tagged)
        return made

    return (read_flexible if flexible else read_plain), bytes_min


def _read_tags(cursor: Cursor, made: Any, tagged: dict[int, tuple[str, Put, Read]]) -> None:
    data = cursor.data
    count, at = read_varint(data, cursor.at)
    if count * 2 > len(data) - at:
        raise malformed(f"{count} tagged fields in {len(data) - at} bytes")
    for _ in range(count):
        tag, at = read_varint(data, at)
        size, at = read_varint(data, at)
        end = at + size
        if end > len(data):
            raise malformed(f"the tagged field {tag} runs past the end")
        if tag in tagged:
            name, put, read = tagged[tag]
            cursor.at = at
            put(made, read(cursor))
            if cursor.at != end:
                raise malformed(f"the tagged field {name} has the wrong size")
        at = end
    cursor.at = at


def _field_reader(shape: FieldShape, flexible: bool) -> tuple[Read, int]:
    if shape.entity is not None:
        item, size = _entity_reader(shape.entity)
        width = 1 + len(shapes(shape.entity))
    else:
        assert shape.kafka_type is not None, f"{shape.name} has no type"
        nullable = shape.nullable and not shape.is_array
        item, size = _value_reader(shape.kafka_type, flexible, nullable, shape.name)
        width = 1
    if shape.is_array:
        return _array_reader(shape, item, max(size, 1), width, flexible), 1 if flexible else 4
    if shape.entity is not None and shape.nullable:
        return _nullable(item), 1
    return item, size


def _nullable(read: Read) -> Read:
    def read_nullable(cursor: Cursor) -> Any:
        """An entity that may be null has a byte before it: negative if it is."""
        cursor.at += 1
        return read(cursor) if cursor.data[cursor.at - 1] < 0x80 else None

    return read_nullable


def _array_reader(
    shape: FieldShape, item: Read, item_bytes_min: int, width: int, flexible: bool
) -> Read:
    nullable, name = shape.nullable, shape.name

    def read_array(cursor: Cursor) -> tuple[Any, ...] | None:
        count, cursor.at = read_count(cursor.data, cursor.at, flexible, item_bytes_min)
        if count < 0:
            if nullable:
                return None
            raise malformed(f"the array {name} is null")
        cursor.values_left -= count * width
        if cursor.values_left < 0:
            raise malformed(f"a message of more than {cursor.values_max} values, {count} in {name}")
        return tuple([item(cursor) for _ in range(count)])

    return read_array


def _number(code: str, convert: Callable[[Any], Any] | None = None) -> tuple[Read, int]:
    layout = Struct(f">{code}")
    unpack, size = layout.unpack_from, layout.size

    def read_number(cursor: Cursor) -> Any:
        at = cursor.at
        cursor.at = at + size
        return unpack(cursor.data, at)[0]

    def read_converted(cursor: Cursor) -> Any:
        at = cursor.at
        cursor.at = at + size
        return convert(unpack(cursor.data, at)[0]) if convert else None

    return (read_number if convert is None else read_converted), size


def _milliseconds(value: int) -> timedelta:
    """What no timedelta can hold is as long as one can be: clients say so for ever."""
    try:
        return timedelta(milliseconds=value)
    except OverflowError:
        return timedelta.max if value > 0 else timedelta.min


def _error_code(value: int) -> ErrorCode:
    """A code that is newer than this program is an error all the same."""
    return _ERROR_CODES.get(value, ErrorCode.unknown_server_error)


def _date(value: int) -> datetime | None:
    """-1 is null; no other date lies before 1970."""
    if value < -1:
        raise malformed(f"a date {value} ms after 1970")
    return None if value == -1 else datetime(1970, 1, 1, tzinfo=UTC) + _milliseconds(value)


_NUMBERS: Final[dict[str, tuple[Read, int]]] = {
    "int8": _number("b"),
    "int16": _number("h"),
    "int32": _number("i"),
    "int64": _number("q"),
    "uint8": _number("B"),
    "uint16": _number("H"),
    "uint32": _number("I"),
    "uint64": _number("Q"),
    "float64": _number("d"),
    "bool": _number("B", bool),
    "topic_id": _number("16s"),
    "uuid": _number("16s", lambda raw: None if raw == _ZERO_ID else UUID(bytes=raw)),
    "error_code": _number("h", _error_code),
    "timedelta_i32": _number("i", _milliseconds),
    "timedelta_i64": _number("q", _milliseconds),
    "datetime_i64": _number("q", _date),
}


def _value_reader(kafka_type: str, flexible: bool, nullable: bool, name: str) -> tuple[Read, int]:
    if kafka_type in _NUMBERS:
        return _NUMBERS[kafka_type]
    if kafka_type == "string":
        return _string_reader(flexible, nullable, name), 1 if flexible else 2
    assert kafka_type in ("bytes", "records"), f"{name} is of unknown type {kafka_type}"
    return _bytes_reader(flexible, nullable, name), 1 if flexible else 4


def _string_reader(flexible: bool, nullable: bool, name: str) -> Read:
    def read_text(cursor: Cursor) -> str | None:
        text, cursor.at = read_string(cursor.data, cursor.at, flexible)
        if text is None and not nullable:
            raise malformed(f"the string {name} is null")
        return text

    return read_text


def _bytes_reader(flexible: bool, nullable: bool, name: str) -> Read:
    def read_bytes(cursor: Cursor) -> bytes | None:
        size, at = read_count(cursor.data, cursor.at, flexible, 1)
        if size < 0:
            if not nullable:
                raise malformed(f"the bytes {name} are null")
            cursor.at = at
            return None
        cursor.at = at + size
        return bytes(cursor.data[at : at + size])

    return read_bytes
