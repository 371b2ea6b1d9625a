"""Arbitrary messages of Kafka's protocol, made from the descriptions that kio has of them, and
kio's own codec as the second opinion.

`message` draws from a seeded `Random`, so that a failing one can be made again from its seed.
"""

import io
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, NamedTuple
from uuid import UUID

from kio.schema.index import api_key_map, schema_name_map
from kio.serial import entity_reader, entity_writer

from tidelog.base import control
from tidelog.base.errors import ErrorCode
from tidelog.wire.codec import Role, entity_type
from tidelog.wire.entities import FieldShape, shapes

SERVED = (0, 1, 2, 3, 10, 18, 19, 20, 21, 22, 23, 32, 33, 35, 37, 43, 44, 45, 46, 60, 61, 75)
CONTROL = tuple(control.VERSIONS)
_TEXTS = ("", "a", "orders", "größe", "日本語", "x" * 130, "0123456789" * 30, "\x00\x7f")
_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64, "timedelta_i32": 32}
_CODES = tuple(ErrorCode)


class MessageType(NamedTuple):
    api_key: int
    version: int
    role: Role

    @property
    def entity(self) -> type[Any]:
        return entity_type(self.api_key, self.version, self.role)


def message_types(api_keys: tuple[int, ...] = tuple(api_key_map)) -> Iterator[MessageType]:
    """Every message of these APIs, in every version."""
    for api_key in api_keys:
        for version in _versions(api_key):
            yield MessageType(api_key, version, "request")
            yield MessageType(api_key, version, "response")


def _versions(api_key: int) -> list[int]:
    if api_key in control.VERSIONS:
        return [control.VERSIONS[api_key]]
    return sorted(schema_name_map[api_key_map[api_key]])


def message(random: Random, entity: type[Any], depth: int = 0) -> Any:
    """An arbitrary entity. Arrays get shorter with depth, so that it stays small."""
    values = {}
    for shape in shapes(entity):
        if shape.tag is not None and random.random() < 0.4:
            values[shape.name] = shape.default
        else:
            values[shape.name] = _content(random, shape, depth)
    return entity(**values)


def _content(random: Random, shape: FieldShape, depth: int) -> Any:
    if shape.is_array:
        if shape.nullable and random.random() < 0.2 and shape.kafka_type != "uuid":
            return None
        count = random.choice((0, 1, 1, 2, 3) if depth < 2 else (0, 1))
        return tuple(_item(random, shape, depth, False) for _ in range(count))
    return _item(random, shape, depth, shape.nullable and shape.tag is None)


def _item(random: Random, shape: FieldShape, depth: int, nullable: bool) -> Any:
    if nullable and random.random() < 0.25:
        return None
    if shape.entity is not None:
        return message(random, shape.entity, depth + 1)
    return _value(random, shape.kafka_type or "")


def _value(random: Random, kafka_type: str) -> Any:
    match kafka_type:
        case "string":
            return random.choice(_TEXTS)
        case "bytes" | "records":
            return random.randbytes(random.choice((0, 1, 60, 127, 128, 300)))
        case "bool":
            return random.random() < 0.5
        case "topic_id":
            return random.randbytes(16)
        case "uuid":
            return UUID(int=random.getrandbits(128) | 1)
        case "error_code":
            return random.choice(_CODES)
        case "float64":
            return random.uniform(-1e9, 1e9)
        case "uint16":
            return random.getrandbits(16)
        case "timedelta_i64":
            return timedelta(milliseconds=random.getrandbits(40))
        case "datetime_i64":
            return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=random.getrandbits(32))
    bits = _BITS[kafka_type]
    number = random.choice((0, 1, -1, (1 << (bits - 1)) - 1, -(1 << (bits - 1))))
    if random.random() < 0.5:
        number = random.getrandbits(bits) - (1 << (bits - 1))
    return timedelta(milliseconds=number) if kafka_type == "timedelta_i32" else number


def kio_bytes(value: Any) -> bytes:
    """What kio writes."""
    out = io.BytesIO()
    entity_writer(type(value))(out, value)
    return out.getvalue()


def kio_reads(entity: type[Any], data: bytes) -> Any:
    """What kio reads; only for bytes that are well-formed."""
    value, size = entity_reader(entity)(data, 0)
    assert size == len(data), f"kio left {len(data) - size} bytes"
    return value
