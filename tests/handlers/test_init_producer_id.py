"""InitProducerId: ids for idempotent producers (A3), and for transactional ones (A4)."""

from typing import Any

import pytest

from support.admin_node import AdminNode, versions
from tidelog.base.errors import ErrorCode

INIT = 22


def ask(node: AdminNode, version: int = 5, **more: Any) -> Any:
    usual = {
        "transactional_id": None,
        "transaction_timeout": 60_000,
        "producer_id": -1,
        "producer_epoch": -1,
    }
    return node.ask(INIT, version, **(usual | more))


@pytest.mark.parametrize("version", versions(INIT))
def test_a_producer_gets_an_id_in_every_version(version: int) -> None:
    answer = ask(AdminNode(), version)
    assert (answer.error_code, answer.producer_epoch) == (ErrorCode.none, 0)
    assert answer.producer_id >= 0


def test_no_two_producers_get_the_same_id() -> None:
    node = AdminNode()
    ids = [ask(node).producer_id for _ in range(1005)]
    assert len(set(ids)) == len(ids), "more than one block of ids was used"


@pytest.mark.parametrize("version", versions(INIT)[3:])
def test_a_producer_that_has_an_id_gets_a_new_one(version: int) -> None:
    node = AdminNode()
    first = ask(node, version).producer_id
    again = ask(node, version, producer_id=first, producer_epoch=4)
    assert (again.error_code, again.producer_epoch) == (ErrorCode.none, 0)
    assert again.producer_id != first


@pytest.mark.parametrize("given", [{"producer_id": 5}, {"producer_epoch": 0}])
def test_an_id_and_its_epoch_come_together(given: dict[str, int]) -> None:
    answer = ask(AdminNode(), **given)
    assert answer.error_code is ErrorCode.invalid_request
    assert (answer.producer_id, answer.producer_epoch) == (-1, -1)


@pytest.mark.parametrize("version", versions(INIT))
@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("payments", ErrorCode.coordinator_not_available),
        ("", ErrorCode.invalid_request),
    ],
)
def test_without_a_coordinator_a_transactional_id_gets_none(
    version: int, name: str, code: ErrorCode
) -> None:
    answer = ask(AdminNode(), version, transactional_id=name)
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (code, -1, -1)


def test_a_coordinator_that_cannot_write_gives_no_id() -> None:
    node = AdminNode()
    node.disk.fail(5, operations=["pwrite", "sync"], times=None)
    answer = ask(node)
    assert answer.error_code is not ErrorCode.none
    assert answer.producer_id == -1
