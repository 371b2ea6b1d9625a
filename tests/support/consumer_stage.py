"""Clients of the newer group protocol, on the stage of groups.

A consumer does what real ones do: it sends full heartbeats when it joins and short ones then, works
on what it is told to have, stops working on what it is told to give up and says so with its next
heartbeat, and joins again when it is fenced.
"""

from typing import Any

from support.group_stage import Stage
from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.groups.assignors import Assignment
from tidelog.groups.consumer_group import ConsumerGroup
from tidelog.groups.consumer_requests import Beat, Told
from tidelog.groups.requests import Commit, Identity

Partition = tuple[str, int]


def topic_id(number: int) -> bytes:
    return number.to_bytes(16, "big")


def consumer_stage(topics: dict[str, int] | None = None, **settings: Any) -> Stage:
    """With topics of so many partitions."""
    stage = Stage(**settings)
    stage.topics.ids.clear()
    for name, count in ({"orders": 6} if topics is None else topics).items():
        add_topic(stage, name, count)
    return stage


def add_topic(stage: Stage, name: str, count: int) -> None:
    """Makes a topic, or gives it more partitions."""
    if name not in stage.topics.ids:
        highest = max(stage.topics.ids.values(), default=bytes(16))
        stage.topics.ids[name] = topic_id(int.from_bytes(highest, "big") + 1)
    stage.topics.counts[name] = count
    stage.shard.topics_changed()


def remove_topic(stage: Stage, name: str) -> None:
    del stage.topics.ids[name]
    del stage.topics.counts[name]
    stage.shard.topics_changed()


def find(stage: Stage, group_id: str = "g") -> ConsumerGroup:
    return stage.shard.consumer.find(group_id)


class Consumer:
    def __init__(self, stage: Stage, name: str, *topics: str, **more: Any) -> None:
        self.stage = stage
        self.member_id = name
        self.epoch = 0
        self.values: dict[str, Any] = {
            "group_id": "g",
            "client_id": name,
            "client_host": "/10.0.0.1",
            "rebalance_timeout_ms": 30_000,
            "topics": topics or None,
            **more,
        }
        if self.values["topics"] is None and "pattern" not in self.values:
            self.values["topics"] = ("orders",)
        self.owned: Assignment = {}
        """What it works on."""
        self.wanted: Assignment = {}
        """What it was told to work on."""
        self.told: list[Told | KafkaError] = []

    @property
    def partitions(self) -> list[Partition]:
        names = {known: name for name, known in self.stage.topics.ids.items()}
        return sorted(
            (names.get(found, "gone"), index)
            for found, indexes in self.owned.items()
            for index in indexes
        )

    @property
    def code(self) -> ErrorCode:
        """Of the last answer."""
        last = self.told[-1]
        return last.code if isinstance(last, KafkaError) else ErrorCode.none

    def send(self, **values: Any) -> Told | KafkaError | None:
        """One heartbeat, just as it is given; None if it is not answered."""
        named = {"group_id": self.values["group_id"], "member_id": self.member_id, **values}
        told: list[Told | KafkaError] = []
        self.stage.shard.consumer.beat(Beat(**named), told.append)
        self.stage.loop.run_for(0)
        self.told += told
        return told[0] if told else None

    def join(self, **changed: Any) -> "Consumer":
        self.values |= changed
        self.epoch, self.owned, self.wanted = 0, {}, {}
        self._take(self.send(epoch=0, owned={}, **self._said()))
        return self

    def beat(self, *, takes_on: bool = True, **changed: Any) -> "Consumer":
        """Says what it has, and does as it is told; or goes on working as before, if it is slow."""
        for name, value in changed.items():
            self.values[name] = value
        more = {"instance_id": self.values.get("instance_id"), **changed}
        who = {name: self.values[name] for name in ("client_id", "client_host")}
        self._take(self.send(epoch=self.epoch, owned=self.owned, **who, **more), takes_on)
        return self

    def leave(self, epoch: int = -1) -> "Consumer":
        self.owned = self.wanted = {}
        self.send(epoch=epoch, instance_id=self.values.get("instance_id"))
        return self

    def _said(self) -> dict[str, Any]:
        return {name: value for name, value in self.values.items() if name != "group_id"}

    def _take(self, told: Told | KafkaError | None, takes_on: bool = True) -> None:
        if isinstance(told, KafkaError):
            if told.code in (ErrorCode.fenced_member_epoch, ErrorCode.unknown_member_id):
                self.epoch, self.owned, self.wanted = 0, {}, {}
        elif told is not None:
            self.epoch = told.epoch
            if told.assignment is not None:
                self.wanted = told.assignment
            if takes_on:
                self.owned = self.wanted

    def commit(self, offset: int, topic: str = "orders", partition: int = 0, **more: Any) -> Any:
        epoch = more.pop("epoch", self.epoch)
        who = Identity(self.values["group_id"], self.member_id, None, epoch)
        known = self.stage.topics.ids[topic]
        (code,) = self.stage.commit(Commit(topic, known, partition, offset), who=who, **more)
        return code


def settle(*consumers: Consumer, rounds: int = 6) -> None:
    """Heartbeats until all have what they are to have."""
    for _ in range(rounds):
        for consumer in consumers:
            consumer.beat()


def owners(*consumers: Consumer) -> list[Partition]:
    """All that is worked on, in order: one that is there twice is worked on by two."""
    return sorted(partition for consumer in consumers for partition in consumer.partitions)
