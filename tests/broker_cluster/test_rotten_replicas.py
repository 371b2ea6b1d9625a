"""A replica whose bytes have rotted on its disk, in a cluster: nobody gets them, and it heals from
the others (F12, V18)."""

from dataclasses import replace
from typing import Any

import pytest

from support.cluster_calls import assert_alike, elect, log_values, read, try_write, write
from support.sim_cluster import SimCluster
from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.cluster.image import NO_LEADER
from tidelog.healing import check_sound
from tidelog.records.batch import HEADER_SIZE

TOPIC = "events"
ROTTEN = 2


def values(first: int, last: int) -> list[str]:
    return [f"value {number}" for number in range(first, last)]


def filled(brokers: int = 3, **configs: Any) -> SimCluster:
    """Led by broker 1; broker 2 would be the next."""
    cluster = SimCluster(brokers)
    cluster.create(TOPIC, replicas=[[1, 2, 3]], **configs)
    for value in values(0, 20):
        write(cluster, TOPIC, value)
    cluster.wait_caught_up(TOPIC)
    return cluster


RECORDS, OFFSET, LENGTH = HEADER_SIZE + 4, 6, 9


def spoil(cluster: SimCluster, number: int, where: int = RECORDS, broker_id: int = ROTTEN) -> None:
    """Stops a broker, flips a bit in one of its batches, and starts it again."""
    log = cluster.held(broker_id, TOPIC).log
    found = log.read(number, 1, log.log_end_offset)
    segment = log.segments.all[log.segments.at(number)]
    path = segment.path(".log")
    cluster.stop(broker_id)
    cluster.machines[broker_id].disk.flip_bit(path, found.position + where)
    cluster.start(broker_id)
    cluster.wait_caught_up(TOPIC)


def refusal(cluster: SimCluster, broker_id: int, offset: int) -> str:
    client = cluster.client(broker_id)
    answer = client.fetch(TOPIC, offset)
    client.link.close()
    assert not answer.records
    return str(answer.error_code.name)


@pytest.mark.parametrize("segment_bytes", [1 << 30, 250], ids=["one segment", "many segments"])
@pytest.mark.parametrize("number", [0, 11, 19])
def test_a_rotten_leader_gives_way_and_fetches_again_what_was_damaged(
    segment_bytes: int, number: int
) -> None:
    cluster = filled(segment_bytes=segment_bytes)
    spoil(cluster, number)
    cluster.kill(1)
    assert cluster.wait_led(TOPIC) == ROTTEN
    assert refusal(cluster, ROTTEN, number) == "kafka_storage_error"
    cluster.wait_led(TOPIC, by=3)
    assert read(cluster, TOPIC) == values(0, 20)
    cluster.wait_isr(TOPIC, 2, 3)
    write(cluster, TOPIC, "value 20")
    cluster.start(1)
    cluster.wait_caught_up(TOPIC)
    assert_alike(cluster, TOPIC)
    assert log_values(cluster, ROTTEN, TOPIC) == values(0, 21)
    cluster.kill(3)
    cluster.kill(1)
    cluster.start(1)
    assert read(cluster, TOPIC) == values(0, 21)


@pytest.mark.parametrize("where", [OFFSET, LENGTH], ids=["offset", "length"])
@pytest.mark.parametrize("reads_at", [0, 40])
def test_a_header_that_has_rotted_is_found_as_well(where: int, reads_at: int) -> None:
    """The CRC does not cover it."""
    cluster = SimCluster()
    cluster.create(TOPIC, replicas=[[1, 2, 3]], segment_bytes=4000)
    for value in values(0, 60):
        write(cluster, TOPIC, value)
    cluster.wait_caught_up(TOPIC)
    spoil(cluster, 40, where)
    cluster.kill(1)
    assert cluster.wait_led(TOPIC) == ROTTEN
    client = cluster.client(ROTTEN)
    answer = client.fetch(TOPIC, reads_at)
    assert len(answer.records or b"") <= cluster.held(3, TOPIC).log.read(40, 1, 60).position
    cluster.wait_led(TOPIC, by=3)
    cluster.start(1)
    cluster.wait_caught_up(TOPIC)
    assert_alike(cluster, TOPIC)
    assert read(cluster, TOPIC) == values(0, 60)


