"""FindCoordinator: groups and transactions are this broker's; share groups are not served."""

from typing import Any

import pytest

from support.admin_node import AdminNode, versions
from tidelog.base.errors import ErrorCode

FIND = 10
GROUP, TRANSACTION, SHARE = 0, 1, 2
SINGLE = [version for version in versions(FIND) if version < 4]
BATCHED = [version for version in versions(FIND) if version >= 4]


def ask(node: AdminNode, version: int, kind: int, *keys: str, **more: Any) -> list[Any]:
    """The coordinators found; a single key's has no key in older versions."""
    values: dict[str, Any] = {
        "key": keys[0] if keys else "",
        "coordinator_keys": keys,
        "key_type": kind,
    }
    answer = node.ask(FIND, version, **(values | more))
    return list(answer.coordinators) if version >= 4 else [answer]


@pytest.mark.parametrize("version", versions(FIND)[1:])
@pytest.mark.parametrize("kind", [GROUP, TRANSACTION])
def test_groups_and_transactions_are_looked_after_by_this_broker(version: int, kind: int) -> None:
    (found,) = ask(AdminNode(), version, kind, "readers")
    assert found.error_code is ErrorCode.none
    assert (found.node_id, found.host, found.port) == (1, "tide.example", 9092)
    if version >= 4:
        assert found.key == "readers"


def test_the_address_is_that_of_the_listener_asked_through() -> None:
    (found,) = ask(AdminNode(), 6, GROUP, "readers", listener="INTERNAL")
    assert (found.host, found.port) == ("10.0.0.1", 9094)


@pytest.mark.parametrize("version", BATCHED)
def test_many_keys_are_answered_in_order(version: int) -> None:
    found = ask(AdminNode(), version, GROUP, "b", "a", "")
    assert [coordinator.key for coordinator in found] == ["b", "a", ""]
    assert ask(AdminNode(), version, GROUP) == []


@pytest.mark.parametrize("version", versions(FIND)[1:])
@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (SHARE, ErrorCode.invalid_request),
        (3, ErrorCode.invalid_request),
        (-1, ErrorCode.invalid_request),
    ],
)
def test_what_is_not_served_is_refused_with_a_reason(
    version: int, kind: int, code: ErrorCode
) -> None:
    (found,) = ask(AdminNode(), version, kind, "key")
    assert found.error_code is code
    assert (found.node_id, found.host, found.port) == (-1, "", -1)
    assert found.error_message


def test_a_broker_that_is_not_registered_is_not_available_yet() -> None:
    node = AdminNode()
    ask(node, 6, GROUP, "readers")
    del node.metadata.image.brokers[1]
    (found,) = ask(node, 6, GROUP, "readers")
    assert found.error_code is ErrorCode.coordinator_not_available


def test_version_0_knows_groups_only() -> None:
    (found,) = ask(AdminNode(), 0, TRANSACTION, "readers")
    assert found.error_code is ErrorCode.none


def test_how_many_replicas_of_offsets_must_be_in_sync_is_said_where_it_is_set() -> None:
    """O1, O2: elsewhere the topic has what any topic has, as in Kafka."""
    found = []
    for node in (AdminNode(), AdminNode(offsets_topic_min_isr="2")):
        ask(node, 6, GROUP, "readers")
        config = node.metadata.image.topics["__consumer_offsets"].config
        found.append(config.get("min.insync.replicas"))
    assert found == [None, "2"]
