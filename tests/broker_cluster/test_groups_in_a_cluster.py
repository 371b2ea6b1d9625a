"""Groups on whole brokers of a cluster: they survive the death of their coordinator, and nothing
that was acknowledged is lost with it (A5, V15)."""

import errno
from random import Random
from typing import Any

import pytest

from support.brokers import SimClient
from support.cluster_calls import assert_alike
from support.group_node import (
    FIND_COORDINATOR,
    HEARTBEAT,
    JOIN,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    SYNC,
    commit_row,
    join_values,
)
from support.sim_cluster import SimCluster
from tidelog.records.batch import HEADER_SIZE

OFFSETS = "__consumer_offsets"
AGAIN = ("not_coordinator", "coordinator_not_available", "coordinator_load_in_progress")
SETTINGS = {
    "offsets_topic_num_partitions": 1,
    "offsets_topic_replication_factor": 3,
    "group_initial_rebalance_delay_ms": 0,
}


class Group:
    """A member that is alone in its group, and finds its coordinator wherever it is."""

    def __init__(self, cluster: SimCluster) -> None:
        self.cluster = cluster
        self.client: SimClient | None = None
        self.who: dict[str, Any] = {}

    def coordinator(self) -> int:
        """The broker that looks after the group, as any other says."""
        cluster = self.cluster
        found: list[int] = []

        def is_found() -> bool:
            client = cluster.client(cluster.alive[0])
            answer = client.ask(FIND_COORDINATOR, 3, key="g", key_type=0)
            client.link.close()
            if answer.error_code.name == "none" and answer.node_id in cluster.alive:
                found.append(answer.node_id)
            return bool(found)

        cluster.wait(is_found, "there is a coordinator")
        return found[-1]

    def ask(self, key: int, version: int, **values: Any) -> Any:
        """The answer of the coordinator, once it is one."""
        for _ in range(200):
            client = self.cluster.client(self.coordinator())
            answer = client.ask(key, version, **values)
            client.link.close()
            if code_of(answer) not in AGAIN:
                return answer
            self.cluster.run_for(50)
        raise AssertionError("there is a coordinator that answers")

    def join(self) -> None:
        first = self.ask(JOIN, 9, **join_values())
        joined = self.ask(JOIN, 9, **join_values(first.member_id))
        self.who = {
            "group_id": "g",
            "member_id": joined.member_id,
            "group_instance_id": None,
            "generation_id": joined.generation_id,
        }
        work = [{"member_id": joined.member_id, "assignment": b"work"}]
        assert self.sync(work).assignment == b"work"

    def sync(self, work: Any = ()) -> Any:
        return self.ask(
            SYNC,
            5,
            **self.who,
            protocol_type="consumer",
            protocol_name="range",
            assignments=work,
        )

    def heartbeat(self) -> str:
        return str(self.ask(HEARTBEAT, 4, **self.who).error_code.name)

    def commit_values(self, offset: int) -> dict[str, Any]:
        values = {name: value for name, value in self.who.items() if name != "generation_id"}
        topic = {"name": "orders", "partitions": [commit_row(0, offset)]}
        epoch = {"generation_id_or_member_epoch": self.who["generation_id"]}
        return {**values, **epoch, "topics": [topic]}

    def commit(self, offset: int) -> str:
        return code_of(self.ask(OFFSET_COMMIT, 9, **self.commit_values(offset)))

    def committed(self) -> int:
        answer = self.ask(OFFSET_FETCH, 9, **fetch_values())
        return int(answer.groups[0].topics[0].partitions[0].committed_offset)


def fetch_values(*, is_stable: bool = True) -> dict[str, Any]:
    topics = [{"name": "orders", "partition_indexes": [0]}]
    group = {"group_id": "g", "member_id": None, "member_epoch": -1, "topics": topics}
    return {"groups": [group], "require_stable": is_stable}


def code_of(answer: Any) -> str:
    """The error of an answer, wherever its API has it."""
    if hasattr(answer, "error_code"):
        return str(answer.error_code.name)
    rows = answer.groups if hasattr(answer, "groups") else answer.topics[0].partitions
    return str(rows[0].error_code.name)


def new_group(seed: int = 0, **settings: Any) -> Group:
    cluster = SimCluster(seed=seed, **SETTINGS, **settings)
    cluster.create("orders")
    group = Group(cluster)
    group.join()
    cluster.wait_caught_up(OFFSETS)
    return group


