"""A shard of groups on virtual time, with a journal that commits when the test says so.

The journal keeps what was appended; another shard can be made of it, as another broker would. What
a member is told is collected by the one who asked.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.base.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from tidelog.base.journal import Committed, Entry, Origin
from tidelog.base.settings import Settings
from tidelog.groups.classic_group import ClassicGroup
from tidelog.groups.requests import Commit, Identity, Join, Joined, Leaving, Sync, Synced
from tidelog.groups.shard import GroupShard
from tidelog.groups.surroundings import GroupSurroundings
from tidelog.world.sim.entropy import SimEntropy
from tidelog.world.sim.loop import SimLoop

Written = tuple[Entry, Origin]


class StageJournal:
    """In memory. While it is `held`, nothing is committed; with a `refusal`, nothing is taken."""

    index = 0
    leader_epoch = 0

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop
        self.written: list[Written] = []
        self.batches: list[int] = []
        self.waiting: list[Committed] = []
        self.is_held = False
        self.committed_count = 0
        """How much of what was written cannot be lost any more."""
        self.refusal: KafkaError | None = None
        self.bytes_max: int | None = None
        """What fits into a batch."""

    def append(
        self,
        entries: Sequence[Entry],
        committed: Committed,
        producer: tuple[int, int] | None = None,
        *,
        must_fit: bool = True,
    ) -> Origin:
        if self.refusal is not None:
            raise self.refusal
        size = sum(len(key) + len(value or b"") for key, value in entries)
        if must_fit and self.bytes_max is not None and size > self.bytes_max:
            raise KafkaError(ErrorCode.message_too_large, f"{size} bytes at once")
        assert entries, "nothing is no batch"
        who = (NO_PRODUCER_ID, NO_PRODUCER_EPOCH) if producer is None else producer
        origin = Origin(len(self.written), self._loop.clock.now_ms(), *who)
        for number, entry in enumerate(entries):
            self.written.append((entry, origin._replace(offset=origin.offset + number)))
        self.batches.append(len(entries))
        self.settle(committed)
        return origin

    def settle(self, committed: Committed) -> None:
        if self.is_held:
            self.waiting.append(committed)
        else:
            self.committed_count = len(self.written)
            committed(None)

    def release(self, error: KafkaError | None = None) -> None:
        self.is_held = False
        if error is None:
            self.committed_count = len(self.written)
        waiting, self.waiting = self.waiting, []
        for committed in waiting:
            committed(error)


@dataclass
class StageTopics:
    ids: dict[str, bytes] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    unreadable: set[str] = field(default_factory=set)

    def names(self) -> list[str]:
        return list(self.ids)

    def partition_count(self, name: str) -> int | None:
        return self.counts.get(name, 1) if name in self.ids else None

    def topic_id(self, name: str) -> bytes | None:
        return self.ids.get(name)

    def is_gone(self, name: str) -> bool:
        return name not in self.ids and name not in self.unreadable

    def name_of(self, topic_id: bytes) -> str | None:
        return next((name for name, known in self.ids.items() if known == topic_id), None)


class Stage:
    def __init__(self, seed: int = 0, **settings: Any) -> None:
        named = {name.replace("_", "."): value for name, value in settings.items()}
        self.settings = Settings.of({"group.initial.rebalance.delay.ms": 0, **named})
        self.loop = SimLoop(seed=seed)
        self.topics = StageTopics({"orders": bytes([7] * 16)})
        self.surroundings = GroupSurroundings(
            clock=self.loop.clock,
            loop=self.loop,
            entropy=SimEntropy(seed),
            settings=lambda: self.settings,
            topics=self.topics,
        )
        self.journal = StageJournal(self.loop)
        self.shard = GroupShard(self.journal, self.surroundings)
        self.shard.start()

    def move(self, count: int | None = None) -> None:
        """Another broker looks after the groups from here on, with what was written, or with so
        much of it as it has. What was not committed before is answered by the one that goes."""
        self.shard.stop()
        before, written = self.journal, self.journal.written[:count]
        assert len(written) >= before.committed_count
        self.journal = StageJournal(self.loop)
        self.journal.written = list(written)
        self.journal.committed_count = len(written)
        before.refusal = KafkaError(ErrorCode.not_leader_or_follower, "another leads it")
        before.release(before.refusal)
        self.shard = GroupShard(self.journal, self.surroundings)
        for entry, origin in written:
            self.shard.replay(entry, origin)
        self.shard.start()

    def wait(self, duration_ms: int) -> None:
        self.loop.run_for(duration_ms)

    def group(self, group_id: str = "g") -> ClassicGroup:
        return self.shard.find_classic(group_id)

    # -- committing without a group

    def commit(
        self, *commits: Commit, who: Identity | None = None, version: int = 9, **more: Any
    ) -> list[ErrorCode]:
        """What became of offsets that are committed; of one that is not told yet, nothing."""
        codes: list[list[ErrorCode]] = []
        try:
            self.shard.committing.commit(
                who or Identity("g", ""), commits, codes.append, version=version, **more
            )
        except KafkaError as error:
            return [error.code]
        return codes[0] if codes else []

    def committed(self, topic: str = "orders", partition: int = 0, group_id: str = "g") -> int:
        """-1 if there is none."""
        kept = self.shard.offsets.of_group(group_id).get(topic, {}).get(partition)
        return -1 if kept is None else kept.value.offset


def subscription(*topics: str) -> bytes:
    """What a consumer says to the others of its group."""
    said = b"".join(len(name).to_bytes(2, "big") + name.encode() for name in topics)
    return b"\0\1" + len(topics).to_bytes(4, "big") + said + b"\xff\xff\xff\xff"


class Member:
    """A client, as far as a group knows it."""

    def __init__(self, stage: Stage, name: str = "client", **join: Any) -> None:
        self.stage = stage
        self.member_id = ""
        self.generation = -1
        self.joins: list[Joined] = []
        self.syncs: list[Synced] = []
        self.join_values: dict[str, Any] = {
            "group_id": "g",
            "client_id": name,
            "client_host": "/10.0.0.1",
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 60_000,
            "protocol_type": "consumer",
            "protocols": (("range", subscription("orders")),),
            **join,
        }

    @property
    def instance_id(self) -> str | None:
        found = self.join_values.get("instance_id")
        assert found is None or isinstance(found, str)
        return found

    @property
    def identity(self) -> Identity:
        group_id = self.join_values["group_id"]
        return Identity(group_id, self.member_id, self.instance_id, self.generation)

    def code(self) -> ErrorCode | None:
        """Of the last answer to a join, if there is one."""
        return self.joins[-1].code if self.joins else None

    @property
    def told(self) -> ErrorCode | None:
        return self.code()

    def ask_to_join(self, **changed: Any) -> None:
        self.join_values |= changed
        join = Join(member_id=self.member_id, **self.join_values)
        self.stage.shard.join(join, self._joined)
        self.stage.loop.run_for(0)

    def join(self, **changed: Any) -> "Member":
        """Joins as a client does: with the id that it is given."""
        self.ask_to_join(**changed)
        if self.code() is ErrorCode.member_id_required:
            self.joins.clear()
            self.ask_to_join()
        return self

    def _joined(self, joined: Joined) -> None:
        self.joins.append(joined)
        if joined.code in (ErrorCode.none, ErrorCode.member_id_required):
            self.member_id = joined.member_id
            self.generation = joined.generation

    def sync(self, assignments: dict[str, bytes] | None = None, **more: Any) -> "Member":
        sync = Sync(who=self.identity, assignments=assignments or {})
        self.stage.shard.sync(replace(sync, **more), self.syncs.append)
        self.stage.loop.run_for(0)
        return self

    def heartbeat(self) -> ErrorCode | None:
        """None if it is not answered yet."""
        codes: list[ErrorCode] = []
        self.stage.shard.heartbeat(self.identity, codes.append)
        self.stage.loop.run_for(0)
        return codes[0] if codes else None

    def leave(self) -> ErrorCode | None:
        told = leave(self.stage, Leaving(self.member_id, self.instance_id))
        return told[0] if told else None

    def commit(self, offset: int, topic: str = "orders", partition: int = 0) -> ErrorCode:
        topic_id = self.stage.topics.ids.get(topic, bytes(16))
        commit = Commit(topic, topic_id, partition, offset)
        (code,) = self.stage.commit(commit, who=self.identity)
        return code


def leave(stage: Stage, *leaving: Leaving, group_id: str = "g") -> list[ErrorCode]:
    codes: list[list[ErrorCode]] = []
    stage.shard.leave(group_id, leaving, codes.append)
    stage.loop.run_for(0)
    return codes[0] if codes else []


def settle(stage: Stage, *members: Member) -> None:
    """Has members join until they are a stable group, the first of them first."""
    for member in members:
        member.joins.clear()
        member.syncs.clear()
        member.join()
    stage.wait(10)
    for member in members:
        is_waiting = stage.group().members[member.member_id].joining is not None
        if stage.group().state_name == "PreparingRebalance" and not is_waiting:
            member.join()
    stage.wait(10)
    assert [member.code() for member in members] == [ErrorCode.none] * len(members)
    leader = next(m for m in members if m.member_id == m.joins[-1].leader)
    work = {m.member_id: f"work of {m.member_id}".encode() for m in members}
    leader.sync(work)
    for member in members:
        if member is not leader:
            member.sync()
    stage.wait(10)
    assert stage.group().state_name == "Stable"
    assert [member.syncs[-1].assignment for member in members] == [
        work[member.member_id] for member in members
    ]
