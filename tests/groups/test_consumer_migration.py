"""Groups that change between the classic and the newer protocol while they run (A5, V15)."""

from typing import Any

import pytest

from support.consumer_stage import Consumer, add_topic, consumer_stage, find, owners, settle
from support.group_stage import Member, Stage, leave
from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.groups.consumer_protocol import (
    read_assignment,
    read_subscription,
    write_assignment,
)
from tidelog.groups.requests import Leaving

ALL = [("orders", index) for index in range(6)]


def owning(*topics: str, owned: dict[str, tuple[int, ...]] | None = None) -> bytes:
    """What a consumer says that keeps its partitions while it joins again."""
    named = b"".join(len(name).to_bytes(2, "big") + name.encode() for name in topics)
    said = b"\0\1" + len(topics).to_bytes(4, "big") + named + b"\xff\xff\xff\xff"
    return said + write_assignment(0, owned or {})[2:-4]


def new_member(stage: Stage, name: str, **join: Any) -> Member:
    return Member(stage, name, **{"protocols": (("range", owning("orders")),), **join})


def classic_group(stage: Stage, *names: str) -> list[Member]:
    """A stable one, whose leader gave each its share."""
    members = [new_member(stage, name) for name in names]
    for member in members:
        member.join()
    stage.wait(10)
    for member in members:
        if member.told is None or member.generation != stage.group().generation:
            member.join()
    stage.wait(10)
    share = 6 // len(names)
    work = {
        member.member_id: write_assignment(
            1, {"orders": tuple(range(number * share, (number + 1) * share))}
        )
        for number, member in enumerate(members)
    }
    for member in sorted(members, key=lambda m: m.member_id != m.joins[-1].leader):
        member.sync(work if member.member_id == member.joins[-1].leader else None)
    stage.wait(10)
    assert stage.group().state_name == "Stable"
    return members


def partitions(member: Member) -> list[tuple[str, int]]:
    """What a classic member was told last to work on."""
    found = read_assignment(member.syncs[-1].assignment)
    return sorted((topic, index) for topic, indexes in found.items() for index in indexes)


def rejoin(member: Member, keeps: list[tuple[str, int]]) -> None:
    """A cooperative client: it joins with what it has, and syncs."""
    owned = {"orders": tuple(index for _, index in keeps)} if keeps else {}
    member.join(protocols=(("range", owning("orders", owned=owned)),))
    member.sync()


def test_a5_a_member_of_the_newer_protocol_turns_a_classic_group_over() -> None:
    stage = consumer_stage()
    a, b = classic_group(stage, "a", "b")
    generation = stage.group().generation
    new = Consumer(stage, "new").join()
    group = find(stage)
    assert (group.kind, group.epoch) == ("consumer", generation + 1)
    assert new.partitions == [], "the others still have everything"
    assert sorted(group.members) == sorted([a.member_id, b.member_id, "new"])
    held = [p for m in (a, b) for p in group.members[m.member_id].held[stage.topics.ids["orders"]]]
    assert sorted(held) == [0, 1, 2, 3, 4, 5]
    assert a.heartbeat() is ErrorCode.rebalance_in_progress


def test_v15_classic_members_give_up_before_the_new_one_gets() -> None:
    stage = consumer_stage()
    a, b = classic_group(stage, "a", "b")
    has_a, has_b = partitions(a), partitions(b)
    new = Consumer(stage, "new").join()
    rejoin(a, has_a)
    rejoin(b, has_b)
    assert len(partitions(a)) == len(partitions(b)) == 2
    new.beat()
    assert new.partitions == [], "they were told, and have not joined without them yet"
    assert a.heartbeat() is ErrorCode.rebalance_in_progress
    for member in (a, b):
        rejoin(member, partitions(member))
    new.beat()
    assert sorted(partitions(a) + partitions(b) + new.partitions) == ALL
    assert [m.heartbeat() for m in (a, b)] == [ErrorCode.none, ErrorCode.none]
    assert find(stage).state_name == "Stable"


@pytest.mark.parametrize("breaks", ["a member changes", "it cannot be written"])
def test_v15_who_was_told_nothing_in_a_generation_has_what_the_one_before_gave(breaks: str) -> None:
    """A cooperative client keeps it until it is told otherwise, also when a rebalance is broken
    off: the new one waits for it as ever."""
    stage = consumer_stage()
    a, b = classic_group(stage, "a", "b")
    has_a, has_b = partitions(a), partitions(b)
    for member, has in ((a, has_a), (b, has_b)):
        owned = {"orders": tuple(index for _, index in has)}
        member.ask_to_join(protocols=(("range", owning("orders", "more", owned=owned)),))
    stage.wait(10)
    assert stage.group().state_name == "CompletingRebalance"
    if breaks == "a member changes":
        b.ask_to_join(protocols=(("range", owning("orders", "others")),))
    else:
        stage.journal.refusal = KafkaError(ErrorCode.not_enough_replicas, "too few")
        leader = next(m for m in (a, b) if m.member_id == m.joins[-1].leader)
        leader.sync({})
        stage.journal.refusal = None
    assert stage.group().state_name == "PreparingRebalance"
    new = Consumer(stage, "new").join()
    assert find(stage).kind == "consumer"
    assert new.partitions == [], "the others still have everything"
    rejoin(a, has_a)
    rejoin(b, has_b)
    for member in (a, b):
        rejoin(member, partitions(member))
    new.beat()
    assert sorted(partitions(a) + partitions(b) + new.partitions) == ALL