@pytest.mark.parametrize("how", ["kill", "stop", "lose_power"])
def test_a_group_survives_the_death_of_its_coordinator(how: str) -> None:
    """A5: in the same generation, with the same work and offsets."""
    group = new_group()
    cluster = group.cluster
    assert group.commit(42) == "none"
    before = group.coordinator()
    getattr(cluster, how)(before)
    cluster.wait_led_elsewhere(OFFSETS, before)
    assert group.heartbeat() == "none"
    assert group.sync().assignment == b"work"
    assert group.committed() == 42
    assert group.commit(43) == "none"
    assert group.coordinator() != before


def test_a_group_survives_the_death_of_all_brokers() -> None:
    group = new_group()
    cluster = group.cluster
    assert group.commit(42) == "none"
    for broker_id in list(cluster.alive):
        cluster.kill(broker_id)
    for broker_id in cluster.machines:
        cluster.begin(broker_id)
    for broker_id in cluster.machines:
        cluster.wait_started(broker_id)
    cluster.wait_led(OFFSETS)
    assert group.committed() == 42
    assert group.heartbeat() == "none"


def test_a_coordinator_that_is_cut_off_acknowledges_nothing() -> None:
    """V15: what it was told after that is not the group's."""
    group = new_group()
    cluster = group.cluster
    assert group.commit(1) == "none"
    zombie = group.coordinator()
    client = cluster.client(zombie)
    cluster.isolate(zombie)
    client.send(OFFSET_COMMIT, 9, **group.commit_values(2))
    cluster.run_for(10_000)
    assert [code_of(answer) for answer in client.answers] != ["none"]
    cluster.session(zombie).expire()
    cluster.wait_led_elsewhere(OFFSETS, zombie)
    cluster.network.mend()
    assert group.commit(3) == "none"
    assert group.committed() == 3
    cluster.wait_caught_up(OFFSETS)
    assert group.committed() == 3


def test_a_coordinator_that_was_replaced_does_not_tell_transactions_where_to_begin() -> None:
    """V15: whoever reads again what was committed elsewhere writes what comes of it twice."""
    group = new_group()
    cluster = group.cluster
    assert group.commit(1) == "none"
    zombie = group.coordinator()
    client = cluster.client(zombie)
    assert code_of(client.ask(OFFSET_FETCH, 9, **fetch_values())) == "none"
    cluster.isolate(zombie)
    cluster.session(zombie).lose_connection(away_ms=60_000)
    cluster.wait(lambda: cluster.leader(OFFSETS) != zombie, "another one leads")
    new = cluster.leader(OFFSETS)
    cluster.wait(lambda: cluster.held(new, OFFSETS).is_led, "it knows")
    cluster.run_for(1000)
    values = group.commit_values(3)
    assert code_of(cluster.client(new).ask(OFFSET_COMMIT, 9, **values)) == "none"
    assert cluster.held(zombie, OFFSETS).is_led, "it does not know yet"
    assert code_of(client.ask(OFFSET_FETCH, 9, **fetch_values())) == "not_coordinator"


@pytest.mark.parametrize("is_stable", [True, False])
def test_too_few_replicas_are_told_to_who_asks_for_offsets_as_another_coordinator(
    is_stable: bool,
) -> None:
    group = new_group(min_insync_replicas=3)
    cluster = group.cluster
    assert group.commit(1) == "none"
    coordinator = group.coordinator()
    lost, stopped = (other for other in cluster.alive if other != coordinator)
    cluster.cut(coordinator, lost)
    client = cluster.client(coordinator)
    client.send(OFFSET_COMMIT, 9, **group.commit_values(2))
    client.send(OFFSET_FETCH, 9, **fetch_values(is_stable=is_stable))
    cluster.run_for(1000)
    assert not client.answers
    cluster.stop(stopped)
    cluster.wait(lambda: len(client.answers) == 2, "both are told", 5_000)
    codes = [code_of(answer) for answer in client.answers]
    assert codes == ["coordinator_not_available", "not_coordinator"]


RECORDS, OFFSET, LENGTH, ATTRIBUTES = HEADER_SIZE + 4, 6, 9, 22


