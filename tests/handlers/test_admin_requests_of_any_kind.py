"""Whatever a request of the schema says, it gets one answer of its version, and none hurts the
node: afterwards it still serves (rules B5, B6, B11 of bad input)."""

from dataclasses import fields
from types import NoneType
from typing import Any, get_args, get_origin

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.admin_node import APIS, AdminNode
from tidelog.wire.codec import entity_type

METADATA, FIND_COORDINATOR = 3, 10
ONE_JOURNAL: dict[str, Any] = {"offsets_topic_num_partitions": "1"}
NAMES = ("orders", "tides", "", ".", "..", "../x", "a/b", "a.b", "a_b", "__consumer_offsets", "1")
SETTINGS = ("retention.ms", "cleanup.policy", "message.max.bytes", "compression.type", "no.such")
VALUES = ("1", "-1", "soon", "compact", "compact,delete", "gzip", "9" * 30, "")
IDS = (bytes(16), bytes([1] * 16), b"\xff" * 16)
NUMBERS = (-1, 0, 1, 2, 3, 4, 8, 100)


def whole(bits: int) -> st.SearchStrategy[int]:
    limit = 1 << (bits - 1)
    likely = [number for number in (*NUMBERS, -limit, limit - 1) if -limit <= number < limit]
    return st.sampled_from(likely) | st.integers(-limit, limit - 1)


def text() -> st.SearchStrategy[str]:
    return st.sampled_from((*NAMES, *SETTINGS, *VALUES)) | st.text(max_size=12)


LEAVES: dict[str, st.SearchStrategy[Any]] = {
    "int8": whole(8),
    "int16": whole(16),
    "int32": whole(32),
    "int64": whole(64),
    "timedelta_i32": st.sampled_from((0, 1, 10_000, -1)),
    "timedelta_i64": st.sampled_from((0, 1, 10_000, -1)),
    "bytes": st.binary(max_size=12),
    "string": text(),
    "uuid": st.sampled_from(IDS),
    "bool": st.booleans(),
}


def values_of(kind: type) -> st.SearchStrategy[dict[str, Any]]:
    """Any values for the fields of an entity."""
    return st.fixed_dictionaries(
        {field.name: value_of(field.type, field.metadata) for field in fields(kind)}
    )


def value_of(kind: Any, metadata: Any) -> st.SearchStrategy[Any]:
    if NoneType in get_args(kind):
        (inner,) = (option for option in get_args(kind) if option is not NoneType)
        present = value_of(inner, metadata)
        return present if metadata.get("kafka_type") == "uuid" else st.none() | present
    if get_origin(kind) is tuple:
        return st.lists(value_of(get_args(kind)[0], metadata), max_size=3)
    kafka_type = metadata.get("kafka_type")
    return values_of(kind) if kafka_type is None else LEAVES[kafka_type]


@pytest.mark.parametrize("key", sorted(APIS))
@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_every_request_is_answered_and_the_node_serves_on(key: int, data: st.DataObject) -> None:
    node = AdminNode(**ONE_JOURNAL)
    node.create("orders", partitions=2)
    coordinator = node.ask(FIND_COORDINATOR, 3, key="tides", key_type=0)
    assert coordinator.error_code.name == "none"
    version = data.draw(st.integers(APIS[key].first, APIS[key].last), label="version")
    request = data.draw(values_of(entity_type(key, version, "request")), label="request")
    answer = node.ask(key, version, **request)
    assert isinstance(answer, entity_type(key, version, "response"))
    node.loop.run_for(100)
    after = node.ask(
        METADATA,
        12,
        topics=[{"name": "serves", "topic_id": bytes(16)}],
        allow_auto_topic_creation=True,
        include_topic_authorized_operations=False,
    )
    assert after.topics[0].error_code.name == "none"
