"""Log starts, checkpoints and disks of whole brokers in a cluster (S5, S8, S10, D12)."""

import errno
import logging

import pytest

from support.brokers import one_batch
from support.cluster_calls import (
    EARLIEST,
    assert_alike,
    delete_topic,
    list_offset,
    log_values,
    moving,
    read,
    reassign,
    send_delete_records,
    try_write,
    write,
)
from support.sim_cluster import SimCluster
from tidelog.log.checkpoints import parse_offsets


@pytest.fixture
def cluster() -> SimCluster:
    made = SimCluster()
    made.create("events", replicas=[[1, 2, 3]])
    return made


# -- S5


def test_deleted_records_are_deleted_on_every_replica_when_that_is_answered(
    cluster: SimCluster,
) -> None:
    """S5: followers adopt the log start through Fetch, and report it."""
    write(cluster, "events", *map(str, range(10)))
    cluster.wait_caught_up("events")
    client = cluster.client(1)
    send_delete_records(client, "events", 4, 5_000)
    row = client.wait().topics[0].partitions[0]
    assert (row.error_code.name, row.low_watermark) == ("none", 4)
    starts = [cluster.held(b, "events").log.log_start_offset for b in (1, 2, 3)]
    assert starts == [4, 4, 4]
    assert list_offset(client, "events", EARLIEST) == 4
    assert client.fetch("events", 3).error_code.name == "offset_out_of_range"
    for broker_id in (1, 2, 3):
        cluster.kill(broker_id)
        cluster.start(broker_id)
        cluster.wait_caught_up("events")
        assert cluster.held(broker_id, "events").log.log_start_offset == 4, "what is gone is gone"


def test_deleted_records_do_not_come_back_when_all_die_at_once(cluster: SimCluster) -> None:
    """S5, V17: whoever leads next. A follower says where its log starts when that is durable."""
    write(cluster, "events", *map(str, range(10)))
    cluster.wait_caught_up("events")
    client = cluster.client(1)
    send_delete_records(client, "events", 4, 5_000)
    assert client.wait().topics[0].partitions[0].low_watermark == 4
    for broker_id in (1, 2, 3):
        cluster.kill(broker_id)
    for broker_id in (2, 3):
        cluster.start(broker_id)
        assert cluster.held(broker_id, "events").log.log_start_offset == 4
    assert cluster.wait_led("events") in (2, 3)


def test_deletion_waits_for_a_live_replica_and_says_so_in_time(cluster: SimCluster) -> None:
    """S5: it times out, and is done later all the same."""
    write(cluster, "events", *map(str, range(10)))
    cluster.wait_caught_up("events")
    cluster.cut(1, 3, one_way=True)
    client = cluster.client(1)
    began_ms = cluster.clock.monotonic_ms()
    send_delete_records(client, "events", 4, 2_000)
    row = client.wait().topics[0].partitions[0]
    assert (row.error_code.name, row.low_watermark) == ("request_timed_out", -1)
    assert 2_000 <= cluster.clock.monotonic_ms() - began_ms < 2_200
    assert cluster.held(3, "events").log.log_start_offset == 0
    cluster.network.mend()
    cluster.wait(lambda: cluster.held(3, "events").log.log_start_offset == 4, "it is done there")


def test_deletion_does_not_wait_for_a_replica_that_is_down(cluster: SimCluster) -> None:
    """S5: the low watermark is over those that live; the other one follows when it is back."""
    write(cluster, "events", *map(str, range(10)))
    cluster.wait_caught_up("events")
    cluster.kill(3)
    cluster.wait_isr("events", 1, 2)
    cluster.run_for(100)
    client = cluster.client(1)
    send_delete_records(client, "events", -1, 5_000)
    row = client.wait().topics[0].partitions[0]
    assert (row.error_code.name, row.low_watermark) == ("none", 10)
    cluster.start(3)
    cluster.wait_caught_up("events")
    cluster.wait(lambda: cluster.held(3, "events").log.log_start_offset == 10, "it follows")


