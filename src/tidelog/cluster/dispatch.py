"""Telling all brokers what changed: one outbox for each that is registered.

A broker that arrives is told nothing before what its arrival changes is settled: a state that
says it leads is its predecessor's.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from tidelog.cluster.desk import Desk
from tidelog.cluster.image import BrokerInfo, PartitionInfo, TopicInfo
from tidelog.cluster.outbox import Outbox
from tidelog.cluster.realm import PartitionName
from tidelog.cluster.reassignment import dropped

TOLD_WITHIN_MS: Final = 1000
"""For so long a change waits for the brokers that lead what was changed."""


class Dispatch:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._held: dict[int, Outbox] = {}
        """Of brokers that have just arrived."""
        self._open: dict[int, Outbox] = {}
        self._is_pumping = False

    def brokers_changed(self, brokers: dict[int, BrokerInfo]) -> None:
        """Begins anew with those that restarted. Whoever waits for one that is gone hears of it
        when the change is known everywhere here."""
        for outboxes in (self._held, self._open):
            for broker_id, outbox in list(outboxes.items()):
                now = brokers.get(broker_id)
                if now is None or now.epoch != outbox.broker.epoch:
                    del outboxes[broker_id]
                    self._desk.loop.call_soon(outbox.close)
        for broker_id in sorted(brokers):
            if broker_id not in self._held and broker_id not in self._open:
                self._held[broker_id] = Outbox(brokers[broker_id], self._desk)
        for outbox in self._open.values():
            outbox.brokers_changed()
        self._pump_soon()

    def settled(self) -> None:
        """Nothing is left to be decided: those that arrived can be told."""
        if self._held:
            self._open.update(self._held)
            self._held.clear()
            self._pump_soon()

    def topic_changed(
        self, name: str, before: Iterable[tuple[int, PartitionInfo | None]] = ()
    ) -> None:
        """`before`: how the partitions that changed were; None for one that is new."""
        topic = self._desk.realm.image.topics[name]
        changed = [(index, topic.partitions[index], was) for index, was in before]
        for outbox in self._open.values():
            outbox.topic_changed(name)
        for index, partition, was in changed:
            for broker_id in partition.replicas:
                if broker_id in self._open:
                    self._open[broker_id].partition_changed((name, index))
            if was is not None and was.replicas != partition.replicas:
                self._drop(topic, index, was)
        self._pump_soon()

    def topics_deleted(self, topics: Iterable[TopicInfo]) -> None:
        for topic in topics:
            self._desk.told.forget(topic.name)
            for outbox in self._open.values():
                outbox.topic_deleted(topic)
        self._pump_soon()

    def ask(self, broker_id: int, name: PartitionName, leader_epoch: int) -> None:
        """Once the broker knows what it is asked about."""
        outbox = self._open.get(broker_id) or self._held.get(broker_id)
        if outbox is not None:
            outbox.ask(name, leader_epoch)
            self._pump_soon()

    def tell_again(self, broker_id: int, names: Iterable[PartitionName]) -> None:
        """What a broker shall lead and follow, to hear what it cannot."""
        outbox = self._open.get(broker_id)
        if outbox is not None:
            for name in names:
                outbox.partition_changed(name)
            self._pump_soon()

    def when_told(self, broker_ids: Iterable[int], done: Callable[[], None]) -> None:
        """Once these brokers know everything, or do not answer. This one does: if it takes long,
        it is making the files of many partitions."""
        waiting = {broker_id for broker_id in broker_ids if broker_id in self._open}
        if not waiting:
            done()
            return
        is_over = False

        def told(*broker_ids: int) -> None:
            nonlocal is_over
            waiting.difference_update(broker_ids)
            if not waiting and not is_over:
                is_over = True
                timer.cancel()
                done()

        def gave_up() -> None:
            told(*(waiting - {self._desk.realm.broker_id}))

        at_ms = self._desk.clock.monotonic_ms() + TOLD_WITHIN_MS
        timer = self._desk.loop.call_at(at_ms, gave_up)
        for broker_id in sorted(waiting):
            self._open[broker_id].when_told(partial(told, broker_id))

    def close(self) -> None:
        for outbox in [*self._held.values(), *self._open.values()]:
            outbox.close()
        self._held.clear()
        self._open.clear()

    def _drop(self, topic: TopicInfo, index: int, was: PartitionInfo) -> None:
        now = topic.partitions[index]
        for broker_id in dropped(was, now):
            if broker_id in self._open:
                self._open[broker_id].replica_dropped(topic, index, now.leader_epoch)

    def _pump_soon(self) -> None:
        """Once for all that changes in a turn."""
        if not self._is_pumping:
            self._is_pumping = True
            self._desk.loop.call_soon(self._pump)

    def _pump(self) -> None:
        self._is_pumping = False
        for broker_id in sorted(self._open):
            self._open[broker_id].pump()
