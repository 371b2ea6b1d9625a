"""What is promised to clients, and what is not, when replicas are missing.

A2, X3, X4, E3, E5: writes that too few replicas would hold are refused; what is lost by acks=1
and by an unclean election is exactly what they are documented to lose. T6, E4: deletion,
reassignment and preferred leaders while brokers come and go.
"""

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from typer.testing import CliRunner

from support.cluster_processes import BrokerProcess, Cluster, wait_until
from support.cluster_stage import Stage
from support.history_checker import Outcome, Send
from support.plain_clients import acknowledge, read, read_first, write
from support.replica_files import check_replicas
from support.workload import now
from tidelog.base.ids import TopicPartition
from tidelog.cli.main import app
from tidelog.client.client import Client
from tidelog.client.elections import elect_leaders
from tidelog.client.reassignments import alter_reassignments, list_reassignments

Tell = Callable[[str], None]

FIRST = [f"first-{number}" for number in range(20)]
SECOND = [f"second-{number}" for number in range(20)]
THIRD = [f"third-{number}" for number in range(20)]
TRIES_MAX = 4
WAITS: dict[str, Any] = {"socket.timeout.ms": 60_000, "message.timeout.ms": 60_000}
"""For what the leader says, however busy the machine is."""
FILTERS = (
    "under-replicated-partitions",
    "at-min-isr-partitions",
    "under-min-isr-partitions",
    "unavailable-partitions",
)


def test_below_min_isr_writes_are_refused_and_reads_go_on(stage: Stage) -> None:
    """A2, T5. Whoever leads anew, as after a pause longer than its session, cannot commit what it
    has while it is alone (D8), and says so; what is known to be committed is read all the same."""
    cluster, leader, epoch = stage.cluster, stage.leader, stage.epoch
    others = [broker for broker in cluster.brokers.values() if broker is not leader]
    wait_until(lambda: not described_as(leader, stage.topic), "nothing is missing")
    others[0].kill()
    at_minimum = {"under-replicated-partitions", "at-min-isr-partitions"}
    wait_until(lambda: described_as(leader, stage.topic) == at_minimum, "two are in sync")
    others[1].kill()
    wait_until(lambda: try_to_write(stage, "probe") == "NOT_ENOUGH_REPLICAS", "it is alone")
    assert cluster.tree.isr(stage.topic) == [leader.broker_id]
    below = {"under-replicated-partitions", "under-min-isr-partitions"}
    wait_until(lambda: described_as(leader, stage.topic) == below, "it is said that it is alone")
    assert try_to_write(stage, "refused", "fail") == "NOT_ENOUGH_REPLICAS"
    at = now()
    if stage.epoch == epoch:
        assert len(read(leader.address, stage.topic)) > 10
    assert len(read_first(leader.address, stage.topic, 10)) >= 10
    assert stage.workload.acknowledged(at, (stage.topic, 0)) is None
    for broker in others:
        broker.launch()
    for broker in others:
        broker.wait_until_started()
    stage.back("A2 below min ISR, two brokers started again", now(), seconds_max=10)
    stage.check()
    wait_until(lambda: not described_as(leader, stage.topic), "nothing is missing any more")


def described_as(broker: BrokerProcess, topic: str) -> set[str]:
    """What `tidelog topics describe` finds the first partition to be, if asked for it."""
    found = set()
    for name in FILTERS:
        where = ["--bootstrap-server", broker.address]
        command = ["topics", "describe", topic, f"--{name}", *where]
        ended = CliRunner().invoke(app, command, prog_name="tidelog")
        assert ended.exit_code == 0, ended.output
        if f"Topic: {topic}\tPartition: 0\t" in ended.stdout:
            found.add(name)
    return found


def is_known_to_be_offline(broker: BrokerProcess, topic: str) -> bool:
    return "unavailable-partitions" in described_as(broker, topic)


def try_to_write(stage: Stage, name: str, outcome: Outcome = "info") -> str:
    """What came of one record, which is part of the stage's history. A client may have tried twice
    and tell the second error: the record is certainly not there only if it could not be before."""
    key, invoked = (stage.topic, 0), now()
    value = f"{name}-{invoked}"
    (found,) = write(stage.leader.address, stage.topic, [value], **WAITS).values()
    row = Send(
        process=value,
        key=key,
        invoked=invoked,
        completed=now(),
        outcome=outcome,
        values=(value,),
        is_idempotent=False,
    )
    stage.workload.notes.append(row)
    return found


