"""Asking coordinators: offsets of groups against a real server, and moves as scripted (A5)."""

import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from support import scripted_brokers
from support.scripted_brokers import scripted
from support.servers import Server, new_server
from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.base.ids import TopicPartition
from tidelog.client.client import Client
from tidelog.client.errors import Unreachable
from tidelog.client.groups import Group, delete_groups, describe_groups, list_groups
from tidelog.client.offsets import commit_offsets, committed_by_groups, committed_offsets
from tidelog.client.topics import NewTopic, create_topics

FIND_COORDINATOR, OFFSET_COMMIT, LIST_GROUPS = 10, 8, 16


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    settings = {"offsets.topic.num.partitions": "4", "group.initial.rebalance.delay.ms": "0"}
    one = new_server(tmp_path_factory.mktemp("coordinators"), settings)
    try:
        one.start()
        with Client(one.address) as client:
            made = create_topics(client, [NewTopic(name="orders", partition_count=3)])
            assert made == {"orders": None}
        yield one
    finally:
        one.close()


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with Client(server.address) as connected:
        yield connected


def test_what_is_committed_for_a_group_is_found_again(client: Client) -> None:
    """A5: by somebody who is no member, for partitions named in either way."""
    commit_offsets(client, "simple", {("orders", 0): 7, ("orders", 2): 0})
    commit_offsets(client, "simple", {TopicPartition("orders", 0): 9})
    expected = {TopicPartition("orders", 0): 9, TopicPartition("orders", 2): 0}
    assert committed_offsets(client, "simple") == expected
    assert committed_offsets(client, "simple", ["orders"], stable_only=True) == expected
    assert committed_offsets(client, "simple", ["users"]) == {}
    assert committed_offsets(client, "never-was") == {}


def test_many_groups_are_asked_about_at_once(client: Client) -> None:
    for number in range(5):
        commit_offsets(client, f"many-{number}", {("orders", 1): number})
    names = [f"many-{number}" for number in reversed(range(5))]
    found = committed_by_groups(client, names)
    assert list(found) == names
    offsets = [one[TopicPartition("orders", 1)].offset for one in map(_good, found.values())]
    assert offsets == [4, 3, 2, 1, 0]
    described = describe_groups(client, [*names, "never-was"])
    groups = [one for one in described.values() if isinstance(one, Group)]
    assert [(one.group_id, one.state, one.members) for one in groups] == [
        (name, "Empty", ()) for name in names
    ]
    missing = described["never-was"]
    assert isinstance(missing, KafkaError)
    assert (missing.code, missing.message) == (
        ErrorCode.group_id_not_found,
        "there is no group never-was",
    )


def _good(found: Any) -> Mapping[TopicPartition, Any]:
    assert not isinstance(found, KafkaError), found
    assert isinstance(found, Mapping)
    return found


def test_offsets_of_a_topic_that_is_not_there_are_refused(client: Client) -> None:
    with pytest.raises(KafkaError, match="offsets of group simple were not committed") as told:
        commit_offsets(client, "simple", {("nowhere", 0): 1})
    assert told.value.code is ErrorCode.unknown_topic_or_partition


def test_groups_are_deleted_with_an_outcome_for_each(client: Client) -> None:
    commit_offsets(client, "short-lived", {("orders", 0): 1})
    assert "short-lived" in [group.group_id for group in list_groups(client, ["Empty"])]
    outcomes = delete_groups(client, ["short-lived", "never-was"])
    assert outcomes["short-lived"] is None
    refused = outcomes["never-was"]
    assert refused is not None
    assert refused.code is ErrorCode.group_id_not_found
    assert "short-lived" not in [group.group_id for group in list_groups(client)]


def test_a_coordinator_that_was_restarted_is_asked_again(tmp_path: Path) -> None:
    """A5: what was committed is there, though the log must be read first."""
    server = new_server(tmp_path, {"offsets.topic.num.partitions": "2"})
    try:
        server.start()
        with Client(server.address) as client:
            assert create_topics(client, [NewTopic(name="orders")]) == {"orders": None}
            commit_offsets(client, "lasting", {("orders", 0): 5})
            server.kill()
            server.start()
            assert committed_offsets(client, "lasting") == {TopicPartition("orders", 0): 5}
            commit_offsets(client, "lasting", {("orders", 0): 6})
            assert committed_offsets(client, "lasting") == {TopicPartition("orders", 0): 6}
    finally:
        server.close()


