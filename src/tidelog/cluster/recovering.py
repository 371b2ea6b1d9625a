"""Asking the replicas of leaderless partitions how far they are, before one of them can lead.

A broker is asked once under a leader epoch; one that did not answer is asked again after a while,
if it is still wanted. Answers are kept until the partition is led.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from tidelog.base.control import ReplicaStatePartition, ReplicaStatesResponse
from tidelog.base.errors import ErrorCode
from tidelog.base.ports import Clock, Loop
from tidelog.cluster.desk import Asked
from tidelog.cluster.dispatch import Dispatch
from tidelog.cluster.elections import Report
from tidelog.cluster.image import BrokerInfo
from tidelog.cluster.realm import PartitionName, Realm

ASKED_AGAIN_MS: Final = 500


class Recovering:
    def __init__(
        self,
        realm: Realm,
        dispatch: Dispatch,
        loop: Loop,
        clock: Clock,
        mark: Callable[[Iterable[PartitionName]], None],
    ) -> None:
        self._realm = realm
        self._dispatch = dispatch
        self._loop = loop
        self._clock = clock
        self._mark = mark
        self._asked: dict[tuple[PartitionName, int], tuple[int, int]] = {}
        """What is under way: the leader epoch and the broker's epoch it was asked under."""

    def ask(self, name: PartitionName, leader_epoch: int, broker_ids: Iterable[int]) -> None:
        reports = self._realm.reports.setdefault(name, {})
        for broker_id in broker_ids:
            broker = self._realm.image.brokers[broker_id]
            under = (leader_epoch, broker.epoch)
            if self._asked.get((name, broker_id)) == under:
                continue
            self._asked[name, broker_id] = under
            if broker_id in reports and reports[broker_id] is None:
                at_ms = self._clock.monotonic_ms() + ASKED_AGAIN_MS
                self._loop.call_at(at_ms, partial(self._send, name, broker_id, under))
            else:
                self._send(name, broker_id, under)

    def reported(
        self, broker: BrokerInfo, asked: Asked, response: ReplicaStatesResponse | None
    ) -> None:
        found = _by_partition(response)
        topics = self._realm.image.topics
        for name, leader_epoch in asked.items():
            if self._asked.get((name, broker.broker_id)) != (leader_epoch, broker.epoch):
                continue
            del self._asked[name, broker.broker_id]
            if name[0] in topics and name in self._realm.reports:
                answer = found.get((topics[name[0]].topic_id, name[1]))
                self._realm.reports[name][broker.broker_id] = _report(answer, broker)
        self._mark(asked)

    def _send(self, name: PartitionName, broker_id: int, under: tuple[int, int]) -> None:
        if self._asked.get((name, broker_id)) == under and not self._realm.is_over:
            self._dispatch.ask(broker_id, name, under[0])


def _by_partition(
    response: ReplicaStatesResponse | None,
) -> dict[tuple[bytes, int], ReplicaStatePartition]:
    topics = () if response is None else response.topics
    return {
        (topic.topic_id, partition.index): partition
        for topic in topics
        for partition in topic.partitions
    }


def _report(answer: ReplicaStatePartition | None, broker: BrokerInfo) -> Report | None:
    if answer is None or answer.error_code != ErrorCode.none:
        return None
    return Report(
        leader_epoch=answer.leader_epoch,
        broker_epoch=broker.epoch,
        last_epoch=answer.last_epoch,
        log_end_offset=answer.log_end_offset,
    )