def test_what_is_intact_is_served_until_another_leads() -> None:
    cluster = filled()
    spoil(cluster, 11)
    cluster.kill(1)
    assert cluster.wait_led(TOPIC) == ROTTEN
    client = cluster.client(ROTTEN)
    answer = client.fetch(TOPIC, 0)
    assert answer.error_code.name == "none"
    assert answer.records, "all before the damage"
    cluster.wait_led(TOPIC, by=3)
    assert read(cluster, TOPIC) == values(0, 20)


def test_a_rotten_replica_leads_again_after_it_has_healed() -> None:
    """The controller, which is one of the others, does not take it for broken for ever."""
    cluster = filled(brokers=4)
    for _ in range(20):
        controller = cluster.controller
        if controller != 4:
            cluster.kill(controller)
            cluster.wait_led_elsewhere(TOPIC, controller)
            cluster.run_for(1_000)
            cluster.start(controller)
            cluster.wait_caught_up(TOPIC)
    assert cluster.controller == 4
    if cluster.leader(TOPIC) != 1:
        assert elect(cluster, TOPIC) == "none"
        cluster.wait_led(TOPIC, by=1)
    spoil(cluster, 5)
    cluster.run_for(10_000)  # for the controller to hear who is in sync again
    cluster.kill(1)
    cluster.wait_led(TOPIC, by=ROTTEN)
    assert refusal(cluster, ROTTEN, 5) == "kafka_storage_error"
    cluster.wait_led(TOPIC, by=3)
    cluster.wait_isr(TOPIC, 2, 3)
    cluster.run_for(20_000)
    assert cluster.isr(TOPIC) == [2, 3], "and it is not thrown out again"
    cluster.kill(3)
    assert cluster.wait_led(TOPIC) == ROTTEN
    assert read(cluster, TOPIC) == values(0, 20)


def test_a_follower_that_needs_the_damaged_part_waits_until_another_can_give_it() -> None:
    """A leader that is alone refuses its followers too; nobody asks in a hurry."""
    cluster = filled(min_insync_replicas=1)
    cluster.kill(3)
    cluster.wait_isr(TOPIC, 1, 2)
    for value in values(20, 30):
        write(cluster, TOPIC, value)
    cluster.wait_isr(TOPIC, 1, 2)
    log = cluster.held(ROTTEN, TOPIC).log
    position = log.read(25, 1, log.log_end_offset).position
    cluster.stop(ROTTEN)
    path = f"/data/{TOPIC}-0/{0:020d}.log"
    cluster.machines[ROTTEN].disk.flip_bit(path, position + HEADER_SIZE + 4)
    cluster.start(ROTTEN)
    cluster.wait_isr(TOPIC, 1, 2)
    cluster.stop(1)
    assert cluster.wait_led(TOPIC) == ROTTEN
    cluster.start(3)
    cluster.run_for(10_000)
    assert cluster.held(3, TOPIC).log.log_end_offset == 25, "it has what lies before"
    assert cluster.held(ROTTEN, TOPIC).is_led, "nobody else has the rest"
    cluster.start(1)
    cluster.wait_caught_up(TOPIC)
    assert_alike(cluster, TOPIC)
    assert read(cluster, TOPIC) == values(0, 30)


LAST_BEFORE_CUT = 24
COUNT = LAST_BEFORE_CUT + 1
LOWER_OFFSET = (7, 4)
NO_LENGTH = (9, 0)


def with_sparse_index() -> SimCluster:
    """Some twelve batches are between two entries of the index. The controller holds none of
    them."""
    cluster = SimCluster(4, replica_lag_time_max_ms=60_000)
    while (controller := cluster.controller) != 4:
        cluster.kill(controller)
        cluster.run_for(1_000)
        cluster.start(controller)
    cluster.create(TOPIC, replicas=[[1, 3, 2]], index_interval_bytes=1000)
    for value in values(0, COUNT):
        write(cluster, TOPIC, value)
    cluster.wait_caught_up(TOPIC)
    return cluster


def write_what_is_lost(cluster: SimCluster) -> None:
    client = cluster.client(1)
    for number in range(40):
        assert try_write(client, TOPIC, f"lost {number}", acks=1) == "none"
    client.link.close()


