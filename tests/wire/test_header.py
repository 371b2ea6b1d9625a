"""Request headers of all versions, from bytes that may be anything."""

import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.serial import entity_writer

from support.messages import MessageType, message_types
from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.wire import codec
from tidelog.wire.header import (
    is_flexible,
    read_request_header,
    read_response_header,
    request_header,
    response_header,
)
from tidelog.wire.values import NAMES

GOLDEN = Path(__file__).parents[1] / "fixtures" / "kafka" / "wire"
REQUESTS = [kind for kind in message_types() if kind.role == "request"]


def read(data: bytes) -> tuple[int, int, int, str | None, int]:
    header, at = read_request_header(memoryview(data))
    return header.api_key, header.version, header.correlation_id, header.client_id, at


@given(
    kind=st.sampled_from(REQUESTS),
    correlation_id=st.integers(-(2**31), 2**31 - 1),
    client_id=st.none() | st.text(max_size=300),
)
def test_headers_are_kios(kind: MessageType, correlation_id: int, client_id: str | None) -> None:
    schema = kind.entity.__header_schema__
    value = schema(
        request_api_key=kind.api_key,
        request_api_version=kind.version,
        correlation_id=correlation_id,
        client_id=client_id,
    )
    out = io.BytesIO()
    entity_writer(schema)(out, value)
    theirs = out.getvalue()
    assert request_header(kind.api_key, kind.version, correlation_id, client_id) == theirs
    assert read(theirs) == (kind.api_key, kind.version, correlation_id, client_id, len(theirs))


def test_response_headers_are_kios() -> None:
    for kind in message_types():
        if kind.role == "response":
            flexible = kind.entity.__header_schema__.__flexible__
            header = response_header(kind.api_key, kind.version, 258)
            assert header == b"\x00\x00\x01\x02" + b"\x00" * flexible, kind
            assert read_response_header(kind.api_key, kind.version, header) == (258, len(header))


def test_the_answer_of_api_versions_never_has_tagged_fields() -> None:
    assert is_flexible(18, 4)
    assert response_header(18, 4, 1) == b"\x00\x00\x00\x01"


def test_tagged_fields_of_a_header_are_skipped() -> None:
    start = request_header(3, 12, 5, "me")[:-1]
    assert read(start + b"\x02\x00\x01a\x63\x80\x00" + b"body")[4] == len(start) + 7


def test_a_version_nobody_serves_is_read() -> None:
    """What to answer is for the server to say: for ApiVersions, an answer of version 0."""
    frame = (GOLDEN / "api_versions_v99.request").read_bytes()
    assert read(frame[4:])[:4] == (18, 99, 7, "tidelog")
    assert read(b"\x00\x03\xff\xff\x00\x00\x00\x01\xff\xff")[:2] == (3, -1)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("", "ends early"),
        ("0003 000c 00000001", "ends early"),
        ("0003 000c 00000001 0001", "client id of 1 bytes where 0 are left"),
        ("0003 000c 00000001 fffe", "client id of -2 bytes"),
        ("0003 000c 00000001 7fff 61", "client id of 32767 bytes"),
        ("0003 000c 00000001 0001 ff 00", "not UTF-8"),
        ("0003 000c 00000001 ffff", "ends early"),
        ("0003 000c 00000001 ffff ffffffff07", "tagged fields"),
        ("0003 000c 00000001 ffff 8080808080", "longer than 5 bytes"),
        ("0003 000c 00000001 ffff 01 00 05 00", "runs past the end"),
        ("03e7 0000 00000001 ffff", "unknown API key 999"),
        ("ffff 0000 00000001 ffff", "unknown API key -1"),
        ("007f 0000 00000001 ffff", "unknown API key 127"),
    ],
)
def test_what_is_wrong_is_named(content: str, why: str) -> None:
    with pytest.raises(KafkaError, match=why) as raised:
        read(bytes.fromhex(content))
    assert raised.value.code is ErrorCode.invalid_request


def test_remembered_names_are_bounded() -> None:
    for number in range(5_000):
        name = f"client-{number}" + "x" * (number % 400)
        assert read(request_header(3, 1, 1, name))[3] == name
    assert len(NAMES) <= 2_048
    assert max(map(len, NAMES)) <= 256


def test_kafkas_own_answers_are_written_again_byte_for_byte() -> None:
    for version in (0, 3, 4):
        answer = (GOLDEN / f"api_versions_v{version}.answer").read_bytes()
        correlation_id, entity = codec.read_response(18, version, answer[4:])
        assert codec.write_response(18, version, correlation_id, entity) == answer
        assert (0, 0, 13) in {
            (key.api_key, key.min_version, key.max_version) for key in entity.api_keys
        }


def test_kafka_answers_an_unknown_version_of_api_versions_in_version_0() -> None:
    answer = (GOLDEN / "api_versions_v99.answer").read_bytes()
    _, entity = codec.read_response(18, 0, answer[4:])
    assert entity.error_code is ErrorCode.unsupported_version
    (only,) = entity.api_keys
    assert (only.api_key, only.min_version, only.max_version) == (18, 0, 4)


def test_unknown_messages_are_refused() -> None:
    for api_key, version in ((4, 0), (3, 14), (3, -1), (0, 2), (9_999, 0)):
        with pytest.raises(KafkaError) as raised:
            codec.entity_type(api_key, version, "request")
        assert raised.value.code is ErrorCode.invalid_request
