"""T1 and T2: replicas lie evenly, on different brokers, and over as many racks as there are.

The two examples are those that Kafka documents for its own assignment.
"""

from collections import Counter
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.cluster.assignment import Spread, alternate_racks, assign
from tidelog.cluster.image import BrokerInfo

FROM_ZERO = Spread(start_index=0, shift=0)


def brokers(racks: dict[int, str | None]) -> list[BrokerInfo]:
    return [
        BrokerInfo(broker_id=broker_id, endpoints={}, rack=rack)
        for broker_id, rack in racks.items()
    ]


def test_followers_shift_by_one_each_round() -> None:
    """T2: Kafka's example of ten partitions on five brokers."""
    found = assign(brokers(dict.fromkeys(range(5))), 10, 3, FROM_ZERO)
    assert found == [
        (0, 1, 2), (1, 2, 3), (2, 3, 4), (3, 4, 0), (4, 0, 1),
        (0, 2, 3), (1, 3, 4), (2, 4, 0), (3, 0, 1), (4, 1, 2),
    ]  # fmt: skip


def test_racks_take_turns() -> None:
    """T2: Kafka's example of six brokers in three racks."""
    racks = {0: "rack1", 1: "rack3", 2: "rack3", 3: "rack2", 4: "rack2", 5: "rack1"}
    assert alternate_racks(racks) == [0, 3, 1, 5, 4, 2]
    found = assign(brokers(dict(racks)), 7, 3, FROM_ZERO)
    assert found == [
        (0, 3, 1), (3, 1, 5), (1, 5, 4), (5, 4, 2), (4, 2, 0), (2, 0, 3), (0, 4, 2),
    ]  # fmt: skip


def test_partitions_that_are_added_go_on_where_the_others_ended() -> None:
    """T3."""
    everyone = brokers(dict.fromkeys(range(5)))
    later = Spread(start_index=0, shift=0, first_partition=5)
    assert assign(everyone, 10, 3, FROM_ZERO)[5:] == assign(everyone, 5, 3, later)


def test_one_broker_without_a_rack_makes_racks_count_for_nothing() -> None:
    found = assign(brokers({0: "a", 1: "a", 2: None, 3: "b"}), 4, 2, FROM_ZERO)
    assert found == [(0, 1), (1, 2), (2, 3), (3, 0)]


broker_ids = st.lists(st.integers(0, 1000), min_size=1, max_size=12, unique=True)
spreads = st.builds(
    Spread,
    start_index=st.integers(0, 20),
    shift=st.integers(0, 20),
    first_partition=st.integers(0, 40),
)


def from_a_whole_round(spread: Spread, broker_count: int) -> Spread:
    return replace(spread, first_partition=spread.first_partition * broker_count)


@settings(deadline=None)
@given(ids=broker_ids, spread=spreads, data=st.data())
def test_leaders_and_replicas_are_spread_evenly(
    ids: list[int], spread: Spread, data: st.DataObject
) -> None:
    """T1, T2: with whole rounds every broker leads, and holds, the same number."""
    rounds = data.draw(st.integers(1, 3))
    replicas = data.draw(st.integers(1, len(ids)))
    whole = from_a_whole_round(spread, len(ids))
    found = assign(brokers(dict.fromkeys(ids)), rounds * len(ids), replicas, whole)
    assert all(len(set(each)) == len(each) == replicas for each in found)
    assert Counter(each[0] for each in found) == dict.fromkeys(ids, rounds)
    held = Counter(broker_id for each in found for broker_id in each)
    assert held == dict.fromkeys(ids, rounds * replicas)


@settings(deadline=None)
@given(ids=broker_ids, spread=spreads, data=st.data())
def test_a_partition_spans_as_many_racks_as_it_can(
    ids: list[int], spread: Spread, data: st.DataObject
) -> None:
    """T2."""
    racks = {broker_id: data.draw(st.sampled_from("abcd")) for broker_id in ids}
    replicas = data.draw(st.integers(1, len(ids)))
    count = data.draw(st.integers(1, 30))
    found = assign(brokers(dict(racks)), count, replicas, spread)
    assert len(found) == count
    for each in found:
        assert len(set(each)) == len(each) == replicas
        assert len({racks[broker_id] for broker_id in each}) == min(
            replicas, len(set(racks.values()))
        )


@settings(deadline=None)
@given(size=st.integers(1, 4), rack_count=st.integers(1, 4), spread=spreads)
def test_with_equal_racks_and_a_replica_in_each_all_is_even(
    size: int, rack_count: int, spread: Spread
) -> None:
    """T2."""
    racks: dict[int, str | None] = {n: f"rack{n % rack_count}" for n in range(size * rack_count)}
    whole = from_a_whole_round(spread, len(racks))
    found = assign(brokers(racks), len(racks) * 2, rack_count, whole)
    assert set(Counter(each[0] for each in found).values()) == {2}
    assert set(Counter(b for each in found for b in each).values()) == {2 * rack_count}


@settings(deadline=None)
@given(ids=broker_ids, data=st.data())
def test_the_order_in_which_brokers_are_named_does_not_matter(
    ids: list[int], data: st.DataObject
) -> None:
    shuffled = data.draw(st.permutations(ids))
    in_order = assign(brokers(dict.fromkeys(ids)), 5, 1, FROM_ZERO)
    assert in_order == assign(brokers(dict.fromkeys(shuffled)), 5, 1, FROM_ZERO)