def position_of_last(cluster: SimCluster, broker_id: int) -> int:
    """Of what all replicas have."""
    log = cluster.held(broker_id, TOPIC).log
    return log.read(LAST_BEFORE_CUT, 1, log.log_end_offset).position


def check_healed(cluster: SimCluster, broker_id: int) -> None:
    write(cluster, TOPIC, f"value {COUNT}")
    cluster.wait_caught_up(TOPIC)
    assert_alike(cluster, TOPIC)
    assert log_values(cluster, broker_id, TOPIC) == values(0, COUNT + 1)


@pytest.mark.parametrize("bit", [LOWER_OFFSET, NO_LENGTH], ids=["offset", "length"])
def test_a_deposed_leader_that_cannot_be_cut_where_it_has_rotted_fetches_that_again(
    bit: tuple[int, int],
) -> None:
    cluster = with_sparse_index()
    cluster.isolate(1)
    write_what_is_lost(cluster)
    position = position_of_last(cluster, 1)
    cluster.stop(1)
    cluster.wait_led_elsewhere(TOPIC, 1)
    path = f"/data/{TOPIC}-0/{0:020d}.log"
    cluster.machines[1].disk.flip_bit(path, position + bit[0], bit[1])
    cluster.network.mend()
    cluster.start(1)
    check_healed(cluster, 1)


@pytest.mark.parametrize("bit", [LOWER_OFFSET, NO_LENGTH], ids=["offset", "length"])
def test_a_member_of_the_set_that_cannot_be_cut_leaves_it_before_it_fetches_again(
    bit: tuple[int, int],
) -> None:
    """Who took over with less may need it to have what is committed."""
    cluster = with_sparse_index()
    cluster.cut(1, 3)
    write_what_is_lost(cluster)
    cluster.wait(lambda: cluster.held(2, TOPIC).log.log_end_offset == COUNT + 40, "2 has it all")
    position = position_of_last(cluster, 2)
    cluster.stop(2)
    path = f"/data/{TOPIC}-0/{0:020d}.log"
    cluster.machines[2].disk.flip_bit(path, position + bit[0], bit[1])
    cluster.start(2)
    cluster.wait_isr(TOPIC, 1, 2, 3)
    assert cluster.held(2, TOPIC).log.log_end_offset == COUNT + 40
    cluster.kill(1)
    cluster.network.mend()
    cluster.wait_led(TOPIC, by=3)
    assert cluster.isr(TOPIC) == [2, 3]
    cluster.wait_isr(TOPIC, 3)
    cluster.wait_isr(TOPIC, 2, 3)
    cluster.start(1)
    check_healed(cluster, 2)


def test_it_heals_where_the_min_isr_wants_both() -> None:
    """The one that leaves the in-sync set is remembered, and still may follow."""
    cluster = SimCluster()
    cluster.create(TOPIC, replicas=[[1, 2]], min_insync_replicas=2)
    for value in values(0, 20):
        write(cluster, TOPIC, value)
    cluster.wait_caught_up(TOPIC)
    spoil(cluster, 3)
    cluster.stop(1)
    assert cluster.wait_led(TOPIC) == ROTTEN
    cluster.start(1)
    cluster.wait_caught_up(TOPIC)
    assert refusal(cluster, ROTTEN, 3) == "kafka_storage_error"
    cluster.wait_led(TOPIC, by=1)
    cluster.wait_caught_up(TOPIC)
    assert_alike(cluster, TOPIC)
    assert read(cluster, TOPIC) == values(0, 20)


@pytest.mark.parametrize("delay_ms", [0, 1, 3, 10, 30, 100])
def test_the_others_die_just_when_it_gives_way(delay_ms: int) -> None:
    """It may be needed to find out who leads: it is not broken, and not cut before another has
    what it has."""
    cluster = filled()
    spoil(cluster, 7)
    cluster.kill(1)
    cluster.wait_led(TOPIC, by=ROTTEN)
    cluster.wait_isr(TOPIC, 2, 3)
    client = cluster.client(ROTTEN)
    client.send_fetch([(TOPIC, 0, 7)])
    cluster.wait(lambda: not cluster.held(ROTTEN, TOPIC).is_led, "it gives way")
    cluster.run_for(delay_ms)
    cluster.kill(3)
    cluster.run_for(3_000)
    cluster.start(3)
    cluster.start(1)
    cluster.wait_caught_up(TOPIC)
    if cluster.leader(TOPIC) == ROTTEN and refusal_or_good(cluster, 7) == "kafka_storage_error":
        cluster.wait_led_elsewhere(TOPIC, ROTTEN)
        cluster.wait_caught_up(TOPIC)
    assert read(cluster, TOPIC) == values(0, 20)
    assert_alike(cluster, TOPIC)


