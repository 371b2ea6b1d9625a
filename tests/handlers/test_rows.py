"""Answers of many rows are made in slices: others come in between, and what a client reads is what
it would have read of an answer that was made in one go."""

from typing import Any

import pytest

from support.admin_node import APIS, AdminNode, versions
from support.group_node import GroupNode, commit_row
from tidelog.base.errors import ErrorCode
from tidelog.handlers.api import Request
from tidelog.handlers.building import build
from tidelog.handlers.rows import Rows, answer_in_slices
from tidelog.slices import SLICE_STEPS
from tidelog.wire import codec

METADATA, CREATE_TOPICS, DELETE_TOPICS, DELETE_RECORDS, DESCRIBE_CONFIGS = 3, 19, 20, 21, 32
MANY = 3 * SLICE_STEPS
NAMES = [f"no-{number}" for number in range(MANY)]
NO_ID = bytes(16)
NO_CREATION = {"allow_auto_topic_creation": False, "include_topic_authorized_operations": False}


def named(key: str, **values: Any) -> list[dict[str, Any]]:
    return [{key: name, **values} for name in NAMES]


WIDE: dict[str, tuple[int, dict[str, Any], str]] = {
    "metadata": (
        METADATA,
        {"topics": named("name", topic_id=NO_ID), **NO_CREATION},
        "topics",
    ),
    "offset_commit": (
        8,
        {
            "group_id": "g",
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "topics": named("name", partitions=[commit_row(0, 5)]),
        },
        "topics",
    ),
    "offset_fetch": (
        9,
        {"group_id": "g", "topics": named("name", partition_indexes=[0]), "require_stable": False},
        "topics",
    ),
    "find_coordinator": (10, {"key_type": 0, "coordinator_keys": NAMES}, "coordinators"),
    "create_topics": (
        CREATE_TOPICS,
        {
            "topics": named(
                "name", num_partitions=0, replication_factor=1, assignments=(), configs=()
            ),
            "timeout": 1000,
            "validate_only": False,
        },
        "topics",
    ),
    "delete_topics": (
        DELETE_TOPICS,
        {"topics": named("name", topic_id=NO_ID), "topic_names": NAMES, "timeout": 1000},
        "responses",
    ),
    "delete_records": (
        DELETE_RECORDS,
        {
            "topics": named("name", partitions=[{"partition_index": 0, "offset": -1}]),
            "timeout": 1000,
        },
        "topics",
    ),
    "add_partitions_to_txn": (
        24,
        {
            "v3_and_below_transactional_id": "t",
            "v3_and_below_producer_id": 1,
            "v3_and_below_producer_epoch": 0,
            "v3_and_below_topics": named("name", partitions=[0]),
        },
        "results_by_topic_v3_and_below",
    ),
    "txn_offset_commit": (
        28,
        {
            "transactional_id": "t",
            "group_id": "g",
            "producer_id": 1,
            "producer_epoch": 0,
            "generation_id": -1,
            "member_id": "",
            "topics": named("name", partitions=[commit_row(0, 5)]),
        },
        "topics",
    ),
    "describe_configs": (
        DESCRIBE_CONFIGS,
        {
            "resources": [
                {"resource_type": 2, "resource_name": name, "configuration_keys": None}
                for name in NAMES
            ],
            "include_synonyms": False,
        },
        "results",
    ),
    "alter_configs": (
        33,
        {
            "resources": [
                {"resource_type": 2, "resource_name": name, "configs": ()} for name in NAMES
            ],
            "validate_only": False,
        },
        "responses",
    ),
    "incremental_alter_configs": (
        44,
        {
            "resources": [
                {"resource_type": 2, "resource_name": name, "configs": ()} for name in NAMES
            ],
            "validate_only": False,
        },
        "responses",
    ),
    "create_partitions": (
        37,
        {
            "topics": named("name", count=2, assignments=None),
            "timeout": 1000,
            "validate_only": False,
        },
        "results",
    ),
    "elect_leaders": (
        43,
        {
            "election_type": 0,
            "topic_partitions": named("topic", partitions=[0]),
            "timeout": 1000,
        },
        "replica_election_results",
    ),
    "alter_partition_reassignments": (
        45,
        {
            "topics": named("name", partitions=[{"partition_index": 0, "replicas": [1]}]),
            "timeout": 1000,
        },
        "responses",
    ),
    "describe_producers": (61, {"topics": named("name", partition_indexes=[0])}, "topics"),
    "describe_topic_partitions": (
        75,
        {"topics": named("name"), "response_partition_limit": 2000, "cursor": None},
        "topics",
    ),
}


