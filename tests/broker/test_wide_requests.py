"""Requests that name as much as one may: whatever the API, another client hardly waits.

They are read in one go, which is why `REQUEST_VALUES_MAX` bounds them, and served in slices (rules
B2, B3), as tests/handlers/test_rows.py sees on virtual time. What names more ends its connection,
with a line that says so.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from support.servers import PEER, TidelogServer
from support.wire_client import METADATA, WireClient, request_bytes
from support.witness import SETTINGS, check_log, witnessed
from tidelog.wire import codec
from tidelog.wire.entity_reader import REQUEST_VALUES_MAX

NO_ID = bytes(16)

pytestmark = pytest.mark.skipif(PEER != "", reason="these bounds are tidelog's own")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TidelogServer]:
    server = TidelogServer(tmp_path_factory.mktemp("wide"), SETTINGS)
    server.start()
    try:
        with WireClient(server.address, 60) as client:
            client.create("witness")
        yield server
        check_log(server)
        server.stop()
    finally:
        server.close()


def named(values_each: int, key: str, **values: Any) -> list[dict[str, Any]]:
    """As many as a request may have, of so many values each."""
    return [{key: f"no-{n}", **values} for n in range(REQUEST_VALUES_MAX // values_each)]


def configured(values_each: int, **values: Any) -> list[dict[str, Any]]:
    return named(values_each, "resource_name", resource_type=2, **values)


CHANGE = {"name": "retention.ms", "value": "1", "config_operation": 0}
WIDE: list[tuple[str, int, int, dict[str, Any], str]] = [
    (
        "list_offsets",
        2,
        7,
        {
            "replica_id": -1,
            "isolation_level": 0,
            "topics": named(
                7,
                "name",
                partitions=[{"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1}],
            ),
        },
        "topics",
    ),
    (
        "metadata",
        METADATA,
        12,
        {
            "topics": named(3, "name", topic_id=NO_ID),
            "allow_auto_topic_creation": False,
            "include_topic_authorized_operations": False,
        },
        "topics",
    ),
    (
        "create_topics",
        19,
        7,
        {
            "topics": named(
                6, "name", num_partitions=1, replication_factor=9, assignments=(), configs=()
            ),
            "timeout": 60_000,
            "validate_only": False,
        },
        "topics",
    ),
    (
        "delete_topics",
        20,
        6,
        {"topics": named(3, "name", topic_id=NO_ID), "timeout": 60_000},
        "responses",
    ),
    (
        "delete_records",
        21,
        2,
        {
            "topics": named(6, "name", partitions=[{"partition_index": 0, "offset": -1}]),
            "timeout": 60_000,
        },
        "topics",
    ),
    (
        "add_partitions_to_txn",
        24,
        3,
        {
            "v3_and_below_transactional_id": "t",
            "v3_and_below_producer_id": 1,
            "v3_and_below_producer_epoch": 0,
            "v3_and_below_topics": named(4, "name", partitions=[0]),
        },
        "results_by_topic_v3_and_below",
    ),
    (
        "txn_offset_commit",
        28,
        3,
        {
            "transactional_id": "t",
            "group_id": "g",
            "producer_id": 1,
            "producer_epoch": 0,
            "generation_id": -1,
            "member_id": "",
            "group_instance_id": None,
            "topics": named(
                8,
                "name",
                partitions=[
                    {
                        "partition_index": 0,
                        "committed_offset": 1,
                        "committed_leader_epoch": -1,
                        "committed_metadata": "",
                    }
                ],
            ),
        },
        "topics",
    ),
    (
        "offset_for_leader_epoch",
        23,
        4,
        {
            "replica_id": -1,
            "topics": named(
                7,
                "topic",
                partitions=[{"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}],
            ),
        },
        "topics",
    ),
    (
        "describe_configs",
        32,
        4,
        {
            "resources": configured(4, configuration_keys=None),
            "include_synonyms": True,
            "include_documentation": True,
        },
        "results",
    ),
    (
        "alter_configs",
        33,
        2,
        {"resources": configured(7, configs=[CHANGE]), "validate_only": False},
        "responses",
    ),
    (
        "incremental_alter_configs",
        44,
        1,
        {"resources": configured(8, configs=[CHANGE]), "validate_only": False},
        "responses",
    ),
    (
        "create_partitions",
        37,
        3,
        {
            "topics": named(4, "name", count=5, assignments=None),
            "timeout": 60_000,
            "validate_only": False,
        },
        "results",
    ),
    (
        "elect_leaders",
        43,
        2,
        {
            "election_type": 0,
            "topic_partitions": named(4, "topic", partitions=[0]),
            "timeout": 60_000,
        },
        "replica_election_results",
    ),
    (
        "alter_partition_reassignments",
        45,
        0,
        {
            "topics": named(7, "name", partitions=[{"partition_index": 0, "replicas": [0]}]),
            "timeout": 60_000,
        },
        "responses",
    ),
    ("describe_producers", 61, 0, {"topics": named(4, "name", partition_indexes=[0])}, "topics"),
    (
        "consumer_group_describe",
        69,
        1,
        {
            "group_ids": [f"no-{number}" for number in range(REQUEST_VALUES_MAX)],
            "include_authorized_operations": False,
        },
        "groups",
    ),
    (
        "describe_topic_partitions",
        75,
        0,
        {"topics": named(2, "name"), "response_partition_limit": 2_000, "cursor": None},
        "topics",
    ),
]


@pytest.mark.parametrize(
    ("api_key", "version", "values", "answer"),
    [row[1:] for row in WIDE],
    ids=[row[0] for row in WIDE],
)
def test_the_widest_request_that_is_read_holds_up_nobody(
    server: TidelogServer, api_key: int, version: int, values: dict[str, Any], answer: str
) -> None:
    (asked,) = (value for value in values.values() if isinstance(value, list))
    request = request_bytes(api_key, version, **values)
    with WireClient(server.address, 60) as client, witnessed(server):
        client.socket.sendall(request)
        frame = client.receive_frame()
    _, response = codec.read_response(api_key, version, frame)
    assert len(getattr(response, answer)) == len(asked)


@pytest.mark.parametrize(
    ("api_key", "version", "values"), [row[1:4] for row in WIDE], ids=[row[0] for row in WIDE]
)
def test_a_wider_one_ends_its_connection(
    server: TidelogServer, api_key: int, version: int, values: dict[str, Any]
) -> None:
    ((field, asked),) = ((name, value) for name, value in values.items() if type(value) is list)
    request = request_bytes(api_key, version, **{**values, field: [*asked, *asked[:100]]})
    before = len(server.output.read_text())
    with witnessed(server), WireClient(server.address) as client:
        host, port = client.socket.getsockname()
        client.socket.sendall(request)
        with pytest.raises(ConnectionError):
            client.receive_frame()
    said = server.output.read_text()[before:]
    assert f"request api_key={api_key} version={version} client=test cannot be read" in said
    assert f"closing peer={host}:{port} " in said
    assert f"a message of more than {REQUEST_VALUES_MAX} values" in said
