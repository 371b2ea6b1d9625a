"""Groups of kafka-python: shared work, members that come and go, committed offsets (A5)."""

import threading
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from clients.grouping import SECONDS_MAX, new_topic, numbered, produce
from support.servers import Server

with warnings.catch_warnings():
    # It reads its schemas with a function that Python is about to drop.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition
    from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor


@pytest.fixture(scope="module")
def bootstrap(group_broker: Server) -> str:
    return group_broker.address


@contextmanager
def member(bootstrap: str, group: str, topic: str, **settings: Any) -> Iterator[KafkaConsumer]:
    settings = {
        "session_timeout_ms": 6000,
        "heartbeat_interval_ms": 300,
        "enable_auto_commit": False,
        "auto_offset_reset": "earliest",
        **settings,
    }
    made = KafkaConsumer(topic, bootstrap_servers=bootstrap, group_id=group, **settings)
    try:
        yield made
    finally:
        made.close()


class Shared:
    """Members that read at the same time, each in a thread of its own.

    Not in turn in one thread: this client throws away a join that ends while nobody polls, and
    joins anew. Members that wait for one another would do so for ever.
    """

    def __init__(self, *members: KafkaConsumer) -> None:
        self.members = members
        self.values: list[bytes] = []

    def run_until(self, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + SECONDS_MAX
        done = threading.Event()
        with ThreadPoolExecutor(len(self.members)) as threads:
            reading = [threads.submit(self._read, each, done) for each in self.members]
            try:
                while not holds() and not any(each.done() for each in reading):
                    assert time.monotonic() < deadline, f"it came to that: {self.owned()}"
                    time.sleep(0.02)
            finally:
                done.set()
            for each in reading:
                each.result()

    def _read(self, member: KafkaConsumer, done: threading.Event) -> None:
        while not done.is_set():
            for records in member.poll(200).values():
                self.values += [record.value for record in records]

    def owned(self) -> list[list[int]]:
        return [sorted(found.partition for found in each.assignment()) for each in self.members]

    def is_shared(self, count: int) -> bool:
        owned = self.owned()
        return sorted(p for each in owned for p in each) == list(range(count)) and all(owned)


@pytest.mark.parametrize(
    "assignor", [RangePartitionAssignor, StickyPartitionAssignor, CooperativeStickyAssignor]
)
def test_members_share_partitions_and_go_on_where_they_were(bootstrap: str, assignor: Any) -> None:
    topic, _ = new_topic(bootstrap, 6, 0)
    group = f"python-{assignor.__name__}"
    settings = {"partition_assignment_strategy": [assignor]}
    with (
        member(bootstrap, group, topic, **settings) as first,
        member(bootstrap, group, topic, **settings) as second,
    ):
        shared = Shared(first, second)
        shared.run_until(lambda: shared.is_shared(6))
        produce(bootstrap, topic, numbered(300), 6)
        shared.run_until(lambda: set(shared.values) >= set(numbered(300)))
        first.commit()
        second.commit()
    produce(bootstrap, topic, [b"more"] * 6, 6)
    with member(bootstrap, group, topic, **settings) as third:
        again = Shared(third)
        again.run_until(lambda: len(again.values) >= 6)
        assert again.values == [b"more"] * 6


def test_one_that_comes_takes_its_share_and_leaves_it_when_it_goes(bootstrap: str) -> None:
    topic, _ = new_topic(bootstrap, 6, 6)
    with member(bootstrap, "python-churn", topic) as stays:
        alone = Shared(stays)
        alone.run_until(lambda: alone.is_shared(6))
        with member(bootstrap, "python-churn", topic) as comes:
            both = Shared(stays, comes)
            both.run_until(lambda: both.is_shared(6))
        alone.run_until(lambda: alone.is_shared(6))


def test_groups_are_listed_described_and_deleted(bootstrap: str) -> None:
    topic, _ = new_topic(bootstrap, 2, 20)
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        with member(bootstrap, "python-admin", topic) as only:
            shared = Shared(only)
            shared.run_until(lambda: len(shared.values) == 20)
            only.commit()
            offsets = admin.list_group_offsets("python-admin")["python-admin"]
            assert {tp.partition: found.offset for tp, found in offsets.items()} == {0: 10, 1: 10}
            assert only.committed(TopicPartition(topic, 0)) == 10
            shown = admin.describe_groups(["python-admin"])["python-admin"]
            assert (shown["group_state"], len(shown["members"])) == ("Stable", 1)
        assert "python-admin" in [group["group_id"] for group in admin.list_groups()]
        admin.delete_groups(["python-admin"])
        assert "python-admin" not in [group["group_id"] for group in admin.list_groups()]
    finally:
        admin.close()