def refusal_or_good(cluster: SimCluster, offset: int) -> str:
    client = cluster.client(cluster.leader(TOPIC))
    answer = client.fetch(TOPIC, offset)
    client.link.close()
    return str(answer.error_code.name)


def test_a_new_controller_hears_of_it_too() -> None:
    """The damage outlives the controller that was told of it."""
    cluster = filled()
    spoil(cluster, 4)
    cluster.kill(1)
    cluster.wait_led(TOPIC, by=ROTTEN)
    cluster.start(1)
    cluster.wait_caught_up(TOPIC)
    controller = cluster.controller
    client = cluster.client(ROTTEN)
    client.send_fetch([(TOPIC, 0, 4)])
    cluster.wait(lambda: not cluster.held(ROTTEN, TOPIC).is_led, "it gives way")
    if controller != ROTTEN:
        cluster.kill(controller)
    else:
        cluster.session(controller).expire()
    cluster.wait_led_elsewhere(TOPIC, ROTTEN)
    if controller != ROTTEN:
        cluster.start(controller)
    cluster.wait_caught_up(TOPIC)
    assert_alike(cluster, TOPIC)
    assert read(cluster, TOPIC) == values(0, 20)


def test_it_is_cut_only_out_of_the_in_sync_set() -> None:
    """A member of the set may be elected for having everything: it must have it."""
    cluster = filled()
    spoil(cluster, 4)
    cluster.kill(1)
    cluster.wait_led(TOPIC, by=ROTTEN)
    client = cluster.client(ROTTEN)
    client.send_fetch([(TOPIC, 0, 4)])
    cluster.wait(lambda: not cluster.held(ROTTEN, TOPIC).is_led, "it gives way")
    partition = cluster.held(ROTTEN, TOPIC)
    assert partition.state is not None
    led = replace(partition.state, leader=3, leader_epoch=partition.leader_epoch + 1, isr=(2, 3))
    with pytest.raises(KafkaError) as refused:
        check_sound(partition, led, ROTTEN)
    assert refused.value.code == ErrorCode.kafka_storage_error
    old = replace(led, leader_epoch=0, isr=(ROTTEN,), leader=ROTTEN)
    with pytest.raises(KafkaError):
        check_sound(partition, old, ROTTEN)
    check_sound(partition, replace(led, isr=(3,)), ROTTEN)
    assert partition.damaged is not None, "now it will be cut, and follow"
    check_sound(partition, replace(led, leader=NO_LEADER), ROTTEN)
    is_forgotten = cluster.held(ROTTEN, TOPIC).damaged is None
    assert is_forgotten, "who leads is to be found out with what it has"
    assert partition.log.log_end_offset == 20


@pytest.mark.parametrize("how", ["stop", "kill", "lose_power"])
def test_a_replica_whose_first_segments_are_gone_fetches_them_again(how: str) -> None:
    """As a leader it would have the others take them for deleted, and delete them too."""
    cluster = filled(segment_bytes=250)
    segments = cluster.held(ROTTEN, TOPIC).log.segments.all
    assert len(segments) > 3
    cluster.run_for(60_000)  # until all is durable
    getattr(cluster, how)(ROTTEN)
    for segment in segments[:2]:
        cluster.machines[ROTTEN].disk.remove(segment.path(".log"))
    cluster.start(ROTTEN)
    cluster.wait_caught_up(TOPIC)
    cluster.stop(1)
    cluster.wait_led(TOPIC, by=ROTTEN)
    cluster.start(1)
    cluster.wait_caught_up(TOPIC)
    cluster.run_for(120_000)
    assert read(cluster, TOPIC) == values(0, 20)
    for broker_id in (1, 2, 3):
        assert log_values(cluster, broker_id, TOPIC) == values(0, 20)
