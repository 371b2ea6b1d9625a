"""Whole messages of any API and version, for both ends of a connection.

A server reads requests and writes responses, a client does the reverse. Bodies are kio's
dataclasses, or those of `base.control`; Produce and Fetch, where time counts, have their own
modules. Malformed bytes raise `KafkaError(invalid_request)`.
"""

from typing import Any, Final

from tidelog.base.control import ControlEntity
from tidelog.base.ports import Buffer
from tidelog.wire.entities import Role, entity_type
from tidelog.wire.entity_reader import CONTROL_VALUES_MAX, REQUEST_VALUES_MAX, read_entity
from tidelog.wire.entity_writer import write_entity
from tidelog.wire.header import read_response_header, request_header, response_header
from tidelog.wire.values import INT32

__all__ = [
    "Role",
    "entity_type",
    "read_request",
    "read_response",
    "write_request",
    "write_response",
]

METADATA: Final = 3


def read_request(api_key: int, version: int, frame: Buffer, at: int) -> Any:
    """The body of a request, which begins at `at` and must end where the frame does. Only behind
    Metadata may something follow: librdkafka 2.x that asks for all topics leaves three bytes."""
    entity = entity_type(api_key, version, "request")
    values_max = CONTROL_VALUES_MAX if issubclass(entity, ControlEntity) else REQUEST_VALUES_MAX
    return read_entity(entity, frame, at, with_tail=api_key == METADATA, values_max=values_max)


def write_response(api_key: int, version: int, correlation_id: int, entity: Any) -> bytes:
    """The whole frame of an answer, with its length and header."""
    assert isinstance(entity, entity_type(api_key, version, "response")), type(entity)
    return _framed(response_header(api_key, version, correlation_id), entity)


def write_request(
    api_key: int, version: int, correlation_id: int, client_id: str | None, entity: Any
) -> bytes:
    """The whole frame of a request, with its length and header."""
    assert isinstance(entity, entity_type(api_key, version, "request")), type(entity)
    return _framed(request_header(api_key, version, correlation_id, client_id), entity)


def read_response(api_key: int, version: int, frame: Buffer) -> tuple[int, Any]:
    """The correlation id and the body of an answer, from a frame without its length."""
    correlation_id, at = read_response_header(api_key, version, frame)
    return correlation_id, read_entity(entity_type(api_key, version, "response"), frame, at)


def _framed(header: bytes, entity: Any) -> bytes:
    out = bytearray(4)
    out += header
    write_entity(out, entity)
    INT32.pack_into(out, 0, len(out) - 4)
    return bytes(out)