def test_what_was_deleted_while_a_replica_was_down_does_not_come_back_with_it() -> None:
    """S5: whoever leads next, were it the moment after it is in sync again."""
    cluster = SimCluster()
    cluster.create("events", replicas=[[1, 3, 2]])
    write(cluster, "events", *"abcd")
    cluster.wait_caught_up("events")
    cluster.kill(3)
    cluster.wait_isr("events", 1, 2)
    client = cluster.client(1)
    send_delete_records(client, "events", 3, timeout_ms=5_000)
    assert client.wait().topics[0].partitions[0].error_code.name == "none"
    cluster.begin(3)
    cluster.wait(lambda: 3 in cluster.isr("events"), "it is in sync again")
    cluster.kill(1)
    cluster.wait_led("events", by=3)
    assert read(cluster, "events") == ["d"]


@pytest.mark.parametrize("replicas", [[1, 3], [1, 2, 3]])
@pytest.mark.parametrize("is_in_sync", [True, False])
def test_a_waiting_deletion_is_over_when_who_it_waits_for_dies(
    replicas: list[int], is_in_sync: bool
) -> None:
    """S5: nobody may be left who fetches."""
    cluster = SimCluster()
    cluster.create("events", replicas=[replicas], min_insync_replicas=1)
    write(cluster, "events", *map(str, range(10)))
    cluster.wait_caught_up("events")
    cluster.cut(1, 3, one_way=True)
    client = cluster.client(1)
    if not is_in_sync:
        client.produce("events", one_batch("late"), acks=1)
        cluster.wait_isr("events", *replicas[:-1])
    send_delete_records(client, "events", 4, 15_000)
    cluster.run_for(200)
    cluster.kill(3)
    row = client.wait().topics[0].partitions[0]
    assert (row.error_code.name, row.low_watermark) == ("none", 4)


def test_a_waiting_deletion_ends_when_the_leader_changes(cluster: SimCluster) -> None:
    """S5: whoever waits is told, at the latest when its time is over."""
    write(cluster, "events", *map(str, range(10)))
    cluster.wait_caught_up("events")
    cluster.cut(1, 3, one_way=True)
    client = cluster.client(1)
    send_delete_records(client, "events", 4, 3_000)
    cluster.run_for(200)
    stopped: list[bool] = []
    cluster.process(1).broker.stop(lambda: stopped.append(True))
    row = client.wait().topics[0].partitions[0]
    assert row.error_code.name in ("request_timed_out", "not_leader_or_follower")
    cluster.network.mend()
    cluster.wait(lambda: bool(stopped), "it stops")


def test_a_follower_behind_the_leaders_start_begins_anew_there(cluster: SimCluster) -> None:
    """S5, X23: only then; its high watermark and start move together."""
    write(cluster, "events", "0", "1")
    cluster.wait_caught_up("events")
    cluster.kill(3)
    cluster.wait_isr("events", 1, 2)
    write(cluster, "events", *map(str, range(2, 10)))
    cluster.run_for(1_000)
    client = cluster.client(1)
    send_delete_records(client, "events", 7, 5_000)
    client.wait()
    cluster.start(3)
    cluster.wait_caught_up("events")
    replica = cluster.held(3, "events")
    assert (replica.log.log_start_offset, replica.log.log_end_offset) == (7, 10)
    assert replica.high_watermark == 10
    assert_alike(cluster, "events")
    assert read(cluster, "events") == ["7", "8", "9"]


def test_old_segments_go_from_followers_as_well() -> None:
    """S5: retention moves the leader's start, and theirs."""
    cluster = SimCluster(log_segment_bytes=1_048_576, log_retention_check_interval_ms=10_000)
    cluster.create("events", replicas=[[1, 2, 3]], retention_bytes=1_500_000)
    client = cluster.client(1)
    for number in range(30):
        client.send_produce("events", one_batch(f"{number}" + "x" * 200_000))
    client.wait()
    cluster.run_for(40_000)
    starts = [cluster.held(b, "events").log.log_start_offset for b in (1, 2, 3)]
    assert starts[0] > 10
    assert starts == [starts[0]] * 3
    assert_alike(cluster, "events")


# -- S8


def watermarks(cluster: SimCluster, broker_id: int) -> dict[str, int]:
    disk = cluster.machines[broker_id].disk
    file = disk.open("/data/replication-offset-checkpoint", "read")
    found = parse_offsets("checkpoint", file.pread(1 << 20, 0))
    return {str(name): offset for name, offset in found.items()}