def test_a5_a_classic_member_waits_for_what_others_have_not_given_up() -> None:
    stage = consumer_stage()
    new = Consumer(stage, "new").join()
    a = new_member(stage, "a").join()
    assert (a.told, a.joins[-1].leader, a.joins[-1].members) == (ErrorCode.none, "", ())
    a.sync()
    assert partitions(a) == []
    assert a.heartbeat() is ErrorCode.none, "there is nothing for it to get yet"
    settle(new)
    assert len(new.partitions) == 3
    assert a.heartbeat() is ErrorCode.rebalance_in_progress
    rejoin(a, [])
    assert sorted(partitions(a) + new.partitions) == ALL
    assert a.heartbeat() is ErrorCode.none


def test_a5_the_group_is_classic_again_when_the_last_new_member_leaves() -> None:
    stage = consumer_stage()
    a, b = classic_group(stage, "a", "b")
    new = Consumer(stage, "new").join()
    rejoin(a, partitions(a))
    new.leave()
    group = stage.group()
    assert (group.kind, group.state_name) == ("classic", "PreparingRebalance")
    assert sorted(group.members) == sorted([a.member_id, b.member_id])
    for member in (a, b):
        assert member.heartbeat() in (
            ErrorCode.rebalance_in_progress,
            ErrorCode.illegal_generation,
        )
        member.joins.clear()
        member.ask_to_join()
    stage.wait(10)
    assert [m.told for m in (a, b)] == [ErrorCode.none, ErrorCode.none]
    assert stage.group().state_name == "CompletingRebalance"


@pytest.mark.parametrize("goes", ["leaves", "is silent"])
def test_a5_the_last_new_member_goes_also_if_the_others_are_too_many_for_one_record(
    goes: str,
) -> None:
    """As a classic one the group is one record, which may not fit into a batch. Nobody else would
    get the partitions of a member that cannot go."""
    stage = consumer_stage()
    a, b = classic_group(stage, "a", "b")
    new = Consumer(stage, "new").join()
    rejoin(a, partitions(a))
    stage.journal.bytes_max = 400
    if goes == "leaves":
        new.leave()
        assert new.code is ErrorCode.none
    for _ in range(12):
        stage.wait(4000)
        for member in (a, b):
            member.heartbeat()
    assert new.member_id not in find(stage).members


def test_a5_a_downgraded_group_survives_its_coordinator() -> None:
    stage = consumer_stage()
    (a,) = classic_group(stage, "a")
    new = Consumer(stage, "new").join()
    assert new.commit(5, partition=0) is ErrorCode.none
    new.leave()
    stage.move()
    group = stage.group()
    assert (group.kind, list(group.members)) == ("classic", [a.member_id])
    assert stage.committed() == 5


def test_a5_an_upgraded_group_survives_its_coordinator() -> None:
    stage = consumer_stage()
    a, _ = classic_group(stage, "a", "b")
    new = Consumer(stage, "new").join()
    before = find(stage)
    stage.move()
    assert find(stage).members == before.members
    assert a.heartbeat() is ErrorCode.rebalance_in_progress
    new.beat()
    assert new.code is ErrorCode.none


def test_the_policy_says_whether_groups_change_their_protocol() -> None:
    stage = consumer_stage(group_consumer_migration_policy="downgrade")
    classic_group(stage, "a")
    assert Consumer(stage, "new").join().code is ErrorCode.group_id_not_found
    assert stage.group().kind == "classic"
    stage = consumer_stage(group_consumer_migration_policy="upgrade")
    (a,) = classic_group(stage, "a")
    new = Consumer(stage, "new").join()
    new.leave()
    assert find(stage).kind == "consumer"
    assert list(find(stage).members) == [a.member_id]


def test_a_classic_group_that_is_not_of_consumers_stays_what_it_is() -> None:
    stage = consumer_stage()
    new_member(stage, "a", protocol_type="connect", protocols=(("x", b"?"),)).join()
    stage.wait(10)
    assert Consumer(stage, "new").join().code is ErrorCode.group_id_not_found


