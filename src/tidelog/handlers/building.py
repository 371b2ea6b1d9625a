"""Making a response of whichever version was asked for, out of plain values.

A handler gives all it knows by field name: nested entities as mappings, topic ids as 16 bytes,
durations as whole milliseconds. Fields that the version does not have are left out, those it
has and that were not given keep the schema's default. A field without a default must be given:
leaving it out is a bug, and asserted.
"""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from datetime import timedelta
from functools import cache
from types import NoneType, UnionType
from typing import Any, Final, Union, get_args, get_origin
from uuid import UUID

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.handlers.api import Request
from tidelog.wire import codec
from tidelog.wire.entity_writer import Written

Values = Mapping[str, Any]
"""The fields of an entity by name, of any version."""
_Convert = Callable[[Any], Any]

NO_ERROR: Final[Values] = {"error_code": ErrorCode.none, "error_message": None}
_NO_ID: Final = bytes(16)
_NOT_THROTTLED: Final = {"throttle_time": timedelta(0)}


def respond(request: Request, values: Values) -> Any:
    """The response to a request, in its version."""
    return build(codec.entity_type(request.api_key, request.version, "response"), values)


def build(kind: type, values: Values) -> Any:
    """An entity of one of kio's types."""
    chosen = {}
    for name, convert, is_required in _plan(kind):
        if name in values:
            chosen[name] = convert(values[name])
        elif is_required:
            assert name in _NOT_THROTTLED, f"{kind.__name__} needs {name}"
            chosen[name] = _NOT_THROTTLED[name]
    return kind(**chosen)


@cache
def item_type(kind: type, field_name: str) -> Any:
    """Of what an array of an entity consists."""
    assert is_dataclass(kind)
    (found,) = (field.type for field in fields(kind) if field.name == field_name)
    options = get_args(found) if get_origin(found) in (UnionType, Union) else (found,)
    (array,) = (option for option in options if get_origin(option) is tuple)
    return get_args(array)[0]


def error_fields(error: KafkaError) -> Values:
    """The two fields most results have."""
    return {"error_code": error.code, "error_message": error.message}


def id_bytes(topic_id: UUID | None) -> bytes:
    """A topic id as it is kept here; kio has None for an id of zeros."""
    return _NO_ID if topic_id is None else topic_id.bytes


@cache
def _plan(kind: type) -> tuple[tuple[str, _Convert, bool], ...]:
    """Each field's name, what turns a plain value into kio's, and whether it must be given."""
    assert is_dataclass(kind)
    return tuple(
        (field.name, _converter(field.type), _is_required(field)) for field in fields(kind)
    )


def _is_required(field: "Field[Any]") -> bool:
    return field.default is MISSING and field.default_factory is MISSING


def _converter(kind: Any) -> _Convert:
    if get_origin(kind) in (UnionType, Union):
        return _optional(_converter(next(o for o in get_args(kind) if o is not NoneType)))
    if get_origin(kind) is tuple:
        return _tuple_of(_converter(get_args(kind)[0]))
    if is_dataclass(kind):
        return _entity_of(kind)
    if kind is UUID:
        return _uuid
    if isinstance(kind, type) and issubclass(kind, timedelta):
        return _duration
    return _as_it_is


def _optional(convert: _Convert) -> _Convert:
    if convert is _as_it_is:
        return convert
    return lambda value: None if value is None else convert(value)


def _tuple_of(convert: _Convert) -> _Convert:
    if convert is _as_it_is:
        return tuple
    return lambda items: items if isinstance(items, Written) else tuple(map(convert, items))


def _entity_of(kind: Any) -> _Convert:
    return lambda values: build(kind, values)


def _uuid(value: bytes) -> UUID | None:
    return None if value == _NO_ID else UUID(bytes=value)


def _duration(value_ms: int) -> timedelta:
    return timedelta(milliseconds=value_ms)


def _as_it_is(value: Any) -> Any:
    return value
