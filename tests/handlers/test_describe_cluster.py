"""DescribeCluster: the brokers a client can reach through its listener."""

from typing import Any

import pytest

from support.admin_node import AdminNode, versions
from tidelog.base.errors import ErrorCode
from tidelog.cluster.image import BrokerInfo

DESCRIBE = 60
AUTHORIZED = sum(1 << bit for bit in (5, 7, 8, 9, 10, 11, 12))


def ask(node: AdminNode, version: int = 2, **more: Any) -> Any:
    usual = {
        "include_cluster_authorized_operations": False,
        "endpoint_type": 1,
        "include_fenced_brokers": False,
    }
    return node.ask(DESCRIBE, version, **(usual | more))


@pytest.mark.parametrize("version", versions(DESCRIBE))
def test_every_version_shows_the_cluster(version: int) -> None:
    node = AdminNode()
    answer = ask(node, version)
    assert (answer.error_code, answer.cluster_id) == (ErrorCode.none, node.cluster_id)
    assert answer.controller_id == 1
    (broker,) = answer.brokers
    assert (broker.broker_id, broker.host, broker.port, broker.rack) == (
        1,
        "tide.example",
        9092,
        "here",
    )
    assert answer.cluster_authorized_operations == -(1 << 31)
    if version >= 1:
        assert answer.endpoint_type == 1


def test_fenced_brokers_are_asked_for_in_vain() -> None:
    (broker,) = ask(AdminNode(), 2, include_fenced_brokers=True).brokers
    assert not broker.is_fenced


def test_the_address_is_that_of_the_listener_asked_through() -> None:
    (broker,) = ask(AdminNode(), listener="INTERNAL").brokers
    assert (broker.host, broker.port) == ("10.0.0.1", 9094)


def test_operations_are_told_if_asked_for() -> None:
    answer = ask(AdminNode(), include_cluster_authorized_operations=True)
    assert answer.cluster_authorized_operations == AUTHORIZED


@pytest.mark.parametrize(
    ("endpoint_type", "code"),
    [
        (2, ErrorCode.mismatched_endpoint_type),
        (0, ErrorCode.unsupported_endpoint_type),
        (99, ErrorCode.unsupported_endpoint_type),
    ],
)
def test_only_brokers_can_be_asked_for(endpoint_type: int, code: ErrorCode) -> None:
    answer = ask(AdminNode(), 1, endpoint_type=endpoint_type)
    assert (answer.error_code, answer.brokers) == (code, ())
    assert answer.error_message


def test_a_controller_that_cannot_be_reached_is_not_named() -> None:
    node = AdminNode()
    node.metadata.image.brokers[2] = BrokerInfo(broker_id=2, endpoints={"INTERNAL": ("b", 1)})
    node.metadata.image.controller_id = 2
    assert ask(node).controller_id == -1
    assert ask(node, listener="INTERNAL").controller_id == 2
