"""Groups of both protocols through anything that may happen, from a seed (A5, V15, H7).

Members of the newer protocol and classic ones come, leave, fall silent and come back, are slow to
give up partitions, lose answers; topics are made, grow and go; the coordinator changes. At no step
do two members that are alive work on one partition, no commit of one that does not own a partition
is taken, and when it is quiet again everything is worked on by someone.
"""

from random import Random
from typing import Any

import pytest

from support.consumer_stage import Consumer, add_topic, consumer_stage, remove_topic
from support.group_stage import Member, Stage
from tidelog.base.errors import ErrorCode
from tidelog.groups.consumer_group import ConsumerGroup
from tidelog.groups.consumer_protocol import read_assignment, write_assignment
from tidelog.groups.requests import Commit
from tidelog.groups.shard import GroupShard

TOPICS = ("orders", "bills")
SESSION_MS = 10_000
KEPT = ("epoch", "topics_hash", "target_epoch", "members", "targets", "patterns", "member_ids")
Partition = tuple[bytes, int]


class NewClient:
    """Of the newer protocol."""

    def __init__(self, stage: Stage, name: str, random: Random) -> None:
        wanted: dict[str, Any] = random.choice(
            [{"topics": TOPICS}, {"topics": TOPICS[:1]}, {"pattern": ".*s"}]
        )
        static = random.choice([None, f"i-{name}"])
        self.random = random
        self.consumer = Consumer(
            stage, name, **{"topics": None, **wanted}, instance_id=static, rebalance_timeout_ms=8000
        )
        self.is_in = False
        self.missed = False
        """Whether it waits in vain for an answer: it says all of itself again then."""

    @property
    def works_on(self) -> list[Partition]:
        owned = self.consumer.owned
        return [(topic_id, index) for topic_id in owned for index in owned[topic_id]]

    def act(self, *, calmly: bool = False) -> None:
        consumer = self.consumer
        if not self.is_in or consumer.epoch == 0:
            consumer.join()
            self.is_in = consumer.code is ErrorCode.none
        elif not calmly and self.random.random() < 0.1:
            epoch, owned, wanted = consumer.epoch, consumer.owned, consumer.wanted
            consumer.beat()
            consumer.epoch, consumer.owned, consumer.wanted = epoch, owned, wanted
            self.missed = True
        else:
            said = ("topics", "pattern", "rebalance_timeout_ms") if self.missed else ()
            more = {name: consumer.values[name] for name in said if name in consumer.values}
            consumer.beat(takes_on=calmly or self.random.random() < 0.7, **more)
            self.missed = False
        if consumer.code is ErrorCode.fenced_instance_id:
            self.die()

    def leave(self) -> None:
        static = self.consumer.values["instance_id"] is not None
        self.consumer.leave(epoch=-2 if static and self.random.random() < 0.5 else -1)
        self.die()

    def die(self) -> None:
        self.consumer.owned = self.consumer.wanted = {}
        self.consumer.epoch = 0
        self.is_in = False

    def commit(self, partition: Partition, name: str) -> ErrorCode:
        found: ErrorCode = self.consumer.commit(1, topic=name, partition=partition[1])
        return found


class ClassicClient:
    """Of the classic protocol, cooperative: it keeps what it has while it joins again."""

    def __init__(self, stage: Stage, name: str, _random: Random) -> None:
        self.stage = stage
        self.member = Member(
            stage, name, session_timeout_ms=SESSION_MS, rebalance_timeout_ms=8000, protocols=()
        )
        self.works_on: list[Partition] = []
        self.is_in = False

    def act(self, *, calmly: bool = False) -> None:
        del calmly
        if self.is_in and self.member.heartbeat() is ErrorCode.none:
            return
        group = self.stage.shard.groups.get("g")
        if isinstance(group, ConsumerGroup) and not group.is_empty:
            self._join()

    def _join(self) -> None:
        member = self.member
        member.join(protocols=(("range", self._said()),))
        if member.told is not ErrorCode.none:
            member.member_id, member.generation = "", -1
            self.die()
            return
        member.sync()
        self.is_in = True
        if member.syncs[-1].code is ErrorCode.none:
            named = read_assignment(member.syncs[-1].assignment)
            ids = self.stage.topics.ids
            self.works_on = [(ids[name], i) for name in named for i in named[name] if name in ids]

    def _said(self) -> bytes:
        names = {known: name for name, known in self.stage.topics.ids.items()}
        owned: dict[str, tuple[int, ...]] = {}
        for topic_id, index in self.works_on:
            if topic_id in names:
                owned[names[topic_id]] = (*owned.get(names[topic_id], ()), index)
        topics = b"".join(len(name).to_bytes(2, "big") + name.encode() for name in TOPICS)
        said = b"\0\1" + len(TOPICS).to_bytes(4, "big") + topics + b"\xff\xff\xff\xff"
        return said + write_assignment(0, owned)[2:-4]

    def leave(self) -> None:
        if self.is_in:
            self.member.leave()
        self.member.member_id, self.member.generation = "", -1
        self.die()

    def die(self) -> None:
        self.works_on = []
        self.is_in = False

    def commit(self, partition: Partition, name: str) -> ErrorCode:
        commit = Commit(name, partition[0], partition[1], 1)
        (code,) = self.stage.commit(commit, who=self.member.identity)
        return code


