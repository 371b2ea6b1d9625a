"""Groups of kafkajs: shared work, members that come and go, committed offsets (A5)."""

import time
from collections.abc import Callable
from itertools import chain

from clients.grouping import SECONDS_MAX, new_topic, produce
from clients.kafkajs import Kafkajs
from support.servers import Server


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not holds():
        assert time.monotonic() < deadline, "it came to that"
        time.sleep(0.05)


def test_members_share_partitions_and_go_on_where_they_were(
    group_kafkajs: Kafkajs, group_broker: Server
) -> None:
    bootstrap = group_broker.address
    topic, values = new_topic(bootstrap, 6, 300)
    for name in ("a", "b"):
        group_kafkajs.join(name, topic, "js")

    def read() -> list[bytes]:
        return sorted(value for name in ("a", "b") for value in group_kafkajs.look(name)[0])

    def owned() -> list[list[int]]:
        return [group_kafkajs.look(name)[1] for name in ("a", "b")]

    wait_until(lambda: set(read()) >= set(values))
    wait_until(lambda: sorted(chain.from_iterable(owned())) == list(range(6)))
    assert [len(partitions) for partitions in owned()] == [3, 3]
    group_kafkajs.leave("a")
    wait_until(lambda: group_kafkajs.look("b")[1] == list(range(6)))
    group_kafkajs.leave("b")
    produce(bootstrap, topic, [b"more"] * 6, 6)
    group_kafkajs.join("c", topic, "js")
    wait_until(lambda: len(group_kafkajs.look("c")[0]) == 6)
    assert group_kafkajs.look("c")[0] == [b"more"] * 6


def test_groups_are_described_reset_and_deleted(
    group_kafkajs: Kafkajs, group_broker: Server
) -> None:
    topic, _ = new_topic(group_broker.address, 2, 20)
    group_kafkajs.join("only", topic, "js-admin")
    wait_until(lambda: len(group_kafkajs.look("only")[0]) == 20)
    described = group_kafkajs.admin("describeGroups", [["js-admin"]])
    (group,) = described["groups"]
    assert (group["state"], group["protocol"]) == ("Stable", "RoundRobinAssigner")
    assert len(group["members"]) == 1
    group_kafkajs.leave("only")
    reset = {"groupId": "js-admin", "topic": topic, "earliest": True}
    group_kafkajs.admin("resetOffsets", reset)
    shown = group_kafkajs.admin("fetchOffsets", {"groupId": "js-admin", "topics": [topic]})
    assert {row["offset"] for row in shown[0]["partitions"]} <= {"0", "-2", "-1"}
    assert [row["errorCode"] for row in group_kafkajs.admin("deleteGroups", [["js-admin"]])] == [0]