def test_high_watermarks_are_checkpointed_on_leaders_and_followers(cluster: SimCluster) -> None:
    """S8: every five seconds."""
    write(cluster, "events", "a", "b", "c")
    cluster.wait_caught_up("events")
    cluster.run_for(6_000)
    for broker_id in (1, 2, 3):
        assert watermarks(cluster, broker_id) == {"events-0": 3}


def test_a_checkpoint_survives_a_restart_in_which_the_leader_is_not_reached(
    cluster: SimCluster,
) -> None:
    """S8, X24: what is not heard of is not forgotten."""
    write(cluster, "events", "a", "b", "c")
    cluster.wait_caught_up("events")
    cluster.run_for(6_000)
    for broker_id in (1, 2, 3):
        cluster.kill(broker_id)
    cluster.run_for(1_000)
    cluster.start(2)
    cluster.run_for(20_000)
    assert cluster.held(2, "events").high_watermark == 3
    assert watermarks(cluster, 2) == {"events-0": 3}
    cluster.kill(2)
    cluster.start(2)
    assert cluster.held(2, "events").high_watermark == 3
    cluster.start(3)
    cluster.wait_led("events")
    assert read(cluster, "events") == ["a", "b", "c"]


def test_a_clean_stop_leaves_everything_needed(cluster: SimCluster) -> None:
    """S8: also the last high watermark, to the record."""
    write(cluster, "events", "a", "b", "c")
    cluster.wait_caught_up("events")
    cluster.stop(2)
    assert watermarks(cluster, 2) == {"events-0": 3}
    assert cluster.machines[2].disk.stat("/data/.kafka_cleanshutdown") is not None


def test_a_log_start_that_has_rotted_hides_nothing_and_brings_nothing_back(
    cluster: SimCluster,
) -> None:
    """S5, S8, F12: it leads again with what it had, and its followers keep theirs."""
    write(cluster, "events", *map(str, range(10)))
    cluster.wait_caught_up("events")
    client = cluster.client(1)
    send_delete_records(client, "events", 4, 5_000)
    client.wait()
    cluster.run_for(6_000)
    for bit in (1, 2):
        for broker_id in (1, 2, 3):
            cluster.stop(broker_id)
        disk = cluster.machines[1].disk
        data = disk.view()["/data/log-start-offset-checkpoint"]
        disk.flip_bit("/data/log-start-offset-checkpoint", data.index(b" 4\n") + 1, bit)
        for broker_id in (1, 2, 3):
            cluster.start(broker_id)
        cluster.wait_led("events")
        cluster.wait_caught_up("events")
        starts = [cluster.held(b, "events").log.log_start_offset for b in (1, 2, 3)]
        assert starts == [4, 4, 4]
        assert read(cluster, "events") == list("456789")


# -- S10


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
def test_leadership_leaves_a_broker_whose_disk_fails(number: int) -> None:
    """S10, X26: others lead what lies there; the broker goes on with its other dir."""
    cluster = SimCluster(log_dirs="/data,/more")
    cluster.create("events", replicas=[[1, 2, 3], [1, 2, 3], [1, 2, 3], [1, 2, 3]])
    dirs = {index: cluster.held(1, "events", index).log.folder.split("/")[1] for index in range(4)}
    assert set(dirs.values()) == {"data", "more"}
    for index in range(4):
        write(cluster, "events", "a", index=index)
    cluster.machines[1].disk.fail(number, path="/more/*", times=None)
    bad = [index for index, name in dirs.items() if name == "more"]
    client = cluster.client(1)
    for index in bad:
        row = client.produce("events", one_batch("b"), index=index)
        assert row.error_code.name in ("kafka_storage_error", "not_leader_or_follower")
    for index in range(4):
        cluster.wait_led("events", index, by=2 if index in bad else 1)
        write(cluster, "events", "c", index=index)
        assert read(cluster, "events", index) == ["a", "c"]
    for index in bad:
        assert 1 not in cluster.isr("events", index)
    cluster.machines[1].disk.heal()
    cluster.kill(1)
    cluster.start(1)
    for index in range(4):
        cluster.wait_caught_up("events", index)
        assert_alike(cluster, "events", index)