def test_acks_1_loses_what_only_a_dead_leader_had(cluster: Cluster, topic: str, tell: Tell) -> None:
    """X3, A1: and nothing of what was acknowledged to acks=all."""
    leader = kill_with_acks_1(cluster, topic)
    for number in range(1, TRIES_MAX):
        if len(cluster.tree.isr(topic)) > 1:
            break
        leader.start()
        topic = f"{topic}-{number}"
        leader = kill_with_acks_1(cluster, topic)
    wait_until(lambda: cluster.tree.leader(topic) not in (-1, leader.broker_id), "replaced")
    acknowledge(cluster.bootstrap, topic, THIRD)
    leader.start()
    cluster.wait_in_sync(topic)
    assert read(cluster.bootstrap, topic) == [*FIRST, *THIRD]
    check_all_replicas(cluster, topic, len(FIRST) + len(THIRD))
    tell(f"X3 acks=1: all {len(SECOND)} that only the dead leader had are lost, and no others")


def kill_with_acks_1(cluster: Cluster, topic: str) -> BrokerProcess:
    """A leader that was cut off and acknowledged for itself; that it is alone in the ISR by then
    is not meant, but on a busy machine writing may take so long."""
    cluster.create(topic)
    leader = cluster.leader(topic)
    acknowledge(cluster.bootstrap, topic, FIRST)
    others = cluster.names_except(leader.broker_id)
    cluster.links.cut(leader.name, others)
    acknowledge(leader.address, topic, SECOND, acks="1")
    leader.kill()
    for name in others:
        cluster.links.reset(leader.name, name)
    cluster.links.heal()
    return leader