VERSIONS = {"add_partitions_to_txn": 3, "offset_commit": 9, "offset_fetch": 7}


def name_of(row: Any) -> str:
    for field in ("name", "topic", "resource_name", "key"):
        if hasattr(row, field):
            name: str = getattr(row, field)
            return name
    raise AssertionError(f"a row without a name: {row}")


def answered(node: AdminNode, wire: Any, key: int, version: int) -> Any:
    assert node.loop.run_until(lambda: bool(wire.sent))
    return codec.read_response(key, version, wire.sent[0][4:])[1]


@pytest.mark.parametrize("kind", WIDE)
def test_others_are_served_while_a_wide_request_is(kind: str) -> None:
    key, values, field = WIDE[kind]
    version = VERSIONS.get(kind, min(versions(key)[-1], 12))
    node = GroupNode() if kind == "offset_fetch" else AdminNode()
    wide = node.begin(key, version, "PLAINTEXT", **values)
    assert not wide.sent, "it takes several slices"
    small = node.begin(METADATA, 12, "PLAINTEXT", topics=(), **NO_CREATION)
    assert small.sent, "a small one is answered at once"
    rows = getattr(answered(node, wide, key, version), field)
    expected = sorted(NAMES) if kind == "describe_topic_partitions" else NAMES
    assert [name_of(row) for row in rows] == expected


@pytest.mark.parametrize("version", versions(METADATA))
def test_rows_are_read_as_if_they_had_been_written_together(version: int) -> None:
    partition = {
        "error_code": ErrorCode.none,
        "partition_index": 3,
        "leader_id": 1,
        "replica_nodes": (1, 2),
        "isr_nodes": (1,),
        "offline_replicas": (2,),
    }
    topic = {"error_code": ErrorCode.none, "name": "a", "topic_id": NO_ID, "is_internal": False}
    whole = {**topic, "partitions": [partition] * 3}
    rest = {"brokers": (), "cluster_id": "c", "controller_id": 1, "error_code": ErrorCode.none}
    plain = build(codec.entity_type(METADATA, version, "response"), {**rest, "topics": [whole] * 2})
    node = AdminNode()
    wire: Any = node.begin(METADATA, 0, "PLAINTEXT", topics=())
    request = Request(wire, APIS[METADATA], version, 7, None, None)
    partitions = Rows(request, "topics", "partitions")
    for _ in range(3):
        partitions.put(partition)
    topics = Rows(request, "topics")
    for _ in range(2):
        topics.put({**topic, "partitions": partitions})
    built = build(codec.entity_type(METADATA, version, "response"), {**rest, "topics": topics})
    assert codec.write_response(METADATA, version, 7, built) == codec.write_response(
        METADATA, version, 7, plain
    )


def test_work_that_fails_ends_the_connection() -> None:
    node: Any = AdminNode()
    closed: list[str] = []
    wire: Any = node.begin(METADATA, 0, "PLAINTEXT", topics=())
    wire.close = closed.append
    request = Request(wire, APIS[METADATA], 12, 7, None, None)

    def failing() -> Any:
        yield None
        raise RuntimeError("a bug")

    with pytest.raises(RuntimeError, match="a bug"):
        answer_in_slices(node, request, failing())
    assert closed == ["the broker failed to answer it"]