Client = NewClient | ClassicClient


class History:
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.stage = consumer_stage(
            {"orders": 5, "bills": 3},
            group_consumer_session_timeout_ms=SESSION_MS,
            group_consumer_min_session_timeout_ms=SESSION_MS,
            group_consumer_migration_policy="upgrade",
        )
        self.clients: list[Client] = [
            NewClient(self.stage, f"new{number}", self.random) for number in range(4)
        ]
        self.clients += [ClassicClient(self.stage, f"old{n}", self.random) for n in range(2)]

    def step(self) -> None:
        random, stage = self.random, self.stage
        what = random.random()
        client = random.choice(self.clients)
        if what < 0.75:
            client.act()
        elif what < 0.82:
            client.leave()
        elif what < 0.86:
            client.die()
        elif what < 0.92:
            stage.wait(random.randrange(3000))
        elif what < 0.95:
            self._change_topics()
        elif what < 0.97:
            self._move()
        else:
            self._commit(client)
        self._expire()
        self.check()

    def _move(self) -> None:
        """The coordinator changes. What compaction would have left of the journal tells the same
        as all of it."""
        before = self.stage.shard.groups.get("g")
        written = self.stage.journal.written
        last = {entry.key: number for number, (entry, _) in enumerate(written)}
        left = [one for number, one in enumerate(written) if last[one[0].key] == number]
        if self.random.random() < 0.5:
            left = [one for one in left if one[0].value is not None]
        compacted = GroupShard(self.stage.journal, self.stage.surroundings)
        for entry, origin in left:
            compacted.replay(entry, origin)
        self.stage.move()
        for after in (compacted.groups.get("g"), self.stage.shard.groups.get("g")):
            assert isinstance(after, ConsumerGroup) == isinstance(before, ConsumerGroup)
            for name in KEPT if isinstance(before, ConsumerGroup) else ():
                assert getattr(after, name) == getattr(before, name), name

    def _expire(self) -> None:
        """Whoever is no member any more has not been heard of in time: a real client stops working
        at the end of its session, and so do these."""
        group = self.stage.shard.groups.get("g")
        members: dict[str, Any] = group.members if isinstance(group, ConsumerGroup) else {}
        for client in self.clients:
            name = (client.consumer if isinstance(client, NewClient) else client.member).member_id
            if client.is_in and name not in members:
                client.die()
                if isinstance(client, ClassicClient):
                    client.member.member_id, client.member.generation = "", -1

    def _change_topics(self) -> None:
        name = self.random.choice(TOPICS)
        if name in self.stage.topics.ids and self.random.random() < 0.3:
            remove_topic(self.stage, name)
        elif name in self.stage.topics.ids:
            add_topic(self.stage, name, self.stage.topics.counts[name] + 1)
        else:
            self.stage.topics.ids[name] = b"\0" + self.random.randbytes(15)
            add_topic(self.stage, name, self.random.randrange(1, 6))

    def _commit(self, client: Client) -> None:
        name = self.random.choice(TOPICS)
        if name not in self.stage.topics.ids or not client.is_in:
            return
        topic_id = self.stage.topics.ids[name]
        index = self.random.randrange(self.stage.topics.counts[name])
        code = client.commit((topic_id, index), name)
        others = [c for c in self.clients if c is not client and (topic_id, index) in c.works_on]
        is_late = isinstance(client, NewClient) and client.consumer.epoch != self._epoch(client)
        if code is ErrorCode.none and others:
            assert not is_late, "V15: a late commit was taken of what another one has"

    def _epoch(self, client: NewClient) -> int:
        group = self.stage.shard.consumer.find("g")
        return group.members[client.consumer.member_id].epoch

    def check(self) -> None:
        owners: dict[Partition, Client] = {}
        for client in self.clients:
            for partition in client.works_on:
                assert partition not in owners, f"V15: {partition} is worked on by two"
                owners[partition] = client

    def settle(self) -> None:
        for name in TOPICS:
            if name not in self.stage.topics.ids:
                self.stage.topics.ids[name] = b"\0" + self.random.randbytes(15)
                add_topic(self.stage, name, 2)
        for _ in range(14):
            self.stage.wait(1500)
            for client in self.clients:
                client.act(calmly=True)
                self._expire()
                self.check()
        worked_on = {partition for client in self.clients for partition in client.works_on}
        topics = self.stage.topics
        expected = {(topics.ids[n], i) for n in TOPICS for i in range(topics.counts[n])}
        assert worked_on >= expected, "H7: everything is worked on again"
        group = self.stage.shard.groups["g"]
        assert group.state_name == "Stable"


def run(first: int, last: int) -> None:
    for seed in range(first, last):
        history = History(seed)
        for _ in range(150):
            history.step()
        history.settle()


@pytest.mark.parametrize("first", range(0, 60, 10))
def test_v15_no_two_members_work_on_one_partition_whatever_happens(first: int) -> None:
    run(first, first + 10)


def test_the_check_finds_partitions_that_are_given_away_too_early(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ConsumerGroup, "holder_of", lambda *_: None)
    with pytest.raises(AssertionError, match="V15"):
        run(0, 10)
