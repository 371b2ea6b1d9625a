"""Every message of every API and version is written as kio writes it and read as kio reads it.

kio is generated from Kafka's own schemas, so it is the second opinion on all of them.
"""

import dataclasses
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.index import api_key_map

from support.messages import MessageType, kio_bytes, kio_reads, message, message_types
from tidelog.base import control
from tidelog.base.errors import ErrorCode
from tidelog.wire import codec
from tidelog.wire.entity_reader import read_entity
from tidelog.wire.entity_writer import write_entity
from tidelog.wire.header import FLEXIBLE_FROM, is_flexible, read_request_header

ALL = list(message_types())


def written(value: Any) -> bytes:
    out = bytearray()
    write_entity(out, value)
    return bytes(out)


def check_against_kio(kind: MessageType, seed: int) -> None:
    value = message(Random(seed), kind.entity)
    theirs = kio_bytes(value)
    assert written(value) == theirs
    assert read_entity(kind.entity, theirs, 0) == kio_reads(kind.entity, theirs) == value


@pytest.mark.parametrize("api_key", sorted(api_key_map))
def test_every_version_of_an_api_equals_kio(api_key: int) -> None:
    for kind in message_types((api_key,)):
        for seed in range(12):
            check_against_kio(kind, seed)


@settings(max_examples=250, deadline=None)
@given(kind=st.sampled_from(ALL), seed=st.integers(0, 2**32))
def test_arbitrary_messages_equal_kio(kind: MessageType, seed: int) -> None:
    check_against_kio(kind, seed)


def test_flexible_versions_are_kios() -> None:
    """The brokers' own APIs are flexible too."""
    assert set(FLEXIBLE_FROM) == {*api_key_map, *control.VERSIONS}
    for kind in ALL:
        assert is_flexible(kind.api_key, kind.version) == kind.entity.__flexible__, kind


@settings(max_examples=200, deadline=None)
@given(
    kind=st.sampled_from([kind for kind in ALL if kind.role == "request"]),
    seed=st.integers(0, 2**32),
    correlation_id=st.integers(-(2**31), 2**31 - 1),
    client_id=st.none() | st.text(max_size=50),
)
def test_a_request_comes_out_as_it_went_in(
    kind: MessageType, seed: int, correlation_id: int, client_id: str | None
) -> None:
    value = message(Random(seed), kind.entity)
    frame = codec.write_request(kind.api_key, kind.version, correlation_id, client_id, value)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    view = memoryview(bytearray(frame))[4:]
    header, at = read_request_header(view)
    assert (header.api_key, header.version) == (kind.api_key, kind.version)
    assert (header.correlation_id, header.client_id) == (correlation_id, client_id)
    assert codec.read_request(kind.api_key, kind.version, view, at) == value


@settings(max_examples=200, deadline=None)
@given(
    kind=st.sampled_from([kind for kind in ALL if kind.role == "response"]),
    seed=st.integers(0, 2**32),
    correlation_id=st.integers(-(2**31), 2**31 - 1),
)
def test_a_response_comes_out_as_it_went_in(
    kind: MessageType, seed: int, correlation_id: int
) -> None:
    value = message(Random(seed), kind.entity)
    frame = codec.write_response(kind.api_key, kind.version, correlation_id, value)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert codec.read_response(kind.api_key, kind.version, frame[4:]) == (correlation_id, value)


def test_a_topic_id_of_zeros_is_none() -> None:
    entity = codec.entity_type(3, 12, "request")
    (topic,) = read_entity(entity, b"\x02" + bytes(16) + b"\x02t\x00\x01\x00\x00", 0).topics
    assert topic.topic_id is None
    assert topic.name == "t"


def test_an_error_code_from_the_future_is_an_error_nonetheless() -> None:
    entity = codec.entity_type(60, 0, "response")
    value = message(Random(1), entity)
    data = bytearray(kio_bytes(dataclasses.replace(value, error_code=ErrorCode.none)))
    data[4:6] = (9_999).to_bytes(2, "big")
    assert read_entity(entity, data, 0).error_code.name == "unknown_server_error"
