"""The in-sync set as whole brokers keep it: who falls out, who comes back, what that means."""

from typing import Any

import pytest

from support.brokers import one_batch
from support.cluster_calls import (
    ask_offset,
    describe,
    elect,
    read,
    reassign,
    try_write,
    write,
)
from support.sim_cluster import LAG_MS_MAX, SimCluster
from support.sim_machines import SESSION_TIMEOUT_MS
from tidelog.base.control import LeaderAndIsrRequest
from tidelog.base.coordination import SetData
from tidelog.log.steps import Steps
from tidelog.replication.isr import PendingShrink
from tidelog.serving.fetch_sessions import FIRST_EPOCH

FETCH_WAIT_MS_MAX = 500
"""A follower has asked at most so long ago."""


@pytest.fixture
def cluster() -> SimCluster:
    made = SimCluster()
    made.create("events", replicas=[[1, 2, 3]])
    return made


def now_ms(cluster: SimCluster) -> int:
    return cluster.clock.monotonic_ms()


def test_a_stuck_follower_falls_out_within_half_again_of_the_lag(cluster: SimCluster) -> None:
    """I1, I2: no fetch comes at all."""
    write(cluster, "events", "a")
    cluster.wait_caught_up("events")
    cluster.cut(3, 1)
    cluster.client(1).produce("events", one_batch("b"), acks=1)
    began_ms = now_ms(cluster)
    cluster.wait_isr("events", 1, 2)
    assert LAG_MS_MAX <= now_ms(cluster) - began_ms <= 1.5 * LAG_MS_MAX + 600
    assert cluster.held(1, "events").high_watermark == 2


def test_a_follower_that_has_everything_stays_while_nothing_is_written(
    cluster: SimCluster,
) -> None:
    """I1: it is at the log end."""
    write(cluster, "events", "a")
    cluster.wait_caught_up("events")
    cluster.run_for(5 * LAG_MS_MAX)
    assert cluster.isr("events") == [1, 2, 3]


def test_followers_stay_although_their_leader_takes_long_to_make_a_record_durable() -> None:
    """I1, A2: they have all that they have been told of, however long nothing was written."""
    cluster = SimCluster()
    cluster.create("events", replicas=[[1, 2, 3]], flush_messages=1)
    write(cluster, "events", "a")
    cluster.wait_caught_up("events")
    cluster.run_for(3 * LAG_MS_MAX)
    free_ms = now_ms(cluster) + LAG_MS_MAX

    def busy() -> Steps:
        while now_ms(cluster) < free_ms:
            yield lambda: None

    leader, partition = cluster.broker(1), cluster.held(1, "events")
    leader._disk_work.run("something long", leader.logs.dirs[0], busy())
    cluster.client(1).send_produce("events", one_batch("b"))
    cluster.run_for(LAG_MS_MAX - 100)
    assert (partition.log.log_end_offset, partition.log.recovery_point) == (2, 1)
    cluster.wait(lambda: partition.high_watermark == 2, "it is committed", 1_000)
    assert leader.in_sync.shrinks == 0


def test_a_follower_whose_session_has_ended_was_caught_up_until_then(cluster: SimCluster) -> None:
    """I1: it begins another, and before it has named all its partitions a record may come."""
    write(cluster, "events", "a")
    cluster.wait_caught_up("events")
    cluster.run_for(3 * LAG_MS_MAX)
    sessions = cluster.broker(1).sessions
    (session,) = (one for one in sessions._by_id.values() if one.follower == 3)
    cluster.cut(3, 1)
    began_ms = now_ms(cluster)
    sessions.open(session.id, FIRST_EPOCH, began_ms)
    cluster.client(1).produce("events", one_batch("b"), acks=1)
    cluster.wait_isr("events", 1, 2)
    assert now_ms(cluster) - began_ms >= LAG_MS_MAX - FETCH_WAIT_MS_MAX


def test_a_slow_follower_falls_out_although_it_fetches_without_pause() -> None:
    """I1, I6: it never reaches the end the leader had at its fetch before; how many records it
    lacks does not matter."""
    cluster = SimCluster(replica_lag_time_max_ms=2_000, replica_fetch_max_bytes=500)
    cluster.create("events", replicas=[[1, 2, 3]])
    cluster.network.link("machine-1", "machine-3").delay_ms_max = 800
    client = cluster.client(1)
    batch = one_batch("x" * 700)
    fetched_ms = []
    for _ in range(120):
        client.produce("events", batch, acks=1)
        cluster.run_for(50)
        fetched_ms.append(cluster.held(1, "events").replica.remotes[3].last_fetch_ms)
        if cluster.isr("events") == [1, 2]:
            break
    assert cluster.isr("events") == [1, 2]
    assert len(set(fetched_ms)) > 5, "it fetched all the time"


def test_a_follower_far_behind_in_records_stays_if_it_catches_up_in_time(
    cluster: SimCluster,
) -> None:
    """I6."""
    client = cluster.client(1)
    for _ in range(20):
        client.send_produce("events", one_batch(*map(str, range(1_000))), acks=1)
    client.wait()
    cluster.wait_caught_up("events")
    assert cluster.held(3, "events").log.log_end_offset == 20_000
    assert cluster.broker(1).in_sync.shrinks == 0


