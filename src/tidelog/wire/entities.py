"""The messages of Kafka's protocol as kio's dataclasses describe them, and the brokers' own.

kio generates one module per API and version from Kafka's own schemas; each is imported when it
is first used. Only the descriptions are used: kio's reader allocates by declared counts, so that
five bytes can abort the process, and its writer takes 20 us for the smallest answer. What brokers
tell one another is described in the same way, in `base.control`.
"""

from dataclasses import MISSING, Field, fields, is_dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib import import_module
from types import NoneType
from typing import Any, Final, Literal, TypeAlias, get_args, get_origin

from kio.schema.index import api_key_map, schema_name_map
from kio.static.constants import EntityType

from tidelog.base import control
from tidelog.base.errors import ErrorCode
from tidelog.wire.values import malformed

Role: TypeAlias = Literal["request", "response"]

_CONTROL: Final = {"request": control.REQUESTS, "response": control.RESPONSES}
_NOTHING: Final = timedelta(0)
_ZEROS: Final[dict[str, Any]] = {
    "string": "",
    "bytes": b"",
    "records": b"",
    "topic_id": bytes(16),
    "bool": False,
    "float64": 0.0,
    "error_code": ErrorCode.none,
    "timedelta_i32": _NOTHING,
    "timedelta_i64": _NOTHING,
    "datetime_i64": datetime(1970, 1, 1, tzinfo=UTC),
}


@cache
def entity_type(api_key: int, version: int, role: Role) -> type[Any]:
    """The class of a message; a `KafkaError` if there is no such API or version."""
    if api_key in control.VERSIONS:
        if version != control.VERSIONS[api_key]:
            raise malformed(f"the brokers' own API {api_key} has no version {version}")
        return _CONTROL[role][api_key]
    name = api_key_map.get(api_key)
    if name is None:
        raise malformed(f"unknown API key {api_key}")
    versions = schema_name_map[name]
    if version not in versions:
        raise malformed(f"{name} has no version {version}")
    paths = versions[version]
    path = paths[EntityType.request if role == "request" else EntityType.response]
    module, _, class_name = path.partition(":")
    found: type[Any] = getattr(import_module(module), class_name)
    return found


class FieldShape:
    """What a field looks like on the wire: a value, an entity, or an array of one of them."""

    __slots__ = ("default", "entity", "is_array", "kafka_type", "name", "nullable", "tag")

    def __init__(self, field: "Field[Any]") -> None:
        inner, self.nullable = _without_none(field.type)
        self.is_array = get_origin(inner) is tuple
        if self.is_array:
            inner, _ = _without_none(get_args(inner)[0])
        self.name = field.name
        self.entity: type[Any] | None = (
            inner if isinstance(inner, type) and is_dataclass(inner) else None
        )
        self.kafka_type: str | None = field.metadata.get("kafka_type")
        self.tag: int | None = field.metadata.get("tag")
        self.default = field.default if field.default is not MISSING else self._zero()

    def _zero(self) -> Any:
        """What a field is that is absent and has no default of its own."""
        if self.is_array:
            return ()
        if self.entity is not None:
            return self.entity(**{shape.name: shape.default for shape in shapes(self.entity)})
        if self.nullable:
            return None
        return _ZEROS.get(self.kafka_type or "", 0)


def shapes(entity: type[Any]) -> list[FieldShape]:
    """The fields of an entity in the order of the wire, the tagged ones among them."""
    return [FieldShape(field) for field in fields(entity)]


def _without_none(annotation: Any) -> tuple[Any, bool]:
    members = get_args(annotation)
    if NoneType not in members:
        return annotation, False
    (inner,) = (member for member in members if member is not NoneType)
    return inner, True
