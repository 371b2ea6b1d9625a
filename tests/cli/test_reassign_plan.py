"""T3: plans for replicas as they are read, written and proposed, and the limits of their speed."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.base.errors import BadValue, KafkaError
from tidelog.base.ids import TopicPartition
from tidelog.cli.reassign_plan import (
    Plan,
    current_plan,
    find_partitions,
    parse_brokers,
    plan_of_words,
    plan_text,
    propose,
    read_plan,
    read_topics_to_move,
)
from tidelog.cli.reassign_throttle import stable_replicas, throttle_changes
from tidelog.client.addresses import Address
from tidelog.client.cluster import Broker, Cluster, Partition, Topic
from tidelog.client.configs import Resource
from tidelog.client.reassignments import Ongoing
from tidelog.cluster.image import BrokerInfo

RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")


def topic(name: str, *replicas: tuple[int, ...]) -> Topic:
    partitions = tuple(
        Partition(
            index=index,
            leader=brokers[0],
            leader_epoch=0,
            replicas=brokers,
            isr=brokers,
            offline_replicas=(),
        )
        for index, brokers in enumerate(replicas)
    )
    return Topic(name=name, topic_id=None, is_internal=False, partitions=partitions)


def brokers(count: int, *racks: str) -> list[BrokerInfo]:
    return [
        BrokerInfo(broker_id=number, endpoints={}, rack=racks[number] if racks else None)
        for number in range(count)
    ]


ORDERS = topic("orders", (1, 2), (2, 3), (3, 1))
CLUSTER = Cluster(
    cluster_id=None,
    controller_id=1,
    brokers={n: Broker(broker_id=n, address=Address("h", 1), rack=None) for n in (1, 2, 3)},
    topics={"orders": ORDERS},
    refused={},
)


def at(index: int, name: str = "orders") -> TopicPartition:
    return TopicPartition(name, index)


def written(folder: Path, content: object) -> Path:
    file = folder / "plan.json"
    file.write_text(content if isinstance(content, str) else json.dumps(content))
    return file


plans = st.dictionaries(
    st.builds(TopicPartition, st.sampled_from(("a", "b.c", "größe")), st.integers(0, 5)),
    st.lists(st.integers(0, 9), min_size=1, max_size=4, unique=True).map(tuple),
    min_size=1,
)


@given(plan=plans)
def test_a_plan_is_read_as_it_was_written(
    plan: Plan, tmp_path_factory: pytest.TempPathFactory
) -> None:
    assert read_plan(written(tmp_path_factory.getbasetemp(), plan_text(plan))) == plan


def test_a_plan_is_written_as_kafka_writes_it() -> None:
    assert plan_text({at(1): (3, 1), at(0): (2,)}) == (
        '{"version":1,"partitions":[{"topic":"orders","partition":0,"replicas":[2],"log_dirs":'
        '["any"]},{"topic":"orders","partition":1,"replicas":[3,1],"log_dirs":["any","any"]}]}'
    )


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("{", "is not JSON"),
        ([], 'must be {"version": 1, "partitions"'),
        ({"version": 1}, 'must be {"version": 1, "partitions"'),
        ({"version": 2, "partitions": []}, "version 2 is not known"),
        ({"version": 1, "partitions": []}, "has no partitions"),
        ({"partitions": [{"topic": "t", "partition": 0}]}, "must have topic, partition and"),
        ({"partitions": [{"topic": "t", "partition": "0", "replicas": [1]}]}, "must have topic"),
        ({"partitions": [{"topic": "t", "partition": 0, "replicas": ["1"]}]}, "must have topic"),
        ({"partitions": [{"topic": "t", "partition": 0, "replicas": [True]}]}, "must have topic"),
        ({"partitions": [{"topic": "t", "partition": 0, "replicas": [1]}] * 2}, "more than once"),
        (
            {"partitions": [{"topic": "t", "partition": 0, "replicas": [1], "log_dirs": ["/d"]}]},
            "t-0: replicas cannot be moved to a log dir of choice",
        ),
    ],
)
def test_a_file_that_is_no_plan_is_refused(tmp_path: Path, content: object, why: str) -> None:
    with pytest.raises(BadValue) as raised:
        read_plan(written(tmp_path, content))
    assert why in str(raised.value)
    assert "plan.json" in str(raised.value)


def test_topics_to_move_are_read(tmp_path: Path) -> None:
    file = written(tmp_path, {"version": 1, "topics": [{"topic": "a"}, {"topic": "b"}]})
    assert read_topics_to_move(file) == ["a", "b"]
    refused: list[dict[str, object]] = [
        {"topics": ["a"]},
        {"topics": []},
        {"partitions": []},
        {"topics": [{"topic": 1}]},
    ]
    for bad in refused:
        with pytest.raises(BadValue, match=r"plan\.json"):
            read_topics_to_move(written(tmp_path, bad))


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["orders"], [0, 1, 2]),
        (["orders:1"], [1]),
        (["orders:2,0"], [2, 0]),
        (["orders:1", "orders"], [1, 0, 2]),
        ([], []),
    ],
)
def test_words_name_partitions(words: list[str], found: list[int]) -> None:
    assert [one.partition for one in find_partitions(CLUSTER, words)] == found


@pytest.mark.parametrize("word", ["unknown", "orders:3", "orders:-1"])
def test_what_is_not_there_cannot_be_named(word: str) -> None:
    with pytest.raises(KafkaError, match="there is no"):
        find_partitions(CLUSTER, [word])


@pytest.mark.parametrize("word", ["orders:", "orders:x", "orders:1:2", "orders:1,"])
def test_a_word_that_makes_no_sense_is_refused(word: str) -> None:
    with pytest.raises(BadValue, match="must be TOPIC"):
        find_partitions(CLUSTER, [word])


def test_brokers_are_numbers_that_stand_once() -> None:
    assert parse_brokers("3,1,2", "--replicas") == (3, 1, 2)
    for bad in ("", "a", "1,,2", "1,2,1"):
        with pytest.raises(BadValue, match=f"--replicas {bad}"):
            parse_brokers(bad, "--replicas")


def test_the_partitions_of_a_whole_topic_are_led_in_turns() -> None:
    assert plan_of_words(CLUSTER, ["orders"], (3, 1)) == {
        at(0): (3, 1),
        at(1): (1, 3),
        at(2): (3, 1),
    }
    assert plan_of_words(CLUSTER, ["orders:1"], (3, 1)) == {at(1): (3, 1)}


def test_the_way_back_is_what_is_there_now() -> None:
    assert current_plan(CLUSTER, [at(2), at(0)]) == {at(2): (3, 1), at(0): (1, 2)}


# -- proposals


def test_what_is_spread_evenly_already_stays() -> None:
    proposed = propose([topic("t", (1, 2), (2, 0), (0, 1))], brokers(3), None)
    assert proposed == {at(0, "t"): (1, 2), at(1, "t"): (2, 0), at(2, "t"): (0, 1)}


@given(
    count=st.integers(1, 6),
    partition_count=st.integers(1, 12),
    data=st.data(),
)
def test_a_proposal_spreads_replicas_over_the_brokers_that_were_named(
    count: int, partition_count: int, data: st.DataObject
) -> None:
    factor = data.draw(st.integers(1, count))
    old = topic("t", *([(9, 8, 7)[: data.draw(st.integers(1, 3))]] * partition_count))
    proposed = propose([old], brokers(count), factor)
    assert list(proposed) == [at(index, "t") for index in range(partition_count)]
    held = [broker for replicas in proposed.values() for broker in replicas]
    led = [replicas[0] for replicas in proposed.values()]
    assert all(len({*replicas}) == factor for replicas in proposed.values())
    assert {*held} <= {*range(count)}
    counts = [led.count(broker) for broker in range(count)]
    assert max(counts) - min(counts) <= 1


def test_racks_are_spread_over_too() -> None:
    proposed = propose([topic("t", *[(0, 1)] * 4)], brokers(4, "a", "a", "b", "b"), None)
    for replicas in proposed.values():
        assert {broker // 2 for broker in replicas} == {0, 1}


def test_too_few_brokers_are_refused() -> None:
    with pytest.raises(BadValue, match="orders: 2 replicas need as many brokers, and there are 1"):
        propose([ORDERS], brokers(1), None)


# -- speed limits


def test_those_that_are_there_send_and_those_that_come_fetch_slowly() -> None:
    current: Plan = {at(0): (1, 2), at(1): (2, 3), at(0, "other"): (1,)}
    target: Plan = {at(0): (3, 1), at(1): (3, 2), at(0, "other"): (2,)}
    assert throttle_changes(current, target, 1_000) == {
        Resource("topic", "orders"): {
            "leader.replication.throttled.replicas": "0:1,0:2",
            "follower.replication.throttled.replicas": "0:3",
        },
        Resource("topic", "other"): {
            "leader.replication.throttled.replicas": "0:1",
            "follower.replication.throttled.replicas": "0:2",
        },
        **{Resource("broker", str(number)): dict.fromkeys(RATES, "1000") for number in (1, 2, 3)},
    }


def test_without_new_replicas_nothing_is_held_back() -> None:
    assert throttle_changes({at(0): (1, 2)}, {at(0): (2,)}, 5) == {}


def test_replicas_that_are_still_coming_were_not_there_before() -> None:
    ongoing = {at(0): Ongoing(replicas=(3, 1, 2), adding=(3,), removing=(2,))}
    current: Plan = {at(0): (3, 1, 2), at(1): (2, 3)}
    assert stable_replicas(current, ongoing) == {at(0): (1, 2), at(1): (2, 3)}
    assert ongoing[at(0)].target == (3, 1)