def test_a_follower_rejoins_at_the_high_watermark(cluster: SimCluster) -> None:
    """I3: not only when it has all the leader has."""
    cluster.cut(1, 3, one_way=True)
    client = cluster.client(1)
    assert try_write(client, "events", "a", acks=1) == "none"
    cluster.wait_isr("events", 1, 2)
    cluster.cut(1, 2, one_way=True)
    client.produce("events", one_batch("b"), acks=1)
    cluster.run_for(100)
    leader = cluster.held(1, "events")
    assert (leader.high_watermark, leader.log.log_end_offset) == (1, 2)
    link = cluster.network.link("machine-1", "machine-3")
    link.mend()
    cluster.wait(lambda: 3 in cluster.isr("events"), "it is back in the set")
    cluster.network.mend()
    cluster.wait_caught_up("events")


def test_an_isr_change_is_announced_and_every_broker_learns_of_it(cluster: SimCluster) -> None:
    """I4: a node under /isr_change_notification, which the controller takes away again."""
    cluster.create("quiet", replicas=[[2, 1, 3]])
    tree = cluster.ensemble.tree
    cluster.cut(2, 3)
    cluster.client(2).produce("quiet", one_batch("a"), acks=1)
    cluster.wait_isr("quiet", 1, 2)
    cluster.network.mend()
    cluster.wait(lambda: bool(tree.children("/isr_change_notification")), "it is announced")
    cluster.wait(lambda: not tree.children("/isr_change_notification"), "and taken note of")

    def shown(broker_id: int) -> list[int]:
        row = describe(cluster.client(broker_id), "quiet").topics[0].partitions[0]
        return sorted(row.isr_nodes)

    cluster.wait(lambda: shown(1) in ([1, 2], [1, 2, 3]), "the controller tells them")
    cluster.wait_isr("quiet")
    cluster.run_for(10_000)
    assert [shown(broker_id) for broker_id in (1, 2, 3)] == [[1, 2, 3]] * 3


def test_a_leader_that_was_deposed_cannot_change_the_set(cluster: SimCluster) -> None:
    """I4, X15: its write carries a version that no longer stands there."""
    write(cluster, "events", "a")
    path = "/brokers/topics/events/partitions/0/state"
    node = cluster.ensemble.tree.get(path)
    other = node.data.replace(b'"leader":1', b'"leader":2').replace(
        b'"leader_epoch":0', b'"leader_epoch":1'
    )
    assert other != node.data
    cluster.isolate(1)
    session = cluster.ensemble.begin_session(lambda *_: None)
    cluster.ensemble.write(session, [SetData(path=path, data=other)])
    cluster.client(1).produce("events", one_batch("b"), acks=1)
    cluster.run_for(2 * LAG_MS_MAX)
    assert cluster.ensemble.tree.get(path).data == other
    assert not cluster.held(1, "events").is_led, "it resigns"


def test_the_high_watermark_follows_the_set(cluster: SimCluster) -> None:
    """I5: with ends 9, 7, 6 it is 6; when the third falls out it is 7."""
    write(cluster, "events", *map(str, range(6)))
    cluster.wait_caught_up("events")
    client = cluster.client(1)
    cluster.cut(1, 3, one_way=True)
    client.produce("events", one_batch("6"), acks=1)
    cluster.wait(lambda: cluster.held(2, "events").log.log_end_offset == 7, "the second has 7")
    cluster.run_for(2_500)
    cluster.cut(1, 2, one_way=True)
    client.produce("events", one_batch("7", "8"), acks=1)
    leader = cluster.held(1, "events")
    assert (leader.high_watermark, leader.log.log_end_offset) == (6, 9)
    cluster.wait_isr("events", 1, 2)
    assert leader.high_watermark == 7


def test_a_new_leader_says_where_the_end_is_when_it_knows(cluster: SimCluster) -> None:
    """I5: its high watermark may be behind what readers have seen, until it has reached the start
    of its epoch; no reader is told that what it has read is out of range."""
    second = cluster.controller
    first, third = (broker_id for broker_id in (1, 2, 3) if broker_id != second)
    cluster.create("news", replicas=[[first, second, third]])
    write(cluster, "news", "a")
    cluster.wait(lambda: cluster.held(first, "news").high_watermark == 1, "it is committed")
    assert [cluster.held(b, "news").high_watermark for b in (second, third)] == [0, 0]
    cluster.cut(second, third)
    cluster.kill(first)
    leader = cluster.held(second, "news")
    cluster.wait(lambda: leader.is_led, "the second leads")
    client = cluster.client(second)
    assert (leader.high_watermark, leader.log.log_end_offset) == (0, 1)
    assert ask_offset(client, "news").error_code.name == "offset_not_available"
    found = client.fetch("news", 1)
    assert (found.error_code.name, found.records or b"") == ("none", b"")
    assert client.fetch("news", 2).error_code.name == "offset_out_of_range"
    cluster.network.mend()
    cluster.wait(lambda: leader.high_watermark == 1, "it is committed again")
    assert ask_offset(client, "news").offset == 1
    assert read(cluster, "news") == ["a"]