def with_a_rotten_journal(where: int, bit: int, **settings: Any) -> tuple[Group, int]:
    """A group with 20 offsets committed one after the other; on the broker that comes to lead next
    a bit has changed in one of the batches."""
    group = new_group(**settings)
    cluster = group.cluster
    for offset in range(20):
        assert group.commit(offset) == "none"
    cluster.wait_caught_up(OFFSETS)
    leader = group.coordinator()
    order = cluster.replicas(OFFSETS)
    rotten = next(member for member in order if member != leader)
    log = cluster.held(rotten, OFFSETS).log
    number = log.log_end_offset - 10
    position = log.read(number, 1, log.log_end_offset).position
    path = log.segments.all[log.segments.at(number)].path(".log")
    cluster.stop(rotten)
    cluster.machines[rotten].disk.flip_bit(path, position + where, bit)
    cluster.start(rotten)
    cluster.wait_caught_up(OFFSETS)
    return group, rotten


@pytest.mark.parametrize(
    ("where", "bit"),
    [(RECORDS, 0), (OFFSET, 0), (LENGTH, 0), (ATTRIBUTES, 5)],
    ids=["records", "offset", "length", "control bit"],
)
@pytest.mark.parametrize("segment_bytes", [1 << 20, 1_000], ids=["one segment", "many segments"])
def test_a_coordinator_whose_journal_has_rotted_gives_way(
    where: int, bit: int, segment_bytes: int
) -> None:
    """F12, A5: nothing that was acknowledged is denied, and others have what is damaged."""
    group, rotten = with_a_rotten_journal(where, bit, offsets_topic_segment_bytes=segment_bytes)
    cluster = group.cluster
    victim = group.coordinator()
    cluster.kill(victim)
    cluster.wait_led(OFFSETS, by=rotten)
    assert group.committed() == 19
    assert group.heartbeat() == "none"
    cluster.start(victim)
    cluster.wait_caught_up(OFFSETS)
    assert_alike(cluster, OFFSETS)


def test_a_coordinator_that_is_alone_with_a_rotten_journal_waits_for_another() -> None:
    """F12: it can serve nobody, and goes on leading what nobody else has, until somebody has."""
    group, rotten = with_a_rotten_journal(RECORDS, 0)
    cluster = group.cluster
    others = [broker_id for broker_id in cluster.alive if broker_id != rotten]
    for broker_id in others:
        cluster.stop(broker_id)
    cluster.wait_led(OFFSETS, by=rotten)
    cluster.run_for(5_000)
    assert cluster.held(rotten, OFFSETS).is_led
    client = cluster.client(rotten)
    refused = code_of(client.ask(OFFSET_FETCH, 9, **fetch_values()))
    assert refused == "coordinator_not_available"
    cluster.start(others[0])
    cluster.wait_led(OFFSETS, by=others[0])
    assert group.committed() == 19
    cluster.wait_isr(OFFSETS, others[0], rotten)


def test_a_coordinator_whose_disk_fails_while_it_loads_is_followed_by_another() -> None:
    """S10."""
    group = new_group(log_dirs="/data,/more", min_insync_replicas=1)
    cluster = group.cluster
    assert group.commit(42) == "none"
    victim = group.coordinator()
    failing = next(member for member in cluster.replicas(OFFSETS) if member != victim)
    cluster.wait_caught_up(OFFSETS)
    path = cluster.held(failing, OFFSETS).log.segments.active.path(".log")
    cluster.machines[failing].disk.fail(errno.EIO, operations=["pread"], path=path)
    cluster.kill(victim)
    cluster.wait_led_elsewhere(OFFSETS, victim)
    assert group.committed() == 42
    assert group.coordinator() not in (victim, failing)


@pytest.mark.parametrize("seed", range(6))
def test_no_acknowledged_offset_is_lost_whenever_the_coordinator_dies(seed: int) -> None:
    """V15."""
    group, random = new_group(seed), Random(seed)
    cluster = group.cluster
    victim = group.coordinator()
    client = cluster.client(victim)
    for offset in range(60):
        client.send(OFFSET_COMMIT, 9, **group.commit_values(offset))
    cluster.run_for(random.randint(0, 12))
    acknowledged = [code_of(answer) for answer in client.answers].count("none")
    cluster.kill(victim)
    cluster.wait_led_elsewhere(OFFSETS, victim)
    found = group.committed()
    assert acknowledged - 1 <= found < 60
    assert group.heartbeat() == "none"


def test_too_few_replicas_are_told_as_no_coordinator() -> None:
    group = new_group()
    cluster = group.cluster
    coordinator = group.coordinator()
    for broker_id in list(cluster.alive):
        if broker_id != coordinator:
            cluster.kill(broker_id)
    cluster.run_for(6000)
    client = cluster.client(coordinator)
    answer = client.ask(OFFSET_COMMIT, 9, **group.commit_values(5))
    assert code_of(answer) == "coordinator_not_available"
