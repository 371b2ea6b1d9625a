"""Who is to read which partitions: the assignors of the newer group protocol.

An assignor is a pure function of the members of a group and of the topics they subscribe to. It
gives every partition of a topic to exactly one of the topic's subscribers. `range` cuts each topic
into contiguous pieces, the same for all topics where the same members subscribe to all of them;
`uniform` evens out how many partitions members have, and leaves all it can where it is.
"""

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from tidelog.groups.uniform_assignor import assign_uniformly

Assignment = Mapping[bytes, tuple[int, ...]]
"""Partitions by topic id, in order; no topic without partitions."""


class Subscriber(NamedTuple):
    """A member, as an assignor sees it."""

    topics: tuple[bytes, ...]
    """The ids of the topics it wants, sorted; only such as there are."""
    assigned: Assignment
    """What it was to read until now."""
    instance_id: str | None = None


Assignor = Callable[[Mapping[str, Subscriber], Mapping[bytes, int]], dict[str, Assignment]]
"""Of the members by id, and of the number of partitions of each topic that one of them wants."""


def assign_uniform(
    members: Mapping[str, Subscriber], partition_counts: Mapping[bytes, int]
) -> dict[str, Assignment]:
    topics = {member_id: member.topics for member_id, member in members.items()}
    assigned = {member_id: member.assigned for member_id, member in members.items()}
    return dict(assign_uniformly(topics, assigned, partition_counts))


def assign_range(
    members: Mapping[str, Subscriber], partition_counts: Mapping[bytes, int]
) -> dict[str, Assignment]:
    in_order = sorted(members, key=lambda member_id: _rank(member_id, members[member_id]))
    subscribers: dict[bytes, int] = {}
    for member_id in in_order:
        for topic in members[member_id].topics:
            subscribers[topic] = subscribers.get(topic, 0) + 1
    served = dict.fromkeys(subscribers, 0)
    assignments: dict[str, Assignment] = {}
    for member_id in in_order:
        assignment = {}
        for topic in members[member_id].topics:
            piece = _piece(partition_counts[topic], subscribers[topic], served[topic])
            served[topic] += 1
            if piece:
                assignment[topic] = tuple(piece)
        assignments[member_id] = assignment
    return assignments


def _rank(member_id: str, member: Subscriber) -> tuple[bool, str]:
    """Static members come first, by the name that stays theirs, so that they keep their place."""
    return (member.instance_id is None, member.instance_id or member_id)


def _piece(partition_count: int, subscriber_count: int, position: int) -> range:
    """The first subscribers get one more, if it does not come out even."""
    size, extra = divmod(partition_count, subscriber_count)
    first = position * size + min(position, extra)
    return range(first, first + size + (position < extra))


ASSIGNORS: Final[Mapping[str, Assignor]] = {"uniform": assign_uniform, "range": assign_range}