def test_a_replica_that_was_moved_away_from_a_failed_dir_comes_back_with_that_dir_only() -> None:
    """S10: one in another dir beside it would be one too many when the failed dir is back."""
    cluster = SimCluster(log_dirs="/data,/more")
    disk = cluster.machines[1].disk
    cluster.create("events", replicas=[[1, 2, 3], [1, 2, 3]])
    bad = [cluster.held(1, "events", index).log.home.path for index in range(2)].index("/more")
    write(cluster, "events", "a", index=bad)
    cluster.wait_caught_up("events", bad)
    disk.fail(errno.EIO, path="/more/*", times=None)
    cluster.client(1).produce("events", one_batch("lost"), index=bad)
    cluster.wait_led("events", bad, by=2)
    assert reassign(cluster, "events", [2, 3], bad) == "none"
    cluster.wait(lambda: not moving(cluster), "it is moved away")
    assert reassign(cluster, "events", [2, 3, 1], bad) == "none"
    write(cluster, "events", "b", index=bad)
    cluster.run_for(5_000)
    disk.heal()
    cluster.kill(1)
    cluster.start(1)
    cluster.wait_isr("events", 1, 2, 3, index=bad)
    assert log_values(cluster, 1, "events", bad) == ["a", "b"]


def test_a_replica_comes_back_with_its_dir_only_that_failed_when_it_was_to_go() -> None:
    """S10: it was moved away, and there it is still."""
    cluster = SimCluster(log_dirs="/data,/more")
    disk = cluster.machines[1].disk
    cluster.create("events", replicas=[[2, 3, 1]])
    write(cluster, "events", "a")
    cluster.wait_caught_up("events")
    home = cluster.held(1, "events").log.home
    disk.fail(errno.EIO, operations=["rename"], path=f"{home.path}/events*", times=None)
    assert reassign(cluster, "events", [2, 3]) == "none"
    cluster.wait(lambda: home.failure is not None, "it cannot be taken away")
    cluster.wait(lambda: not moving(cluster), "it is moved away")
    assert reassign(cluster, "events", [2, 3, 1]) == "none"
    write(cluster, "events", "b")
    cluster.run_for(5_000)
    disk.heal()
    cluster.kill(1)
    cluster.start(1)
    cluster.wait_isr("events", 1, 2, 3)
    assert log_values(cluster, 1, "events") == ["a", "b"]


@pytest.mark.parametrize("again", [False, True])
def test_a_broker_starts_with_what_two_dirs_have_of_topics_that_are_gone(again: bool) -> None:
    """S10, T6: one was deleted while its dir was offline, the next of that name while the broker
    was down."""
    cluster = SimCluster(log_dirs="/data,/more")
    disk = cluster.machines[1].disk
    replicas = [[1, 2, 3], [1, 2, 3]]
    cluster.create("events", replicas=replicas)
    homes = [cluster.held(1, "events", index).log.home for index in range(2)]
    bad = [home.path for home in homes].index("/more")
    write(cluster, "events", "first", index=bad)
    cluster.wait_caught_up("events", bad)
    disk.fail(errno.EIO, path="/more/*", times=None)
    cluster.client(1).produce("events", one_batch("lost"), index=bad)
    cluster.wait_led("events", bad, by=2)
    assert delete_topic(cluster, "events") == "none"
    cluster.create("events", replicas=replicas)
    write(cluster, "events", "second", index=bad)
    cluster.wait_caught_up("events", bad)
    cluster.kill(1)
    assert delete_topic(cluster, "events") == "none"
    if again:
        cluster.create("events", replicas=[[2, 3], [2, 3]])
    disk.heal()
    cluster.start(1)
    cluster.run_for(5_000)
    assert [path for path in disk.view() if f"/events-{bad}/" in path] == []