def test_followers_that_come_back_at_once_all_rejoin_an_idle_partition(
    cluster: SimCluster,
) -> None:
    """I3: while one is being written in, another has asked and has nothing to ask for again."""
    write(cluster, "events", "a")
    cluster.kill(2)
    cluster.kill(3)
    cluster.run_for(100)
    cluster.begin(2)
    cluster.begin(3)
    cluster.wait_isr("events")
    cluster.wait_caught_up("events")


@pytest.mark.parametrize("seed", range(5))
def test_a_follower_rejoins_although_its_leader_hears_of_its_return_late(seed: int) -> None:
    """I3, X19: it fetches before the leader knows its new registration, and then is idle."""
    cluster = SimCluster(seed=seed)
    cluster.create("events", replicas=[[1, 2, 3]])
    write(cluster, "events", "a")
    cluster.kill(3)
    cluster.run_for(100)
    controller = cluster.controller
    cluster.begin(3)
    for _ in range(40):
        cluster.run_for(5)
        if cluster.ensemble.tree.exists("/brokers/ids/3") is not None and controller != 1:
            cluster.cut(controller, 1, one_way=True)
            break
    cluster.run_for(1_000)
    cluster.network.mend()
    cluster.wait_isr("events")


def test_a_replica_that_was_away_and_leads_again_waits_for_what_it_wrote_before() -> None:
    """I4, X29: the coordinator has not answered what the replica wrote before it was moved away;
    there is one write at a time for a partition, whichever replica of it this is."""
    cluster = SimCluster(replica_lag_time_max_ms=200, replica_fetch_wait_max_ms=50)
    controller = cluster.controller
    leader, other = (broker_id for broker_id in (1, 2, 3) if broker_id != controller)
    cluster.create("events", replicas=[[leader, controller, other]])
    write(cluster, "events", "a")
    cluster.wait_caught_up("events")
    first = cluster.held(leader, "events")
    cluster.session(leader).lose_connection(done=0, away_ms=SESSION_TIMEOUT_MS - 100)
    fall_behind(cluster, other, leader)
    cluster.network.mend()
    assert reassign(cluster, "events", [controller, other]) == "none"
    cluster.wait(lambda: cluster.replica(leader, "events") is None, "it is moved away")
    assert reassign(cluster, "events", [leader, controller, other]) == "none"
    cluster.wait_isr("events")
    assert elect(cluster, "events") == "none"
    cluster.wait_led("events", by=leader)
    assert cluster.held(leader, "events") is not first
    fall_behind(cluster, other, leader)
    cluster.wait_isr("events", leader, controller)
    assert read(cluster, "events") == ["a", "b", "b"]


def fall_behind(cluster: SimCluster, follower: int, leader: int) -> None:
    """Until its leader proposes to go on without it."""
    cluster.cut(follower, leader)
    cluster.client(leader).produce("events", one_batch("b"), acks=1)
    replica = cluster.held(leader, "events").replica
    cluster.wait(lambda: isinstance(replica.isr, PendingShrink), "it is to go", 2_000)


def test_a_deposed_leader_does_not_lead_again_by_what_was_said_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """V5, X15, X17: of an epoch that is over, with a set that was smaller then."""
    cluster = SimCluster(4)
    controller = cluster.controller
    next_leader, leader, follower = (n for n in cluster.machines if n != controller)
    cluster.create("events", replicas=[[next_leader, leader, follower]])
    write(cluster, "events", "a")
    cluster.wait_caught_up("events")
    hosting, told = cluster.broker(leader).hosting, []
    obey = hosting.leader_and_isr

    def listen(request: LeaderAndIsrRequest, done: Any) -> None:
        told.append(request)
        obey(request, done)

    monkeypatch.setattr(hosting, "leader_and_isr", listen)
    cluster.kill(next_leader)
    cluster.wait_led("events", by=leader)
    late = told[-1]
    cluster.start(next_leader)
    cluster.wait(lambda: len(cluster.isr("events")) == 3, "all are in sync")
    cluster.run_for(2_000)
    cluster.cut(controller, leader)
    cluster.cut(controller, follower)
    assert elect(cluster, "events") == "none"
    cluster.wait(lambda: cluster.held(next_leader, "events").is_led, "another one leads")
    deposed = cluster.held(leader, "events")
    cluster.client(leader).produce("events", one_batch("b"), acks=1)
    cluster.wait(lambda: not deposed.is_led, "it sees that when it writes its set")
    answers: list[Any] = []
    cluster.broker(leader).metadata.handle(late, answers.append)
    cluster.wait(lambda: bool(answers), "what came late is looked at")
    assert not deposed.is_led
    assert try_write(cluster.client(leader), "events", "c") == "not_leader_or_follower"