def test_a_group_whose_members_cannot_be_read_stays_what_it_is() -> None:
    stage = consumer_stage()
    new_member(stage, "a", protocols=(("range", b"\0\1\0"),)).join()
    stage.wait(10)
    assert Consumer(stage, "new").join().code is ErrorCode.group_id_not_found
    assert stage.group().kind == "classic"


def test_a_group_with_a_member_that_could_not_be_answered_stays_what_it_is() -> None:
    stage = consumer_stage()
    both = (("odd", b"?"), ("range", owning("orders")))
    a, b = new_member(stage, "a", protocols=both), new_member(stage, "b")
    for member in (a, b, a):
        member.join()
        stage.wait(10)
    assert stage.group().protocol == "range"
    assert Consumer(stage, "new").join().code is ErrorCode.group_id_not_found
    assert stage.group().kind == "classic"


def test_a5_a_member_that_does_not_know_the_protocol_of_the_last_generation_goes_along() -> None:
    stage = consumer_stage()
    a = new_member(stage, "a").join()
    stage.wait(10)
    a.sync({})
    both = (("range", owning("orders")), ("sticky", owning("orders")))
    a.ask_to_join(protocols=both)
    stage.wait(10)
    a.ask_to_join(protocols=both[1:])
    Consumer(stage, "new").join()
    assert sorted(find(stage).members) == sorted([a.member_id, "new"])


@pytest.mark.parametrize(("protocol", "kind"), [("own", "classic"), ("sticky", "consumer")])
def test_a_group_whose_own_assignor_tells_members_more_than_partitions_stays_what_it_is(
    protocol: str, kind: str
) -> None:
    stage = consumer_stage()
    a = new_member(stage, "a", protocols=((protocol, owning("orders")),)).join()
    stage.wait(10)
    a.sync({a.member_id: write_assignment(1, {"orders": (0,)})[:-4] + b"\0\0\0\4more"})
    stage.wait(10)
    Consumer(stage, "new").join()
    assert stage.shard.groups["g"].kind == kind


def test_those_who_wait_for_a_generation_are_told_to_join_again_when_the_group_turns() -> None:
    stage = consumer_stage()
    a, b = classic_group(stage, "a", "b")
    a.joins.clear()
    a.ask_to_join(protocols=(("range", owning("orders", "more")),))
    assert not a.joins, "it waits for b"
    Consumer(stage, "new").join()
    stage.wait(0)
    assert [joined.code for joined in a.joins] == [ErrorCode.rebalance_in_progress]
    rejoin(a, [])
    assert a.joins[-1].code is ErrorCode.none
    assert b.heartbeat() is ErrorCode.rebalance_in_progress


def test_a5_classic_members_leave_a_group_of_the_newer_protocol() -> None:
    stage = consumer_stage()
    a, b = classic_group(stage, "a", "b")
    new = Consumer(stage, "new").join()
    unknown = Leaving("nobody")
    assert leave(stage, Leaving(a.member_id), unknown, Leaving("new")) == [
        ErrorCode.none,
        ErrorCode.unknown_member_id,
        ErrorCode.unknown_member_id,
    ]
    assert b.leave() is ErrorCode.none
    settle(new)
    assert owners(new) == ALL


def test_classic_members_that_say_nothing_or_do_not_join_again_are_gone() -> None:
    stage = consumer_stage()
    a, b = classic_group(stage, "a", "b")
    b.join_values["rebalance_timeout_ms"] = 60_000
    new = Consumer(stage, "new").join()
    for _ in range(3):
        stage.wait(4000)
        new.beat()
        b.heartbeat()
    assert a.heartbeat() is ErrorCode.unknown_member_id, "its session is over"
    for _ in range(14):
        stage.wait(4000)
        new.beat()
        b.heartbeat()
    assert b.heartbeat() is ErrorCode.unknown_member_id, "it was told to join, and did not"
    settle(new)
    assert owners(new) == ALL


def test_a5_classic_members_among_themselves_get_partitions_that_are_added() -> None:
    """A group that does not become classic again has nobody left who assigns; theirs are the only
    signs of life from which the broker can see that there is more to read."""
    stage = consumer_stage(group_consumer_migration_policy="upgrade")
    a, b = classic_group(stage, "a", "b")
    Consumer(stage, "new").join().leave()
    for _ in range(2):
        for member in (a, b):
            rejoin(member, partitions(member))
    assert [member.heartbeat() for member in (a, b)] == [ErrorCode.none] * 2
    add_topic(stage, "other", 3)
    assert [member.heartbeat() for member in (a, b)] == [ErrorCode.none] * 2
    add_topic(stage, "orders", 8)
    assert [member.heartbeat() for member in (a, b)] == [ErrorCode.rebalance_in_progress] * 2
    for member in (a, b):
        rejoin(member, partitions(member))
    assert sorted(partitions(a) + partitions(b)) == [*ALL, ("orders", 6), ("orders", 7)]
    assert [member.heartbeat() for member in (a, b)] == [ErrorCode.none] * 2