def test_a_replica_that_was_moved_away_comes_back_although_another_dir_has_failed() -> None:
    """S10, X29: it was in the dir that is well, so nothing of it is in the other."""
    cluster = SimCluster(log_dirs="/data,/more")
    cluster.create("events", replicas=[[2, 3, 1], [2, 3, 1]])
    for index in range(2):
        write(cluster, "events", "a", index=index)
        cluster.wait_caught_up("events", index)
    cluster.kill(1)
    cluster.start(1)
    dirs = [cluster.held(1, "events", index).log.folder.split("/")[1] for index in range(2)]
    well, bad = dirs.index("data"), dirs.index("more")
    for index in range(2):
        cluster.wait_caught_up("events", index)
    cluster.machines[1].disk.fail(errno.EIO, path="/more/*", times=None)
    write(cluster, "events", "b", acks=1, index=bad)
    cluster.wait_isr("events", 2, 3, index=bad)
    assert reassign(cluster, "events", [2, 3], well) == "none"
    cluster.wait(lambda: not moving(cluster), "it is moved away")
    cluster.wait(lambda: cluster.replica(1, "events", well) is None, "it is removed")
    assert reassign(cluster, "events", [2, 3, 1], well) == "none"
    cluster.wait_isr("events", 1, 2, 3, index=well)
    write(cluster, "events", "c", index=well)
    assert log_values(cluster, 1, "events", well) == ["a", "c"]


# -- D12


def test_what_was_sent_of_a_range_that_is_cut_never_arrives_as_something_else(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """D12: pages are read as late as they leave, so their connections go before the cut."""
    caplog.set_level(logging.INFO, logger="tidelog.connection")
    for seed in range(6):
        cluster = SimCluster(seed=seed)
        second = cluster.controller
        first, third = (b for b in (1, 2, 3) if b != second)
        cluster.create("events", replicas=[[first, second, third]], max_message_bytes=10_000_000)
        write(cluster, "events", "a")
        cluster.wait_caught_up("events")
        cluster.cut(first, second)
        cluster.network.cut(f"machine-{first}", f"machine-{third}", one_way=True)
        client = cluster.client(first)
        for at in range(3):
            client.produce("events", one_batch(f"{at}" + "x" * 120_000), acks=1)
        cluster.run_for(20)
        cluster.session(first).expire()
        cluster.wait_led_elsewhere("events", first)
        cluster.network.mend()
        for at in range(3):
            write(cluster, "events", f"{at}" + "y" * 120_000)
        cluster.wait_caught_up("events")
        values = [value[:2] for value in log_values(cluster, third, "events")]
        assert values == ["a", "0y", "1y", "2y"]
        assert_alike(cluster, "events")
    assert "a part of what was sent is cut off" in caplog.text


def test_writes_go_on_when_a_follower_has_no_room_left(cluster: SimCluster) -> None:
    """S10, H9: it falls out of the set, and others are not held up for longer."""
    write(cluster, "events", "a")
    cluster.wait_caught_up("events")
    cluster.machines[3].disk.fail(errno.ENOSPC, path="/data/*")
    client = cluster.client(1)
    client.produce("events", one_batch("b"), acks=1)
    cluster.wait_isr("events", 1, 2)
    assert try_write(client, "events", "c") == "none"
    assert read(cluster, "events") == ["a", "b", "c"]


def test_a_new_replica_of_a_log_that_starts_within_a_batch_gets_all_of_it() -> None:
    """S5, T3: the batch is sent whole, and begins before the leader's log does."""
    cluster = SimCluster(4)
    cluster.create("events", replicas=[[1, 2, 3]])
    for at in range(0, 20, 10):
        write(cluster, "events", *map(str, range(at, at + 10)))
    cluster.wait_caught_up("events")
    client = cluster.client(1)
    send_delete_records(client, "events", 7, 5_000)
    client.wait()
    assert reassign(cluster, "events", [1, 2, 4]) == "none"
    cluster.wait(lambda: not moving(cluster), "it is moved")
    cluster.wait_caught_up("events")
    replica = cluster.held(4, "events")
    assert (replica.log.log_start_offset, replica.log.log_end_offset) == (7, 20)
    assert_alike(cluster, "events")
    for broker_id in (1, 2):
        cluster.kill(broker_id)
    cluster.wait(lambda: cluster.held(4, "events").is_led, "it leads")
    cluster.start(1)
    assert read(cluster, "events") == [str(number) for number in range(7, 20)]
