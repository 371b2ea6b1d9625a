"""The journal of a group, as tests with real members read it: what is wrong in it is noticed."""

import pytest

from support.group_journal import Record, check_commits, given, owned, partitions_of
from tidelog.groups.consumer_member import Member
from tidelog.groups.consumer_protocol import write_assignment
from tidelog.groups.consumer_records import CURRENT, current_entry, tombstone
from tidelog.groups.records import (
    GroupValue,
    MemberValue,
    OffsetKey,
    OffsetValue,
    write_group_key,
    write_group_value,
    write_offset_key,
    write_offset_value,
)

GROUP = "readers"
TOPIC = "orders"
TOPIC_ID = b"t" * 16
ALL = [0, 1, 2]


def commit(partition: int, offset: int, group: str = GROUP, topic: str = TOPIC) -> Record:
    key = write_offset_key(OffsetKey(group, topic, partition))
    return key, write_offset_value(OffsetValue(offset))


def generation(number: int, group: str = GROUP, **shares: tuple[int, ...]) -> Record:
    members = tuple(
        MemberValue(
            member_id=member_id,
            instance_id=None,
            client_id="",
            client_host="",
            rebalance_timeout_ms=0,
            session_timeout_ms=0,
            subscription=b"",
            assignment=write_assignment(0, {TOPIC: share}),
        )
        for member_id, share in shares.items()
    )
    value = GroupValue(
        protocol_type="consumer",
        generation=number,
        protocol="range",
        leader=None,
        state_time_ms=0,
        members=members,
    )
    return write_group_key(group), write_group_value(value)


def step(
    member_id: str, held: tuple[int, ...], revoking: tuple[int, ...] = (), group: str = GROUP
) -> Record:
    member = Member(
        member_id=member_id,
        held={TOPIC_ID: dict.fromkeys(held, 1)},
        revoking={TOPIC_ID: dict.fromkeys(revoking, 1)},
    )
    entry = current_entry(group, member)
    return entry.key, entry.value


def gone(member_id: str) -> Record:
    entry = tombstone(CURRENT, GROUP, member_id)
    return entry.key, entry.value


# -- commits


def test_commits_that_grow_in_each_partition_are_right() -> None:
    deleted = (commit(0, 0)[0], None)
    records = [commit(0, 5), commit(1, 2), commit(0, 5), commit(0, 7), deleted]
    assert check_commits(records, GROUP) == {(TOPIC, 0, 5), (TOPIC, 1, 2), (TOPIC, 0, 7)}


def test_a_commit_that_goes_back_is_noticed() -> None:
    with pytest.raises(AssertionError, match="orders-0: from 5 back to 4"):
        check_commits([commit(0, 5), commit(1, 2), commit(0, 4)], GROUP)


def test_commits_of_other_groups_do_not_count_and_topics_are_told_apart() -> None:
    others = [commit(0, 4, group="others"), commit(0, 3, topic="bills")]
    assert check_commits([commit(0, 5), *others], GROUP) == {(TOPIC, 0, 5), ("bills", 0, 3)}


def test_a_journal_without_a_commit_is_noticed() -> None:
    with pytest.raises(AssertionError, match="commits are in the journal"):
        check_commits([commit(0, 5, group="others"), generation(1, a=(0, 1, 2))], GROUP)


# -- classic groups


def test_generations_are_read_with_what_each_member_was_given() -> None:
    records = [
        commit(0, 5),
        generation(1, a=(0, 1, 2)),
        generation(9, group="others", z=(0,)),
        generation(2, a=(0, 2), b=(1,)),
        generation(3),
        (write_group_key(GROUP), None),
    ]
    first, second, empty = given(records, GROUP, TOPIC)
    assert dict(first) == {"a": (0, 1, 2)}
    assert dict(second) == {"a": (0, 2), "b": (1,)}
    assert (partitions_of(first), partitions_of(second), partitions_of(empty)) == (ALL, ALL, [])


def test_a_partition_that_two_members_of_a_generation_were_given_is_noticed() -> None:
    records = [generation(1, a=(0, 1, 2)), generation(2, a=(0, 1), b=(1, 2))]
    with pytest.raises(AssertionError, match="two owners in generation 2"):
        list(given(records, GROUP, TOPIC))


# -- newer groups


def test_what_members_have_is_read_step_by_step() -> None:
    records = [
        step("a", held=(0, 1, 2)),
        step("z", held=(0,), group="others"),
        step("a", held=(0, 1), revoking=(2,)),
        step("a", held=(0, 1)),
        step("b", held=(2,)),
        gone("a"),
        step("b", held=(0, 1, 2)),
    ]
    seen = list(owned(records, GROUP))
    assert [partitions_of(shares) for shares in seen] == [ALL, ALL, [0, 1], ALL, [2], ALL]
    assert dict(seen[3]) == {"a": (0, 1), "b": (2,)}


@pytest.mark.parametrize(
    "before", [step("a", held=(0, 1, 2)), step("a", held=(0, 1), revoking=(2,))]
)
def test_a_partition_that_is_given_before_another_has_given_it_up_is_noticed(
    before: Record,
) -> None:
    with pytest.raises(AssertionError, match="two owners after a step of b"):
        list(owned([before, step("b", held=(2,))], GROUP))