def check_all_replicas(cluster: Cluster, topic: str, end: int) -> None:
    """They are the same, once all have caught up."""
    dirs = {broker_id: broker.log_dir for broker_id, broker in cluster.brokers.items()}
    deadline = time.monotonic() + 60
    while (wrong := check_replicas(dirs, topic, 0, end)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert wrong == []


def leave_one_alone(cluster: Cluster, topic: str, **configs: str) -> BrokerProcess:
    """X4: a leader that acknowledges while it is alone, then dies; the others are back."""
    cluster.create(topic, configs={"min.insync.replicas": "1", **configs})
    acknowledge(cluster.bootstrap, topic, FIRST)
    leader = cluster.leader(topic)
    others = [broker for broker in cluster.brokers.values() if broker is not leader]
    for broker in others:
        broker.kill()
    wait_until(lambda: cluster.tree.isr(topic) == [leader.broker_id], "it is alone")
    acknowledge(leader.address, topic, SECOND)
    leader.kill()
    for broker in others:
        broker.launch()
    for broker in others:
        broker.wait_until_started()
    return leader


def test_without_unclean_election_a_partition_waits_for_who_has_everything(
    cluster: Cluster, topic: str, tell: Tell
) -> None:
    """E3, E5, X4, D10, T5."""
    leader = leave_one_alone(cluster, topic)
    wait_until(lambda: cluster.tree.leader(topic) == -1, "it is offline")
    time.sleep(1)
    for alive in (broker for broker in cluster.brokers.values() if broker is not leader):
        wait_until(partial(is_known_to_be_offline, alive, topic), "it is said so")
        with Client(alive.address) as client:
            assert client.cluster([topic]).topic(topic).partitions[0].leader == -1
    assert cluster.tree.leader(topic) == -1
    at = now()
    leader.start()
    cluster.wait_in_sync(topic)
    tell(f"E5 the one that has everything is back, in sync after {(now() - at) / 1e9:.2f} s")
    assert read(cluster.bootstrap, topic) == [*FIRST, *SECOND]
    check_all_replicas(cluster, topic, len(FIRST) + len(SECOND))


@pytest.mark.parametrize("how", ["on request", "by setting"])
def test_an_unclean_election_loses_what_only_the_others_had(
    cluster: Cluster, topic: str, how: str, tell: Tell
) -> None:
    """E3, E5, X4."""
    setting = "true" if how == "by setting" else "false"
    leader = leave_one_alone(cluster, topic, **{"unclean.leader.election.enable": setting})
    if how == "on request":
        wait_until(lambda: cluster.tree.leader(topic) == -1, "it is offline")
        with Client(cluster.bootstrap) as client:
            partition = TopicPartition(topic, 0)
            assert elect_leaders(client, "unclean", [partition]) == {partition: None}
    wait_until(lambda: cluster.tree.leader(topic) not in (-1, leader.broker_id), "another leads")
    acknowledge(cluster.bootstrap, topic, THIRD)
    leader.start()
    cluster.wait_in_sync(topic)
    assert read(cluster.bootstrap, topic) == [*FIRST, *THIRD]
    check_all_replicas(cluster, topic, len(FIRST) + len(THIRD))
    tell(f"E3 unclean {how}: all {len(SECOND)} that only the dead leader had are lost, no others")


def test_what_is_deleted_while_a_broker_is_down_is_gone_when_it_is_back(stage: Stage) -> None:
    """T6: also when a topic of the same name was made meanwhile. Who writes and reads another topic
    all the while loses nothing by it."""
    cluster, topic, again = stage.cluster, f"{stage.topic}-gone", f"{stage.topic}-again"
    cluster.create(topic, 3)
    acknowledge(cluster.bootstrap, topic, FIRST)
    away = cluster.follower(topic)
    cluster.create(again)
    acknowledge(cluster.bootstrap, again, FIRST)
    away.kill()
    assert folders(away, topic)
    cluster.delete(topic)
    cluster.delete(again)
    two = [broker for broker in cluster.brokers if broker != away.broker_id]
    cluster.create(again, assignment=[two])
    away.start()
    for broker in cluster.brokers.values():
        wait_for_none(broker, topic)
    wait_for_none(away, again)
    acknowledge(cluster.bootstrap, again, SECOND)
    assert read(cluster.bootstrap, again) == SECOND
    stage.check()


def folders(broker: BrokerProcess, topic: str, partition: int | None = None) -> list[str]:
    """Of one partition or of all; also what is only renamed yet."""
    names = [path.name for path in broker.log_dir.iterdir() if path.is_dir()]
    found = [(name, *name.partition(".")[0].rpartition("-")[::2]) for name in names]
    return [n for n, whose, index in found if whose == topic and partition in (None, int(index))]


def wait_for_none(broker: BrokerProcess, topic: str, partition: int | None = None) -> None:
    what = f"broker {broker.name} has nothing of {topic}"
    wait_until(lambda: not folders(broker, topic, partition), what)


def test_replicas_are_moved_while_clients_are_at_work(make_stage: Callable[..., Stage]) -> None:
    """Two of three brokers hold it; the other takes the leader's place, then the follower's is
    taken by who had led. Who has left keeps nothing."""
    stage = make_stage(assignment=[[1, 2], [2, 3], [3, 1]])
    cluster, partition = stage.cluster, TopicPartition(stage.topic, 0)
    for target in ([3, 2], [1, 3]):
        at = now()
        stage.states.allow(0, target)
        with Client(cluster.bootstrap) as client:
            assert alter_reassignments(client, {partition: target}) == {partition: None}
            wait_until(lambda: not list_reassignments(client, [partition]), "it is done")
        assert cluster.tree.replicas(stage.topic)[0] == target
        stage.paused(f"a partition moved to {target}", at, seconds_max=1.5)
    stage.check()
    wait_for_none(cluster.brokers[2], stage.topic, partition=0)


def test_a_preferred_replica_leads_again_on_request(stage: Stage) -> None:
    """E4: after it was restarted, and is in sync."""
    cluster, partition = stage.cluster, TopicPartition(stage.topic, 0)
    preferred = cluster.tree.replicas(stage.topic)[0][0]
    assert cluster.leader_id(stage.topic) == preferred
    cluster.brokers[preferred].stop()
    cluster.brokers[preferred].start()
    cluster.wait_in_sync(stage.topic)
    assert cluster.leader_id(stage.topic) != preferred
    at = now()
    with Client(cluster.bootstrap) as client:
        assert elect_leaders(client, "preferred", [partition]) == {partition: None}
    assert cluster.leader_id(stage.topic) == preferred
    stage.paused("E4 the preferred replica leads again", at, seconds_max=1)
    stage.check()