def coordinator_is(number: int, key: str = "g") -> dict[str, Any]:
    found = {"key": key, "node_id": number, "error_code": ErrorCode.none, "error_message": None}
    return {"coordinators": [{**found, "host": "", "port": 0}]}


def committed(code: ErrorCode) -> dict[str, Any]:
    row = {"partition_index": 0, "error_code": code}
    return {"topics": [{"name": "orders", "partitions": [row]}]}


def test_a_commit_follows_a_coordinator_that_moves() -> None:
    """It is looked up again after NOT_COORDINATOR, and waited for while it loads."""
    loading = [ErrorCode.coordinator_load_in_progress] * 2

    def answer(broker: int, api: int, _body: Any) -> dict[str, Any]:
        if api == FIND_COORDINATOR:
            has_moved = (1, OFFSET_COMMIT) in brokers.asked
            return coordinator_is(2 if has_moved else 1)
        if broker == 1:
            return committed(ErrorCode.not_coordinator)
        return committed(loading.pop() if loading else ErrorCode.none)

    with scripted(answer) as brokers, Client(brokers.addresses[1]) as client:
        commit_offsets(client, "g", {("orders", 0): 1})
    commits = [broker for broker, api in brokers.asked if api == OFFSET_COMMIT]
    assert commits == [1, 2, 2, 2]


def test_a_coordinator_that_is_never_found_is_given_up_in_time() -> None:
    def answer(_broker: int, _api: int, _body: Any) -> dict[str, Any]:
        (row,) = coordinator_is(-1)["coordinators"]
        why = {
            "error_code": ErrorCode.coordinator_not_available,
            "error_message": "nobody leads it",
        }
        return {"coordinators": [{**row, **why}]}

    with (
        scripted(answer) as brokers,
        Client(brokers.addresses[1], timeout_ms=3_000) as client,
        pytest.raises(KafkaError, match="nobody leads it") as told,
    ):
        commit_offsets(client, "g", {("orders", 0): 1})
    assert told.value.code is ErrorCode.coordinator_not_available
    assert len(brokers.asked) > 1


def test_listing_waits_for_a_broker_that_still_loads() -> None:
    """And names the groups of all brokers, each once."""
    loading = [ErrorCode.coordinator_load_in_progress]

    def answer(broker: int, _api: int, _body: Any) -> dict[str, Any]:
        code = loading.pop() if broker == 2 and loading else ErrorCode.none
        names = ["both", f"of-{broker}"] if code is ErrorCode.none else []
        group = {"protocol_type": "consumer", "group_state": "Empty", "group_type": "classic"}
        return {"error_code": code, "groups": [{"group_id": name, **group} for name in names]}

    with scripted(answer) as brokers, Client(brokers.addresses[1]) as client:
        assert [group.group_id for group in list_groups(client)] == ["both", "of-1", "of-2"]
    assert sorted(broker for broker, _ in brokers.asked) == [1, 2, 2]


def test_listing_tells_what_does_not_pass() -> None:
    def answer(_broker: int, _api: int, _body: Any) -> dict[str, Any]:
        return {"error_code": ErrorCode.cluster_authorization_failed, "groups": []}

    with (
        scripted(answer) as brokers,
        Client(brokers.addresses[1]) as client,
        pytest.raises(KafkaError, match="broker 1: cluster authorization failed"),
    ):
        list_groups(client)


def test_listing_goes_on_when_a_broker_that_is_silent_has_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is frozen, say, and its session ends after a while."""
    is_over = threading.Event()

    def answer(number: int, key: int, _body: Any) -> Mapping[str, Any]:
        assert key == LIST_GROUPS
        if number == 1:
            monkeypatch.setattr(scripted_brokers, "BROKERS", (2,))
            is_over.wait()
        return {"error_code": ErrorCode.none, "groups": []}

    with scripted(answer) as brokers, Client(brokers.addresses[2], timeout_ms=8_000) as client:
        try:
            assert list_groups(client) == []
        finally:
            is_over.set()


def test_listing_tells_of_a_broker_that_stays_silent() -> None:
    is_over = threading.Event()

    def answer(number: int, key: int, _body: Any) -> Mapping[str, Any]:
        assert key == LIST_GROUPS
        if number == 1:
            is_over.wait()
        return {"error_code": ErrorCode.none, "groups": []}

    with scripted(answer) as brokers, Client(brokers.addresses[2], timeout_ms=2_000) as client:
        try:
            with pytest.raises(Unreachable, match="did not answer in time"):
                list_groups(client)
        finally:
            is_over.set()
