"""Reading JSON that somebody else may have written: every field is checked for its type.

Whatever is wrong raises `BadValue` with what was expected; nothing else is ever raised, however
broken the bytes are.
"""

import json
from typing import Any, Final

from tidelog.base.errors import BadValue

_SHOWN_MAX: Final = 100
_INT_MAX: Final = (1 << 31) - 1
_LONG_MAX: Final = (1 << 63) - 1
_ENCODER: Final = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False)


def encode(fields: dict[str, Any]) -> bytes:
    """Compact, in the order given, as Kafka writes it."""
    return _ENCODER.encode(fields).encode()


def decode(data: bytes) -> dict[str, Any]:
    """A JSON object."""
    try:
        fields = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise BadValue(f"{_shown(data)} is not JSON: {error}") from error
    if not isinstance(fields, dict):
        raise BadValue(f"{_shown(data)} is not a JSON object")
    return fields


def whole(fields: dict[str, Any], name: str, smallest: int = -1) -> int:
    return _whole(fields.get(name), name, smallest, _INT_MAX)


def whole_in_text(fields: dict[str, Any], name: str) -> int:
    """A number that Kafka writes as text, such as "1000"; at most 63 bits."""
    value = text(fields, name)
    if not value.isascii() or not value.isdigit() or len(value) > 19:
        raise BadValue(f"{name}={_shown(value)} is not a whole number in quotes")
    return _whole(int(value), name, 0, _LONG_MAX)


def text(fields: dict[str, Any], name: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str):
        raise BadValue(f"{name}={_shown(value)} is not text")
    return value


def optional_text(fields: dict[str, Any], name: str) -> str | None:
    return None if fields.get(name) is None else text(fields, name)


def mapping(fields: dict[str, Any], name: str) -> dict[str, Any]:
    """An object; an empty one if it is not there."""
    value = fields.get(name, {})
    if not isinstance(value, dict):
        raise BadValue(f"{name}={_shown(value)} is not a JSON object")
    return value


def texts(fields: dict[str, Any], name: str) -> dict[str, str]:
    """An object whose values are all text."""
    found = mapping(fields, name)
    return {key: text(found, key) for key in found}


def broker_ids(value: object, name: str) -> tuple[int, ...]:
    """A list of different broker ids."""
    if not isinstance(value, list):
        raise BadValue(f"{name}={_shown(value)} is not a list of broker ids")
    found = tuple(_whole(item, name, 0, _INT_MAX) for item in value)
    if len(set(found)) < len(found):
        raise BadValue(f"{name}={_shown(value)} names a broker twice")
    return found


def broker_epochs(fields: dict[str, Any], name: str) -> dict[int, int]:
    """An object of broker ids in quotes and the epochs of those brokers; an empty one if it is not
    there."""
    found: dict[int, int] = {}
    for key, epoch in mapping(fields, name).items():
        if not key.isascii() or not key.isdigit() or len(key) > 10 or str(int(key)) != key:
            raise BadValue(f"{name}: {_shown(key)} is not a broker id")
        found[_whole(int(key), name, 0, _INT_MAX)] = _whole(epoch, name, 0, _LONG_MAX)
    return found


def _whole(value: object, name: str, smallest: int, largest: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not smallest <= value <= largest:
        raise BadValue(f"{name}={_shown(value)} is not a whole number from {smallest} on")
    return value


def _shown(value: object) -> str:
    shown = repr(value) if isinstance(value, bytes) else str(value)
    return shown if len(shown) <= _SHOWN_MAX else f"{shown[:_SHOWN_MAX]}..."
