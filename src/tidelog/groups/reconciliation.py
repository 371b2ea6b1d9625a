"""One step of a member towards what its group wants it to have.

A member first gives up what it is not to keep, and stays in its epoch until it says that it has.
Then it comes to the epoch of the group, and gets what is free of what it is to have; what others
have not given up yet it waits for. So nothing is ever held by two (V15): a partition is free only
when nobody holds it, and one that is to be given up is held until it has been.

    STABLE --(must give up)--> UNREVOKED --(has)--> STABLE, or UNRELEASED while others hold some
"""

from collections.abc import Callable, Container
from dataclasses import dataclass, replace

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.groups.assignors import Assignment
from tidelog.groups.consumer_member import Held, Member, MemberState

HolderOf = Callable[[bytes, int], str | None]
"""The id of the member that holds a partition, if one does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Aim:
    """What a member is to come to."""

    epoch: int
    target: Assignment
    topic_ids: Container[bytes]
    """Of what it subscribes to: of the rest it is to have nothing, whatever the target says."""


def reconcile(member: Member, aim: Aim, holder_of: HolderOf, owned: Assignment | None) -> Member:
    """The member after the step; itself if there is none to be made. `owned` is what it said just
    now that it has, None if it said nothing."""
    if member.is_reconciled_to(aim.epoch):
        return member
    if member.state is MemberState.UNREVOKED and _has_any(owned, member.revoking):
        return member
    if member.state is MemberState.UNKNOWN and (owned is None or owned):
        raise KafkaError(
            ErrorCode.fenced_member_epoch,
            f"{member.member_id} is in a state that is not known here, it has to join again",
        )
    return _next(member, aim, holder_of, owned)


def _next(member: Member, aim: Aim, holder_of: HolderOf, owned: Assignment | None) -> Member:
    keeps, gives_up = _split(member, aim)
    if gives_up and _has_any(owned, gives_up):
        return replace(
            member,
            state=MemberState.UNREVOKED,
            previous_epoch=member.epoch,
            held=keeps,
            revoking=gives_up,
        )
    waits = False
    gets = {topic_id: dict(partitions) for topic_id, partitions in keeps.items()}
    for topic_id in sorted(aim.target):
        if topic_id not in aim.topic_ids:
            continue
        held = keeps.get(topic_id, {})
        for partition in aim.target[topic_id]:
            if partition in held:
                continue
            if holder_of(topic_id, partition) in (None, member.member_id):
                gets.setdefault(topic_id, {})[partition] = aim.epoch
            else:
                waits = True
    return replace(
        member,
        state=MemberState.UNRELEASED if waits else MemberState.STABLE,
        epoch=aim.epoch,
        previous_epoch=member.epoch,
        held=gets,
        revoking={},
    )


def _split(member: Member, aim: Aim) -> tuple[Held, Held]:
    """What of its partitions a member is to keep, and what to give up."""
    keeps: dict[bytes, dict[int, int]] = {}
    gives_up: dict[bytes, dict[int, int]] = {}
    for topic_id, partitions in member.held.items():
        target = set(aim.target.get(topic_id, ()) if topic_id in aim.topic_ids else ())
        for partition, epoch in partitions.items():
            side = keeps if partition in target else gives_up
            side.setdefault(topic_id, {})[partition] = epoch
    return keeps, gives_up


def _has_any(owned: Assignment | None, held: Held) -> bool:
    """Whether a member has any of these; one that does not say counts as having them."""
    if owned is None:
        return True
    return any(
        partition in held.get(topic_id, {})
        for topic_id, partitions in owned.items()
        for partition in partitions
    )
