"""The assignors of the newer protocol (A5, V15): every partition once, even, and where it was."""

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from tidelog.groups.assignors import (
    ASSIGNORS,
    Assignment,
    Subscriber,
    assign_range,
    assign_uniform,
)


def topic_id(number: int) -> bytes:
    return number.to_bytes(16, "big")


@st.composite
def situations(draw: st.DrawFn) -> tuple[dict[str, Subscriber], dict[bytes, int]]:
    """Members with any subscriptions, and whatever they had before: also what is gone by now, and
    what others claim too."""
    topics = [topic_id(number) for number in range(draw(st.integers(1, 5)))]
    counts = {topic: draw(st.integers(0, 9)) for topic in topics}
    members = {}
    for number in range(draw(st.integers(1, 7))):
        wanted = draw(st.sets(st.sampled_from(topics)))
        claimed = draw(
            st.dictionaries(
                st.sampled_from([*topics, topic_id(99)]), st.sets(st.integers(0, 11), min_size=1)
            )
        )
        members[f"m{number}"] = Subscriber(
            topics=tuple(sorted(wanted)),
            assigned={topic: tuple(sorted(found)) for topic, found in claimed.items()},
            instance_id=draw(st.sampled_from([None, f"i{number}"])),
        )
    wanted = {topic for member in members.values() for topic in member.topics}
    return members, {topic: counts[topic] for topic in sorted(wanted)}


def partitions(assignment: Assignment) -> set[tuple[bytes, int]]:
    return {(topic, index) for topic, indexes in assignment.items() for index in indexes}


def check_owners(
    members: Mapping[str, Subscriber],
    counts: Mapping[bytes, int],
    assignments: Mapping[str, Assignment],
) -> None:
    assert set(assignments) == set(members)
    owned = [p for assignment in assignments.values() for p in sorted(partitions(assignment))]
    expected = [(topic, index) for topic, count in counts.items() for index in range(count)]
    assert sorted(owned) == sorted(expected), "every subscribed partition has exactly one owner"
    for member_id, assignment in assignments.items():
        assert set(assignment) <= set(members[member_id].topics), "only what it subscribes to"
        assert all(tuple(sorted(found)) == found and found for found in assignment.values())


@given(situations())
def test_v15_every_subscribed_partition_has_exactly_one_owner(
    situation: tuple[dict[str, Subscriber], dict[bytes, int]],
) -> None:
    members, counts = situation
    for assignor in ASSIGNORS.values():
        check_owners(members, counts, assignor(members, counts))


@given(situations())
def test_uniform_leaves_no_move_that_would_make_it_more_even(
    situation: tuple[dict[str, Subscriber], dict[bytes, int]],
) -> None:
    members, counts = situation
    assignments = assign_uniform(members, counts)
    loads = {member_id: len(partitions(assignments[member_id])) for member_id in members}
    for giver, assignment in assignments.items():
        for topic in assignment:
            for taker, member in members.items():
                assert topic not in member.topics or loads[giver] - loads[taker] <= 1


@given(situations())
def test_assignors_give_the_same_whatever_the_order_of_members(
    situation: tuple[dict[str, Subscriber], dict[bytes, int]],
) -> None:
    members, counts = situation
    backwards = dict(reversed(members.items()))
    for assignor in ASSIGNORS.values():
        assert assignor(backwards, counts) == assignor(members, counts)


@given(situations())
def test_uniform_leaves_an_even_assignment_as_it_is(
    situation: tuple[dict[str, Subscriber], dict[bytes, int]],
) -> None:
    members, counts = situation
    first = assign_uniform(members, counts)
    settled = {m: member._replace(assigned=first[m]) for m, member in members.items()}
    assert assign_uniform(settled, counts) == first


@given(st.integers(1, 12), st.integers(0, 60))
def test_uniform_moves_no_more_than_a_new_member_needs(members: int, count: int) -> None:
    topic = topic_id(1)
    counts = {topic: count}
    few = {f"m{n}": Subscriber(topics=(topic,), assigned={}) for n in range(members)}
    before = assign_uniform(few, counts)
    more = {m: member._replace(assigned=before[m]) for m, member in few.items()}
    more["new"] = Subscriber(topics=(topic,), assigned={})
    after = assign_uniform(more, counts)
    share = count // (members + 1)
    assert len(partitions(after["new"])) in (share, share + 1)
    moved = sum(len(partitions(before[m]) - partitions(after[m])) for m in few)
    assert moved == len(partitions(after["new"])), "only what the new member gets has moved"


@given(st.integers(2, 12), st.integers(0, 60))
def test_uniform_leaves_the_others_what_they_had_when_one_leaves(members: int, count: int) -> None:
    topic = topic_id(1)
    counts = {topic: count}
    many = {f"m{n}": Subscriber(topics=(topic,), assigned={}) for n in range(members)}
    before = assign_uniform(many, counts)
    fewer = {m: member._replace(assigned=before[m]) for m, member in many.items() if m != "m0"}
    after = assign_uniform(fewer, counts)
    assert all(partitions(before[m]) <= partitions(after[m]) for m in fewer)
    sizes = [len(partitions(assignment)) for assignment in after.values()]
    assert max(sizes) - min(sizes) <= 1


def test_range_gives_the_first_members_one_more_and_the_same_of_every_topic() -> None:
    topics = (topic_id(1), topic_id(2))
    members = {m: Subscriber(topics=topics, assigned={}) for m in ("b", "a")}
    assignments = assign_range(members, dict.fromkeys(topics, 3))
    assert assignments == {"a": dict.fromkeys(topics, (0, 1)), "b": dict.fromkeys(topics, (2,))}


def test_range_keeps_static_members_in_the_order_of_their_instances() -> None:
    topic = topic_id(1)
    members = {
        "z": Subscriber(topics=(topic,), assigned={}, instance_id="i0"),
        "a": Subscriber(topics=(topic,), assigned={}, instance_id="i1"),
        "0": Subscriber(topics=(topic,), assigned={}),
    }
    assert assign_range(members, {topic: 3}) == {
        "z": {topic: (0,)},
        "a": {topic: (1,)},
        "0": {topic: (2,)},
    }


def test_range_leaves_out_members_when_there_are_more_of_them_than_partitions() -> None:
    topic = topic_id(1)
    members = {f"m{n}": Subscriber(topics=(topic,), assigned={}) for n in range(3)}
    assert assign_range(members, {topic: 2}) == {
        "m0": {topic: (0,)},
        "m1": {topic: (1,)},
        "m2": {},
    }
