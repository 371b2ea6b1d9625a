"""A long life of a simulated cluster, drawn from a seed: topics come, grow, move and go, settings
change, leaders change ISRs, and meanwhile brokers, sessions, connections and messages fail."""

from collections.abc import Callable
from typing import Any

from support.agreement import controllers, topics_in_tree
from support.members import Cluster, Member
from tidelog.base.errors import KafkaError
from tidelog.base.ids import TopicIdPartition
from tidelog.cluster.image import NO_LEADER, PartitionInfo, TopicInfo
from tidelog.cluster.isr_change import expanded
from tidelog.cluster.isr_writes import IsrWriter
from tidelog.cluster.requests import ConfigChange, NewTopic, Reassignment
from tidelog.world.sim.coordination import CoordinationFaults

BROKERS = 4


class Story:
    def __init__(self, seed: int) -> None:
        self.cluster = Cluster(seed)
        self._draws = self.cluster.loop.choices.stream("story")
        self.members = [self.cluster.started(number) for number in range(BROKERS)]
        self.made: set[str] = set()
        self.deleted: set[str] = set()
        self.altered: dict[str, str] = {}
        self._epochs: dict[tuple[bytes, int], tuple[int, int, int]] = {}
        self._number = 0

    # -- telling it

    def step(self) -> None:
        self._fault(self._draws.randint(0, 11))
        for member in controllers(self.members)[:1]:
            self._ask(member, self._draws.randint(0, 7))
        self._expand()
        self.cluster.loop.run_for(self._draws.randint(1, 4000))
        self._check_epochs()

    def heal(self) -> None:
        self.cluster.exchange.faults.lost = self.cluster.exchange.faults.late = 0.0
        self.cluster.exchange.cut.clear()
        # Whoever was about to stop has done so by then.
        self.cluster.loop.run_for(60_000)
        for number, member in enumerate(self.members):
            member.coordination.faults = CoordinationFaults()
            if member.is_dead:
                self.members[number] = self.cluster.started(number)

    def catch_up(self) -> None:
        """Leaders take everybody in who follows them, until nothing is left to do."""
        for _ in range(30):
            self._expand()
            self.cluster.loop.run_for(4000)
            self._check_epochs()

    # -- requests

    def _ask(self, member: Member, kind: int) -> None:
        metadata, draws = member.metadata, self._draws
        known = sorted(topics_in_tree(self.cluster).keys() - self.deleted)
        if kind <= 1 or not known:
            self._number += 1
            new = NewTopic(
                name=f"t{self._number}",
                partition_count=draws.randint(1, 3),
                replication_factor=draws.randint(1, max(1, min(3, len(metadata.image.brokers)))),
            )
            metadata.create_topics([new], False, self._noting(self.made.add))
            return
        name = draws.choice(known)
        if kind == 2:
            self.deleted.add(name)
            self.altered.pop(name, None)
            metadata.delete_topics([name], _ignore)
        elif kind == 3:
            metadata.create_partitions([(name, draws.randint(1, 6), None)], False, _ignore)
        elif kind in (4, 5):
            replicas = tuple(draws.sample(range(BROKERS), draws.randint(1, 3)))
            target = None if draws.random() < 0.2 else replicas
            moved = [Reassignment(topic=name, partition=0, replicas=target)]
            metadata.alter_reassignments(moved, _ignore)
        elif kind == 6:
            metadata.elect_leaders("preferred", None, _ignore)
        else:
            self._alter(draws.choice([m for m in self.members if not m.is_dead]), name)

    def _alter(self, member: Member, name: str) -> None:
        value = str(self._draws.randint(1, 10**6))
        change = ConfigChange(kind="topic", name=name, changes={"retention.ms": ("set", value)})

        def altered(results: list[KafkaError | None]) -> None:
            if results == [None]:
                self.altered[name] = value

        member.metadata.alter_configs([change], False, altered)

    def _noting(self, note: Callable[[str], None]) -> Callable[[list[Any]], None]:
        def answered(results: list[TopicInfo | KafkaError]) -> None:
            for topic in results:
                if isinstance(topic, TopicInfo):
                    note(topic.name)

        return answered

    # -- what leaders do

    def _expand(self) -> None:
        by_id = {member.metadata.broker_id: member for member in self.members}
        for topic in topics_in_tree(self.cluster).values():
            for index, partition in enumerate(topic.partitions):
                leader = by_id.get(partition.leader)
                if leader is not None and not leader.is_dead:
                    self._expand_one(by_id, leader, topic, index, partition)

    def _expand_one(
        self,
        by_id: dict[int, Member],
        leader: Member,
        topic: TopicInfo,
        index: int,
        partition: PartitionInfo,
    ) -> None:
        """Only one that follows this leader in this epoch, under its epoch now."""
        state = leader.host.states.get((topic.topic_id, index))
        if state is None or state.leader_epoch != partition.leader_epoch:
            return
        for number in partition.replicas:
            follower = by_id[number]
            known = follower.host.states.get((topic.topic_id, index))
            epoch = follower.metadata.broker_epoch
            follows = known is not None and known.leader_epoch == partition.leader_epoch
            if number not in partition.isr and follows and not follower.is_dead and epoch != -1:
                after = expanded(partition, number, epoch, 1)
                writer = IsrWriter(leader.coordination)
                name = TopicIdPartition(topic.topic_id, topic.name, index)
                writer.write(name, partition, after, _ignore)
                leader.metadata.isr_changed(topic.name, index)
                return

    # -- what goes wrong

    def _fault(self, kind: int) -> None:
        cluster, draws = self.cluster, self._draws
        number = draws.randrange(BROKERS)
        member, other = self.members[number], self.members[draws.randrange(BROKERS)]
        has_spare = sum(not m.is_dead for m in self.members) > 2 and not member.is_dead
        if kind == 0 and has_spare:
            cluster.kill(member)
        elif kind == 1 and has_spare:
            member.die()
        elif kind in (2, 3, 4) and member.is_dead:
            self.members[number] = cluster.member(number)
            self.members[number].begin(_ignore)
        elif kind == 5 and not member.is_dead:
            member.coordination.expire()
        elif kind == 6 and not member.is_dead:
            member.coordination.lose_connection(away_ms=draws.choice((10, 1000, 25_000)))
        elif kind == 7:
            ids = frozenset((member.metadata.broker_id, other.metadata.broker_id))
            cluster.exchange.cut ^= {ids} if len(ids) == 2 else set()
        elif kind == 8:
            cluster.exchange.faults.lost = draws.choice((0.0, 0.1, 0.4))
            cluster.exchange.faults.late = draws.choice((0.0, 0.1, 0.4))
        elif kind == 9:
            member.coordination.faults = CoordinationFaults(lost_before=0.02, lost_after=0.02)
        elif kind == 10 and has_spare:
            member.metadata.leave(lambda: cluster.kill(member) if not member.is_dead else None)

    # -- what must hold at any time

    def _check_epochs(self) -> None:
        """V9: no leader epoch and no version falls, and one epoch has one leader; V10."""
        for topic in topics_in_tree(self.cluster).values():
            for number, partition in enumerate(topic.partitions):
                now = (partition.leader_epoch, partition.state_version, partition.leader)
                was = self._epochs.get((topic.topic_id, number), now)
                assert now[:2] >= was[:2], "V9: nothing falls"
                assert now[0] > was[0] or now[2] == was[2], "V9: one epoch, one leader"
                self._epochs[topic.topic_id, number] = now
                if partition.leader != NO_LEADER:
                    assert partition.leader in partition.isr, "V10"
                assert set(partition.isr) <= set(partition.replicas), "V10"


def _ignore(_result: object) -> None:
    """Whatever it was: the end of the story is looked at."""
