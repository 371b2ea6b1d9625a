"""Producer ids: blocks of a thousand, never the same id twice in a cluster."""

from collections.abc import Sequence

import pytest

from support.members import Cluster, Member
from tidelog.base.errors import ErrorCode, KafkaError


def take(member: Member, count: int) -> list[int | KafkaError]:
    taken: list[int | KafkaError] = []
    for _ in range(count):
        member.metadata.next_producer_id(taken.append)
    assert member.loop.run_until(lambda: len(taken) == count)
    return taken


def test_a_block_is_written_before_its_first_id_is_given() -> None:
    cluster = Cluster()
    assert take(cluster.started(), 3) == [0, 1, 2]
    assert cluster.json("/latest_producer_id_block") == {
        "version": 1,
        "broker": 0,
        "block_start": "0",
        "block_end": "999",
    }


def test_the_next_block_begins_where_the_last_one_ended() -> None:
    cluster = Cluster()
    member = cluster.started()
    assert take(member, 2500) == list(range(2500))
    assert cluster.json("/latest_producer_id_block")["block_end"] == "2999"


def test_two_brokers_never_give_the_same_id() -> None:
    for seed in range(10):
        cluster = Cluster(seed)
        members = [cluster.started(0), cluster.started(1)]
        taken: list[int | KafkaError] = []
        for _ in range(1500):
            for member in members:
                member.metadata.next_producer_id(taken.append)
        cluster.loop.run_for(60_000)
        assert len(set(taken)) == len(taken) == 3000


def test_a_restart_begins_a_new_block() -> None:
    cluster = Cluster()
    member = cluster.started()
    assert take(member, 1) == [0]
    member.die()
    cluster.forget_the_dead()
    assert take(cluster.started(), 1) == [1000]


def test_an_id_can_be_asked_for_inside_the_answer_to_another() -> None:
    member = Cluster().started()
    taken: list[int | KafkaError] = []

    def again(result: int | KafkaError) -> None:
        taken.append(result)
        if len(taken) < 2100:
            member.metadata.next_producer_id(again)

    member.metadata.next_producer_id(again)
    member.metadata.next_producer_id(again)
    assert member.loop.run_until(lambda: len(taken) >= 2100)
    assert len(set(taken)) == len(taken)


def test_before_the_start_there_are_no_ids() -> None:
    cluster = Cluster()
    (error,) = take(cluster.member(), 1)
    assert isinstance(error, KafkaError)
    assert error.code is ErrorCode.coordinator_load_in_progress


@pytest.mark.parametrize(
    "data",
    [
        b"nonsense",
        b"{}",
        b'{"version":1,"broker":0,"block_start":"5","block_end":"4"}',
        b'{"version":1,"broker":0,"block_start":"0","block_end":"9223372036854775806"}',
    ],
)
def test_ids_are_refused_rather_than_used_twice(data: bytes) -> None:
    """Z15."""
    cluster = Cluster()
    member = cluster.started()
    cluster.put("/latest_producer_id_block", data)
    results: Sequence[int | KafkaError] = take(member, 2)
    assert all(isinstance(result, KafkaError) for result in results)
    assert cluster.data("/latest_producer_id_block") == data
    cluster.put("/latest_producer_id_block", b"")
    assert take(member, 1) == [0]
