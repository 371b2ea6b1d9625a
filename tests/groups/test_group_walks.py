"""Groups under random members, timeouts, failed writes and changing coordinators, from a seed.

Members behave as clients do and sometimes do not. Throughout, V15 holds: once a member was told
what to do in a generation, no commit of an earlier one succeeds; what was acknowledged last is what
is found, unless something that was not acknowledged came after it. And when all is well again, the
group is stable (H7).
"""

from random import Random
from typing import Any

import pytest

from support.group_stage import Member, Stage
from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.groups.classic_group import ClassicGroup, State
from tidelog.groups.requests import Commit, Identity, Joined

SEEDS = range(40)
STEPS = 250
PARTITIONS = 3


class Client(Member):
    """Joins, asks what to do, and begins anew where it is told to."""

    def __init__(self, stage: Stage, walk: "Walk", **join: Any) -> None:
        super().__init__(stage, **join)
        self.walk = walk
        self.is_waiting = False

    def step(self) -> None:
        if self.is_waiting:
            return
        if self.generation < 0 or self.heartbeat() not in (None, ErrorCode.none):
            self._begin()

    def _begin(self) -> None:
        self.is_waiting = True
        self.generation = -1
        count = len(self.joins)
        self.ask_to_join()
        assert len(self.joins) <= count + 1

    def _joined(self, joined: Joined) -> None:
        super()._joined(joined)
        self.is_waiting = False
        last = self.joins[-1]
        if last.code is ErrorCode.none:
            self.is_waiting = True
            work = {member.member_id: b"work" for member in last.members}
            self._ask(work)
        elif last.code in (ErrorCode.unknown_member_id, ErrorCode.fenced_instance_id):
            self.member_id = ""

    def _ask(self, work: dict[str, bytes]) -> None:
        generation, count = self.generation, len(self.syncs)
        self.sync(work)
        if len(self.syncs) > count:
            self.synced(generation)
        else:
            self.walk.asked.append((self, generation, count))

    def synced(self, generation: int) -> None:
        self.is_waiting = False
        if self.syncs[-1].code is ErrorCode.none:
            self.walk.newest_told = max(self.walk.newest_told, generation)
        else:
            self.generation = -1


class Walk:
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.stage = Stage(seed, group_initial_rebalance_delay_ms=self.random.choice((0, 3000)))
        self.clients: list[Client] = []
        self.asked: list[tuple[Client, int, int]] = []
        self.newest_told = 0
        self.acked: dict[int, int] = {}
        self.maybe: dict[int, set[int]] = {}
        self.next_offset = 0

    def run(self) -> None:
        for _ in range(STEPS):
            self.random.choice(
                (
                    self.join,
                    self.step,
                    self.step,
                    self.step,
                    self.leave,
                    self.vanish,
                    self.commit,
                    self.commit,
                    self.stale_commit,
                    self.wait,
                    self.wait,
                    self.hold,
                    self.release,
                    self.move,
                )
            )()
            self.notice()
            self.check()

    def notice(self) -> None:
        """Those who waited for the leader and have been told."""
        still = []
        for client, generation, count in self.asked:
            if len(client.syncs) > count:
                client.synced(generation)
            else:
                still.append((client, generation, count))
        self.asked = still

    # -- what happens

    def join(self) -> None:
        if len(self.clients) < 6:
            number = self.random.randint(0, 20)
            instance_id = f"i{number}" if number < 3 else None
            client = Client(
                self.stage,
                self,
                instance_id=instance_id,
                session_timeout_ms=self.random.choice((6000, 10_000)),
                rebalance_timeout_ms=self.random.choice((5000, 60_000)),
            )
            self.clients.append(client)
            client.step()

    def step(self) -> None:
        for client in self.clients:
            client.step()

    def leave(self) -> None:
        if self.clients and self.random.random() < 0.4:
            client = self.clients.pop(self.random.randrange(len(self.clients)))
            client.leave()

    def vanish(self) -> None:
        if self.clients and self.random.random() < 0.3:
            self.clients.pop(self.random.randrange(len(self.clients)))

    def commit(self) -> None:
        if self.clients:
            self._commit(self.random.choice(self.clients).identity)

    def stale_commit(self) -> None:
        if self.clients:
            who = self.random.choice(self.clients).identity
            self._commit(who._replace(generation=who.generation - 1))

    def _commit(self, who: Identity) -> None:
        partition, offset = self.random.randrange(PARTITIONS), self.next_offset
        self.next_offset += 1
        journal, is_committed = self.stage.journal, self.stage.journal.is_held
        told_before = self.newest_told

        def answered(codes: list[ErrorCode]) -> None:
            self.maybe.setdefault(partition, set()).discard(offset)
            if codes == [ErrorCode.none]:
                assert who.generation < 0 or who.generation >= told_before, "V15: it was fenced"
                self.acked[partition] = max(offset, self.acked.get(partition, -1))
            elif is_committed:
                self.maybe[partition].add(offset)

        self.maybe.setdefault(partition, set()).add(offset)
        commit = Commit("orders", self.stage.topics.ids["orders"], partition, offset)
        try:
            self.stage.shard.committing.commit(who, [commit], answered, version=9)
        except KafkaError:
            self.maybe[partition].discard(offset)
        assert journal is self.stage.journal

    def wait(self) -> None:
        self.stage.wait(self.random.choice((1, 50, 1000, 4000)))

    def hold(self) -> None:
        self.stage.journal.is_held = True

    def release(self) -> None:
        late = KafkaError(ErrorCode.request_timed_out, "not in time")
        self.stage.journal.release(late if self.random.random() < 0.3 else None)
        self.stage.wait(1)

    def move(self) -> None:
        if self.random.random() < 0.5:
            journal = self.stage.journal
            low, high = journal.committed_count, len(journal.written)
            self.stage.move(self.random.randint(low, high))
            self.stage.wait(1)

    # -- what holds

    def check(self) -> None:
        for partition, offset in self.acked.items():
            found = self.stage.committed(partition=partition)
            allowed = {offset, *self.maybe.get(partition, ())}
            assert found in allowed, f"acknowledged {offset}, found {found}"
        group = self.stage.shard.groups.get("g")
        if isinstance(group, ClassicGroup):
            check_group(group)

    def heal(self) -> None:
        self.stage.journal.release()
        self.stage.wait(1)
        for _ in range(400):
            self.stage.wait(500)
            self.step()
            self.notice()
            group = self.stage.shard.groups.get("g")
            is_stable = isinstance(group, ClassicGroup) and group.state is State.STABLE
            if is_stable and all(client.generation >= 0 for client in self.clients):
                return
        raise AssertionError("H7: the group did not become stable")


def check_group(group: ClassicGroup) -> None:
    members = group.members
    assert group.joining_count == sum(m.joining is not None for m in members.values())
    assert group.leader is None or group.leader in members
    assert bool(members) or group.state in (State.EMPTY, State.PREPARING)
    assert set(group.unsynced) <= set(members)
    assert group.member_ids == {
        m.instance_id: m.member_id for m in members.values() if m.instance_id is not None
    }
    for member in members.values():
        assert member.syncing is None or group.state is State.COMPLETING
        assert member.heartbeat.is_set or member.is_heard_of


@pytest.mark.parametrize("seed", SEEDS)
def test_groups_hold_whatever_happens(seed: int) -> None:
    walk = Walk(seed)
    walk.run()
    if not walk.clients:
        walk.join()
    walk.heal()
