"""ElectLeaders (E3, E4): the preferred replica leads again, on request.

How the results of an election are shown is tested on a stand-in for the metadata, because the
one broker of these tests leads everything already; the rest on the real one."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from support.admin_node import AdminNode, versions
from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.cluster.metadata import Metadata
from tidelog.cluster.requests import Elected, ElectionKind

ELECT = 43
NOT_NEEDED = KafkaError(ErrorCode.election_not_needed, "it leads already")
NOT_AVAILABLE = KafkaError(ErrorCode.preferred_leader_not_available, "broker 3 is down")
NOT_CONTROLLER = KafkaError(ErrorCode.not_controller, "the controller is the broker 2")
NONE_ELIGIBLE = KafkaError(ErrorCode.eligible_leaders_not_available, "no replica is alive")


class Electing(Metadata):
    """Notes what is asked and answers as it is told to."""

    asked: list[tuple[ElectionKind, list[tuple[str, int]] | None]]
    answers: dict[tuple[str, int], KafkaError | None]
    soon: Callable[[Callable[[], None]], None]
    epochs: list[int | None]
    """The controller's, at one look after the other; the last one stays."""

    @property
    def controller_epoch(self) -> int | None:
        return self.epochs.pop(0) if len(self.epochs) > 1 else self.epochs[0]

    def elect_leaders(
        self,
        kind: ElectionKind,
        partitions: Sequence[tuple[str, int]] | None,
        done: Callable[[dict[tuple[str, int], KafkaError | None]], None],
    ) -> None:
        self.asked.append((kind, None if partitions is None else list(partitions)))
        self.soon(lambda: done(self.answers))


def electing_node(answers: Elected) -> tuple[AdminNode, Electing]:
    node = AdminNode()
    metadata = node.metadata
    metadata.__class__ = Electing
    assert isinstance(metadata, Electing)
    metadata.asked, metadata.answers = [], dict(answers)
    metadata.soon = node.loop.call_soon
    metadata.epochs = [1]
    return node, metadata


def elect(node: AdminNode, version: int, *rows: tuple[str, list[int]], **more: Any) -> Any:
    listed = [{"topic": topic, "partitions": indexes} for topic, indexes in rows]
    usual = {"timeout": 10_000, "topic_partitions": listed, "election_type": 0}
    values: dict[str, Any] = usual | more
    return node.ask(ELECT, version, **values)


def shown(answer: Any) -> list[tuple[str, int, ErrorCode, str | None]]:
    return [
        (topic.topic, one.partition_id, one.error_code, one.error_message)
        for topic in answer.replica_election_results
        for one in topic.partition_result
    ]


@pytest.mark.parametrize("version", versions(ELECT))
def test_each_partition_has_its_own_result(version: int) -> None:
    node, metadata = electing_node(
        {("tides", 0): NOT_NEEDED, ("orders", 1): None, ("orders", 0): NOT_AVAILABLE}
    )
    answer = elect(node, version, ("orders", [1, 0, 1]), ("tides", [0]))
    assert shown(answer) == [
        ("orders", 1, ErrorCode.none, None),
        ("orders", 0, ErrorCode.preferred_leader_not_available, "broker 3 is down"),
        ("tides", 0, ErrorCode.election_not_needed, "it leads already"),
    ]
    assert version == 0 or answer.error_code is ErrorCode.none
    assert metadata.asked == [("preferred", [("orders", 1), ("orders", 0), ("tides", 0)])]


@pytest.mark.parametrize("version", [1, 2])
def test_an_unclean_election_is_asked_for_by_its_type(version: int) -> None:
    node, metadata = electing_node({("orders", 0): NONE_ELIGIBLE})
    answer = elect(node, version, ("orders", [0]), election_type=1)
    assert [row[2] for row in shown(answer)] == [ErrorCode.eligible_leaders_not_available]
    assert metadata.asked == [("unclean", [("orders", 0)])]


@pytest.mark.parametrize("version", versions(ELECT))
def test_of_all_partitions_those_that_need_no_election_are_left_out(version: int) -> None:
    node, metadata = electing_node(
        {
            ("tides", 0): NOT_NEEDED,
            ("orders", 1): None,
            ("orders", 0): NOT_AVAILABLE,
            ("orders", 2): NOT_NEEDED,
        }
    )
    answer = elect(node, version, topic_partitions=None)
    assert [row[:3] for row in shown(answer)] == [
        ("orders", 0, ErrorCode.preferred_leader_not_available),
        ("orders", 1, ErrorCode.none),
    ]
    assert metadata.asked == [("preferred", None)]


@pytest.mark.parametrize("kind", [-128, -1, 2, 127])
def test_an_unknown_type_of_election_is_refused(kind: int) -> None:
    node, metadata = electing_node({})
    answer = elect(node, 2, ("orders", [0]), election_type=kind)
    assert answer.error_code is ErrorCode.invalid_request
    assert [row[2] for row in shown(answer)] == [ErrorCode.invalid_request]
    assert metadata.asked == []


@pytest.mark.parametrize("version", versions(ELECT))
def test_whoever_stops_being_the_controller_says_so_of_the_whole_request(version: int) -> None:
    node, _ = electing_node({("orders", 0): NOT_CONTROLLER})
    answer = elect(node, version, ("orders", [0]))
    assert [row[2] for row in shown(answer)] == [ErrorCode.not_controller]
    assert version == 0 or answer.error_code is ErrorCode.not_controller


@pytest.mark.parametrize("epochs", [[None], [1, None]])
def test_nothing_is_said_of_all_partitions_by_whoever_is_not_the_controller(
    epochs: list[int | None],
) -> None:
    """Before the election, or by the time it is held."""
    node, metadata = electing_node({})
    metadata.epochs = epochs
    answer = elect(node, 2, topic_partitions=None)
    assert answer.error_code is ErrorCode.not_controller
    assert shown(answer) == []


@pytest.mark.parametrize("version", versions(ELECT))
def test_a_client_that_does_not_wait_is_told(version: int) -> None:
    node, _ = electing_node({("orders", 0): None})
    answer = elect(node, version, ("orders", [0]), timeout=0)
    assert [row[2] for row in shown(answer)] == [ErrorCode.request_timed_out]
    assert version == 0 or answer.error_code is ErrorCode.request_timed_out
    node.loop.run_for(1_000)


# -- the real metadata, of one broker


def test_a_leader_that_is_preferred_needs_no_election() -> None:
    node = AdminNode()
    node.create("orders", partitions=2)
    answer = elect(node, 2, ("orders", [0, 1]))
    assert [row[:3] for row in shown(answer)] == [
        ("orders", 0, ErrorCode.election_not_needed),
        ("orders", 1, ErrorCode.election_not_needed),
    ]
    assert shown(elect(node, 2, topic_partitions=None)) == []


def test_where_somebody_leads_no_unclean_election_is_held() -> None:
    node = AdminNode()
    node.create("orders")
    answer = elect(node, 2, ("orders", [0]), election_type=1)
    assert [row[2] for row in shown(answer)] == [ErrorCode.election_not_needed]


def test_what_is_not_there_has_no_election() -> None:
    node = AdminNode()
    node.create("orders")
    answer = elect(node, 2, ("orders", [7, -1]), ("unknown", [0]))
    assert {row[2] for row in shown(answer)} == {ErrorCode.unknown_topic_or_partition}