def test_v15_a_classic_member_of_another_epoch_is_refused() -> None:
    stage = consumer_stage()
    (a,) = classic_group(stage, "a")
    new = Consumer(stage, "new").join()
    rejoin(a, partitions(a))
    rejoin(a, partitions(a))
    settle(new)
    mine, taken = partitions(a)[0][1], new.partitions[0][1]
    a.generation -= 1
    assert a.heartbeat() is ErrorCode.illegal_generation
    assert a.sync().syncs[-1].code is ErrorCode.illegal_generation
    assert a.commit(5, partition=taken) is ErrorCode.illegal_generation
    a.generation += 1
    assert a.commit(6, partition=mine) is ErrorCode.none


def test_a_classic_member_without_a_protocol_in_common_is_refused() -> None:
    stage = consumer_stage()
    classic_group(stage, "a")
    Consumer(stage, "new").join()
    other = new_member(stage, "b", protocols=(("sticky", owning("orders")),)).join()
    assert other.told is ErrorCode.inconsistent_group_protocol
    other = new_member(stage, "c", protocol_type="connect").join()
    assert other.told is ErrorCode.inconsistent_group_protocol


def test_a_static_classic_member_that_comes_with_the_newer_protocol_keeps_what_it_has() -> None:
    stage = consumer_stage()
    a = new_member(stage, "a", instance_id="one").join()
    stage.wait(10)
    a.sync({a.member_id: write_assignment(1, {"orders": tuple(range(6))})})
    other = Consumer(stage, "other").join()
    settle(other)
    new = Consumer(stage, "new", instance_id="one").join()
    assert new.code is ErrorCode.none
    settle(new, other)
    assert owners(new, other) == ALL
    assert a.heartbeat() is ErrorCode.fenced_instance_id


def test_an_empty_group_of_the_newer_protocol_makes_place_for_a_classic_one() -> None:
    stage = consumer_stage()
    new = Consumer(stage, "new").join()
    assert new.commit(5, partition=0) is ErrorCode.none
    new.leave()
    a = new_member(stage, "a").join()
    stage.wait(10)
    assert (a.told, stage.group().kind) == (ErrorCode.none, "classic")
    assert stage.committed() == 5


def test_offsets_of_a_group_that_was_about_to_be_classic_are_still_those_of_a_group() -> None:
    """The coordinator changes before there is a generation: nobody would ever let go of them."""
    stage = consumer_stage(offsets_retention_minutes=1, offsets_retention_check_interval_ms=1000)
    new = Consumer(stage, "new").join()
    assert new.commit(5, partition=0) is ErrorCode.none
    new.leave()
    new_member(stage, "a").ask_to_join()
    stage.move()
    assert (stage.group().is_empty, stage.committed()) == (True, 5)
    stage.wait(70_000)
    assert stage.committed() == -1, "they expire"
    assert stage.shard.groups == {}


def test_what_consumers_say_to_one_another_is_read_in_all_versions() -> None:
    """The bytes are those of Kafka's own `ConsumerProtocol`."""
    topics = b"\0\0\0\1\0\6orders" + b"\xff\xff\xff\xff"
    owned = b"\0\0\0\1\0\6orders\0\0\0\2\0\0\0\1\0\0\0\0"
    assert read_subscription(b"\0\0" + topics).topics == ("orders",)
    second = read_subscription(b"\0\1" + topics + owned)
    assert second.owned == {"orders": (0, 1)}
    rack = read_subscription(b"\0\3" + topics + owned + b"\0\0\0\7" + b"\0\2r1")
    assert (rack.version, rack.rack_id) == (3, "r1")
    written = write_assignment(1, {"orders": (0, 1)})
    assert written == b"\0\1" + b"\0\0\0\1\0\6orders\0\0\0\2\0\0\0\0\0\0\0\1" + b"\xff\xff\xff\xff"
    assert read_assignment(written) == {"orders": (0, 1)}
    assert read_assignment(b"") == {}


def test_a_group_whose_last_new_member_comes_back_as_a_classic_one_is_classic_again() -> None:
    stage = consumer_stage()
    new = Consumer(stage, "new", instance_id="one").join()
    a = new_member(stage, "a").join()
    assert find(stage).kind == "consumer"
    again = new_member(stage, "again", instance_id="one").join()
    assert again.told is ErrorCode.none
    assert (stage.group().kind, stage.group().state_name) == ("classic", "PreparingRebalance")
    assert new.beat().code is ErrorCode.group_id_not_found
    for member in (a, again):
        member.joins.clear()
        member.ask_to_join()
    stage.wait(10)
    assert [member.told for member in (a, again)] == [ErrorCode.none, ErrorCode.none]
