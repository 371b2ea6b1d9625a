"""A group that changes its protocol while it runs.

When a member of the newer protocol joins a classic group of consumers, the group becomes one of the
newer protocol: its members stay what they are, have what they have, and are served by the broker in
the protocol they speak. When the last member of the newer protocol has left, the group becomes
classic again. Both are entries in the journal: the end of the one, and the other.
"""

from collections.abc import Collection

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.base.journal import Entry
from tidelog.groups import consumer_records as records
from tidelog.groups.assignors import Assignment
from tidelog.groups.classic_group import ClassicGroup
from tidelog.groups.classic_member import ClassicMember
from tidelog.groups.consumer_group import ConsumerGroup
from tidelog.groups.consumer_member import ClassicSide, Held, Member
from tidelog.groups.consumer_protocol import (
    BUILT_IN,
    Partitions,
    read_assignment,
    read_subscription,
    user_data_of,
    write_assignment,
)
from tidelog.groups.consumer_records import EpochValue
from tidelog.groups.records import GroupValue, MemberValue, write_group_key, write_group_value
from tidelog.groups.subscriptions import CONSUMER
from tidelog.groups.surroundings import GroupSurroundings, TopicView

# -- what may be


def can_upgrade(group: ClassicGroup, surroundings: GroupSurroundings) -> bool:
    settings = surroundings.settings()
    policy = settings.text("group.consumer.migration.policy")
    size_max = settings.whole("group.consumer.max.size")
    is_wanted = policy in ("upgrade", "bidirectional")
    return is_wanted and group.protocol_type == CONSUMER and len(group.members) <= size_max


def can_downgrade(
    group: ConsumerGroup, leaving: Collection[str], surroundings: GroupSurroundings
) -> bool:
    """Whether those who stay all speak the classic protocol, and may be on their own."""
    settings = surroundings.settings()
    policy = settings.text("group.consumer.migration.policy")
    if policy not in ("downgrade", "bidirectional"):
        return False
    stay = [member for member in group.members.values() if member.member_id not in leaving]
    size_max = settings.whole("group.max.size")
    is_classic = all(member.classic is not None for member in stay)
    return bool(stay) and is_classic and len(stay) <= size_max


# -- from classic


def upgraded(group: ClassicGroup, topics: TopicView) -> ConsumerGroup:
    """The group as it goes on: everyone has what the last generation gave them."""
    new = ConsumerGroup(group.group_id)
    new.epoch = new.target_epoch = group.generation
    for member in group.members.values():
        try:
            upgraded_member = _upgraded(member, group, topics)
        except KafkaError as error:
            raise KafkaError(
                ErrorCode.group_id_not_found,
                f"{group.group_id} cannot go on with the newer protocol because of "
                f"{member.member_id}: {error.message}",
            ) from error
        new.put_member(upgraded_member)
        held = upgraded_member.held
        new.targets[member.member_id] = {found: tuple(sorted(held[found])) for found in held}
    return new


def _upgraded(member: ClassicMember, group: ClassicGroup, topics: TopicView) -> Member:
    """All that it said is looked at: the first of it will be needed to answer it."""
    said = {name: read_subscription(metadata) for name, metadata in member.protocols}
    subscription = said.get(group.protocol or "", said[member.protocols[0][0]])
    if group.protocol not in BUILT_IN and user_data_of(member.assignment):
        raise KafkaError(
            ErrorCode.unsupported_version, f"what {group.protocol} tells members would be lost"
        )
    held = by_id(read_assignment(member.assignment), topics)
    return Member(
        member_id=member.member_id,
        epoch=group.generation,
        previous_epoch=group.generation,
        instance_id=member.instance_id,
        rack_id=subscription.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topics=tuple(sorted(set(subscription.topics))),
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        held={found: dict.fromkeys(held[found], group.generation) for found in held},
        classic=ClassicSide(member.session_timeout_ms, member.protocols),
    )


def upgrade_entries(group: ClassicGroup, new: ConsumerGroup) -> list[Entry]:
    group_id = group.group_id
    return [
        *group.tombstones(),
        *(records.member_entry(group_id, member) for member in new.members.values()),
        records.group_entry(group_id, EpochValue(new.epoch)),
        *(records.target_entry(group_id, found, new.targets[found]) for found in new.targets),
        records.target_epoch_entry(group_id, new.target_epoch),
        *(records.current_entry(group_id, member) for member in new.members.values()),
    ]


# -- back to classic


def downgrade_entries(
    group: ConsumerGroup, leaving: Collection[str], topics: TopicView, now_ms: int
) -> list[Entry]:
    stay = [member for member in group.members.values() if member.member_id not in leaving]
    protocol = _common_protocol(stay)
    value = GroupValue(
        protocol_type=CONSUMER,
        generation=group.epoch,
        protocol=protocol,
        leader=stay[0].member_id,
        state_time_ms=now_ms,
        members=tuple(_downgraded(member, protocol, topics) for member in stay),
    )
    entry = Entry(write_group_key(group.group_id), write_group_value(value))
    return [*group.tombstones(), entry]


def _common_protocol(members: list[Member]) -> str:
    """The dearest of the first member among those that all can do; members of one group always
    have one in common."""
    counts: dict[str, int] = {}
    for member in members:
        for name, _ in classic_side(member).protocols:
            counts[name] = counts.get(name, 0) + 1
    return next(name for name, count in counts.items() if count == len(members))


def _downgraded(member: Member, protocol: str, topics: TopicView) -> MemberValue:
    classic = classic_side(member)
    return MemberValue(
        member_id=member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        session_timeout_ms=classic.session_timeout_ms,
        subscription=dict(classic.protocols)[protocol],
        assignment=assignment_of(member, topics),
    )


# -- both


def classic_side(member: Member) -> ClassicSide:
    assert member.classic is not None, f"{member.member_id} speaks the newer protocol"
    return member.classic


def assignment_of(member: Member, topics: TopicView) -> bytes:
    """What a member that speaks the classic protocol has, as it is told."""
    version = read_subscription(classic_side(member).protocols[0][1]).version
    return write_assignment(version, by_name(member.held, topics))


def by_name(held: Held, topics: TopicView) -> Partitions:
    """Topics that are gone are left out."""
    found = {}
    for topic_id, partitions in held.items():
        name = topics.name_of(topic_id)
        if name is not None:
            found[name] = tuple(sorted(partitions))
    return found


def by_id(partitions: Partitions, topics: TopicView) -> Assignment:
    found = {}
    for name in partitions:
        topic_id = topics.topic_id(name)
        if topic_id is not None and partitions[name]:
            found[topic_id] = partitions[name]
    return found
