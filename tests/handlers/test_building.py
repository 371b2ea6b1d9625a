"""Building responses from plain values, for every version of every API that uses it."""

from dataclasses import fields
from datetime import timedelta
from uuid import UUID

import pytest

from support.admin_node import APIS
from tidelog.base.errors import ErrorCode
from tidelog.handlers.building import build, id_bytes
from tidelog.wire.codec import entity_type

TOPIC_ID = bytes(range(16))


def test_a_field_that_the_version_does_not_have_is_left_out() -> None:
    topic = {
        "error_code": ErrorCode.none,
        "name": "orders",
        "topic_id": TOPIC_ID,
        "partitions": (),
    }
    values = {"brokers": (), "topics": [topic], "cluster_id": "tide"}
    old = build(entity_type(3, 0, "response"), values)
    new = build(entity_type(3, 12, "response"), values)
    assert not hasattr(old, "cluster_id")
    assert not hasattr(old.topics[0], "topic_id")
    assert new.cluster_id == "tide"
    assert new.topics[0].topic_id == UUID(bytes=TOPIC_ID)


def test_a_field_that_is_not_given_has_the_default_of_the_schema() -> None:
    topic = {"error_code": ErrorCode.none, "name": "orders", "topic_id": TOPIC_ID}
    built = build(entity_type(3, 12, "response"), {"brokers": (), "topics": [topic | NO_PARTS]})
    assert built.controller_id == -1
    assert built.topics[0].topic_authorized_operations == -(1 << 31)


NO_PARTS = {"partitions": ()}


def test_an_answer_is_not_throttled_unless_it_says_so() -> None:
    quiet = build(entity_type(22, 4, "response"), {"error_code": ErrorCode.none} | PRODUCER)
    assert quiet.throttle_time == timedelta(0)
    loud = build(
        entity_type(22, 4, "response"),
        {"error_code": ErrorCode.none, "throttle_time": 1500} | PRODUCER,
    )
    assert loud.throttle_time == timedelta(milliseconds=1500)


PRODUCER = {"producer_id": 5, "producer_epoch": 0}


def test_a_field_without_default_that_is_forgotten_is_found_at_once() -> None:
    with pytest.raises(AssertionError, match="needs error_code"):
        build(entity_type(22, 4, "response"), PRODUCER)


def test_no_id_is_an_id_of_zeros() -> None:
    values = {"error_code": ErrorCode.none, "name": None, "topic_id": bytes(16)}
    built = build(entity_type(20, 6, "response"), {"responses": [values]})
    assert built.responses[0].topic_id is None
    assert id_bytes(None) == bytes(16)
    assert id_bytes(UUID(bytes=TOPIC_ID)) == TOPIC_ID


def test_null_stays_null_for_arrays_and_entities() -> None:
    page = build(entity_type(75, 0, "response"), {"topics": (), "next_cursor": None})
    assert page.next_cursor is None
    asked = build(entity_type(35, 4, "request"), {"topics": None})
    assert asked.topics is None


@pytest.mark.parametrize("key", sorted(APIS))
def test_the_versions_served_are_versions_that_the_schema_has(key: int) -> None:
    """Kafka 4.3.1 serves these ranges; what is unstable is left out."""
    api = APIS[key]
    for version in range(api.first, api.last + 1):
        assert fields(entity_type(key, version, "request")) is not None
        assert fields(entity_type(key, version, "response"))


def test_the_ranges_are_those_of_kafka_4_3() -> None:
    assert {key: (api.first, api.last) for key, api in APIS.items()} == {
        3: (0, 13),
        8: (2, 10),
        9: (1, 10),
        10: (0, 6),
        11: (0, 9),
        12: (0, 4),
        13: (0, 5),
        14: (0, 5),
        15: (0, 6),
        16: (0, 5),
        19: (2, 7),
        20: (1, 6),
        21: (0, 2),
        22: (0, 5),
        24: (0, 5),
        25: (0, 4),
        26: (0, 5),
        27: (1, 2),
        28: (0, 5),
        32: (1, 4),
        33: (0, 2),
        35: (1, 5),
        37: (0, 3),
        42: (0, 2),
        43: (0, 2),
        44: (0, 1),
        45: (0, 1),
        46: (0, 0),
        47: (0, 0),
        60: (0, 2),
        61: (0, 0),
        65: (0, 0),
        66: (0, 2),
        68: (0, 1),
        69: (0, 1),
        75: (0, 0),
    }
