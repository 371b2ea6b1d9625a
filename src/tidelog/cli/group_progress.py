"""How far groups are: what they have committed, where the partitions end, and who reads them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tidelog.base.errors import KafkaError
from tidelog.base.ids import TopicPartition
from tidelog.client.client import Client
from tidelog.client.cluster import NO_LEADER, Cluster
from tidelog.client.groups import Group, Member
from tidelog.client.offsets import LATEST, Committed, committed_by_groups, list_many_offsets


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    partition: TopicPartition
    committed: Committed | None
    log_end: int | None
    """None of a partition that nobody leads, or that is not there any more."""
    member: Member | None

    @property
    def lag(self) -> int | None:
        if self.committed is None or self.log_end is None:
            return None
        return self.log_end - self.committed.offset


def progress_of(client: Client, groups: Iterable[Group]) -> dict[str, list[Progress]]:
    """By group: first what members read, those with most partitions first, then the rest."""
    found = {group.group_id: group for group in groups}
    committed = {
        name: _or_raise(offsets) for name, offsets in committed_by_groups(client, found).items()
    }
    readers = {name: _readers(group) for name, group in found.items()}
    asked = {one for name in found for one in (*committed[name], *readers[name])}
    ends = _log_ends(client, client.cluster(sorted({one.topic for one in asked})), asked)
    return {
        name: [
            Progress(
                partition=one,
                committed=committed[name].get(one),
                log_end=ends.get(one),
                member=readers[name].get(one),
            )
            for one in (*readers[name], *_unread(committed[name], readers[name]))
        ]
        for name in found
    }


def _unread(
    committed: Mapping[TopicPartition, Committed], readers: Mapping[TopicPartition, Member]
) -> list[TopicPartition]:
    """What was committed by members of the past."""
    return [one for one in committed if one not in readers]


def _readers(group: Group) -> dict[TopicPartition, Member]:
    members = sorted(group.members, key=lambda one: (-len(one.assignment), one.member_id))
    return {one: member for member in members for one in member.assignment}


def _log_ends(
    client: Client, cluster: Cluster, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, int]:
    led = {
        TopicPartition(topic.name, partition.index)
        for topic in cluster.topics.values()
        for partition in topic.partitions
        if partition.leader != NO_LEADER
    }
    return list_many_offsets(client, {one: LATEST for one in sorted(partitions) if one in led})


def _or_raise(
    offsets: dict[TopicPartition, Committed] | KafkaError,
) -> dict[TopicPartition, Committed]:
    if isinstance(offsets, KafkaError):
        raise offsets
    return offsets
