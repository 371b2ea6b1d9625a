"""Transactions through a cluster: brokers die, and each transaction is read whole or not at all
(A4, V13, V14, X28, X30)."""

from typing import Any

import pytest

from support.brokers import PRODUCE, SimClient
from support.cluster_calls import elect
from support.sim_cluster import SimCluster
from support.transactional import (
    END_TXN,
    FIND_COORDINATOR,
    INIT_PRODUCER_ID,
    LIST_TRANSACTIONS,
    TxnProducer,
    last_stable_offset,
    read_committed,
)
from tidelog.base.ids import TRANSACTION_STATE

OUT = "out"


class Cluster:
    """The port `Reach` of the producer."""

    def __init__(self, seed: int = 0, **settings: Any) -> None:
        self.sim = SimCluster(
            seed=seed,
            transaction_state_log_num_partitions=1,
            offsets_topic_num_partitions=1,
            **settings,
        )
        self._clients: dict[int, SimClient] = {}
        self.sim.create(OUT, replicas=[[1, 2, 3], [2, 3, 1], [3, 1, 2]])

    def _client(self, broker_id: int) -> SimClient:
        client = self._clients.get(broker_id)
        if client is None or client.closed_why is not None:
            client = self._clients[broker_id] = self.sim.client(broker_id)
        return client

    def leader(self, topic: str, index: int) -> SimClient:
        return self._client(self.sim.wait_led(topic, index))

    def coordinator(self, transactional_id: str) -> SimClient:
        find = {"key_type": 1, "coordinator_keys": [transactional_id]}
        while True:
            asked = self._client(self.sim.alive[0])
            (found,) = asked.ask(FIND_COORDINATOR, 4, **find).coordinators
            if found.error_code.name == "none" and found.node_id in self.sim.alive:
                return self._client(found.node_id)
            self.sim.run_for(50)

    def run_for(self, duration_ms: int) -> None:
        self.sim.run_for(duration_ms)

    def producer(self, name: str = "t", **options: Any) -> TxnProducer:
        made = TxnProducer(self, name, **options)
        assert made.init() == "none"
        return made

    @property
    def coordinator_id(self) -> int:
        return self.sim.wait_led(TRANSACTION_STATE)

    def kill(self, broker_id: int) -> None:
        self._clients.pop(broker_id, None)
        self.sim.kill(broker_id)

    def read(self) -> list[list[str]]:
        return [read_committed(self, OUT, index) for index in range(3)]


class Coordinated:
    """The port `Reach` where it is known who coordinates."""

    def __init__(self, sim: SimCluster, coordinator: int) -> None:
        self.sim = sim
        self._coordinator = coordinator

    def leader(self, topic: str, index: int) -> SimClient:
        return self.sim.client(self.sim.leader(topic, index))

    def coordinator(self, transactional_id: str) -> SimClient:
        del transactional_id
        return self.sim.client(self._coordinator)

    def run_for(self, duration_ms: int) -> None:
        self.sim.run_for(duration_ms)


@pytest.mark.parametrize("version", [1, 2])
def test_a_transaction_over_partitions_of_several_leaders_is_read_whole(version: int) -> None:
    """A4: markers go to leaders on other brokers."""
    cluster = Cluster()
    producer = cluster.producer(version=version)
    for number, commit in enumerate([True, False, True]):
        for index in range(3):
            assert producer.write(OUT, f"{number}", index=index) == "none"
        assert producer.end(commit=commit) == "none"
    cluster.run_for(500)
    assert cluster.read() == [["0", "2"]] * 3


@pytest.mark.parametrize("version", [1, 2])
def test_a_leader_that_dies_loses_no_transaction(version: int) -> None:
    """X28: the follower that leads then knows the producers, the open and the aborted ones."""
    cluster = Cluster()
    producer, other = cluster.producer(version=version), cluster.producer("other", version=version)
    other.write(OUT, "aborted")
    other.end(commit=False)
    cluster.run_for(200)
    producer.write(OUT, "a")
    leader = cluster.sim.wait_led(OUT)
    cluster.kill(leader)
    assert read_committed(cluster, OUT) == []
    assert producer.write(OUT, "b") == "none"
    assert producer.end() == "none"
    cluster.run_for(1_000)
    assert read_committed(cluster, OUT) == ["a", "b"]


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("version", [1, 2])
def test_a_coordinator_that_dies_before_the_markers_are_written_is_followed_by_one_that_does(
    version: int, commit: bool
) -> None:
    """V14: what was decided stays so, and a repeated EndTxn is answered with success."""
    cluster = Cluster()
    producer = cluster.producer(version=version)
    for index in range(3):
        producer.write(OUT, "a", index=index)
    coordinator = cluster.coordinator_id
    others = [broker_id for broker_id in (1, 2, 3) if broker_id != coordinator]
    shard = cluster.sim.broker(coordinator).coordinators.transactions.find("t")
    client = cluster.coordinator("t")
    asked = (producer.producer_id, producer.epoch)
    client.send(
        END_TXN,
        5 if version == 2 else 3,
        transactional_id="t",
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        committed=commit,
    )

    def is_prepared() -> bool:
        found = shard.find("t")
        return found is not None and found.status.name.startswith("Prepare")

    assert cluster.sim.loop.run_until(is_prepared)
    cluster.sim.wait_caught_up(TRANSACTION_STATE)
    cluster.kill(coordinator)
    assert cluster.coordinator_id in others
    assert producer.end(commit=commit) == "none", "repeated elsewhere"
    assert (producer.producer_id, producer.epoch) == (asked[0], asked[1] + (version == 2))
    cluster.run_for(2_000)
    assert cluster.read() == [["a"] * commit] * 3
    assert producer.write(OUT, "b") == "none"
    assert producer.end() == "none"


def test_who_leads_on_without_having_heard_of_another_ends_what_that_one_left() -> None:
    """V14: its markers are of an epoch that partitions have seen the end of."""
    sim = SimCluster(brokers=4)
    near = sim.controller
    first, second, far = (broker_id for broker_id in sim.alive if broker_id != near)
    sim.create(OUT, replicas=[[near], [far]])
    sim.create(TRANSACTION_STATE, replicas=[[second, first]], cleanup_policy="compact")
    sim.stop(second)
    sim.wait_led(TRANSACTION_STATE, by=first)
    sim.start(second)
    sim.wait_isr(TRANSACTION_STATE, first, second)
    reach = Coordinated(sim, first)
    producer = TxnProducer(reach, "t")
    producer.init()
    for index in range(2):
        producer.write(OUT, "a", index=index)
    for one, other in ((first, near), (first, far), (second, far)):
        sim.cut(one, other)
    assert producer.end() == "none"
    sim.wait_caught_up(TRANSACTION_STATE)
    assert elect(sim, TRANSACTION_STATE) == "none"
    sim.wait(lambda: read_committed(reach, OUT) == ["a"], "the second one has marked one of two")
    sim.kill(second)
    sim.wait(lambda: sim.leader(TRANSACTION_STATE) == first, "the first one leads again")
    assert sim.held(first, TRANSACTION_STATE).is_led, "it never heard that it did not"
    names = sim.machines[first].name, sim.machines[near].name
    for source, target in (names, names[::-1]):
        sim.network.link(source, target).mend()
    sim.run_for(5_000)
    sim.network.mend()
    sim.start(second)
    sim.wait(lambda: read_committed(reach, OUT, 1) == ["a"], "the other one is marked too")
    assert producer.write(OUT, "b") == "none"


def test_a_topic_that_the_coordinator_has_not_heard_of_holds_up_no_other() -> None:
    """X30: both partitions are asked for at once, and one of them is not there yet."""
    sim = SimCluster()
    coordinator, leader = (broker_id for broker_id in sim.alive if broker_id != sim.controller)
    sim.create(TRANSACTION_STATE, replicas=[[coordinator]], cleanup_policy="compact")
    sim.create(OUT, replicas=[[leader]])
    producer = TxnProducer(Coordinated(sim, coordinator), "t", version=2)
    producer.init()
    sim.cut(sim.controller, coordinator)
    assert sim.ask_create("new", replicas=[[leader]]).error_code.name == "none"
    sim.wait(lambda: sim.leader("new") == leader and sim.held(leader, "new").is_led, "it is led")
    partitions = {
        name: [{"index": 0, "records": producer.batch(name, 0, "a")}] for name in ("new", OUT)
    }
    answer = sim.client(leader).ask(
        PRODUCE,
        12,
        transactional_id="t",
        acks=-1,
        timeout=5_000,
        topic_data=[{"name": name, "partition_data": data} for name, data in partitions.items()],
    )
    codes = {row.name: row.partition_responses[0].error_code.name for row in answer.responses}
    assert codes == {"new": "unknown_topic_or_partition", OUT: "none"}


def test_a_coordinator_that_cannot_tell_what_is_open_does_not_say_that_nothing_is() -> None:
    """Whoever looks for transactions that keep readers waiting comes again then."""
    cluster = Cluster()
    assert cluster.producer("open").write(OUT, "a") == "none"
    coordinator = cluster.coordinator_id
    client = cluster.coordinator("open")
    listed = client.ask(LIST_TRANSACTIONS, 2)
    assert [row.transactional_id for row in listed.transaction_states] == ["open"]
    for other in {1, 2, 3} - {coordinator}:
        cluster.sim.cut(coordinator, other)
    begin = {"transactional_id": "late", "transaction_timeout": 60_000}
    cluster.sim.client(coordinator).send(INIT_PRODUCER_ID, 4, **begin)
    cluster.run_for(10)
    listed = client.ask(LIST_TRANSACTIONS, 2)
    assert listed.error_code.name == "coordinator_not_available"


def test_a_marker_finds_the_new_leader_of_its_partition() -> None:
    """Whoever leads when it is asked for, it is written until it is there."""
    cluster = Cluster()
    producer = cluster.producer()
    coordinator = cluster.coordinator_id
    index = next(i for i in range(3) if cluster.sim.wait_led(OUT, i) != coordinator)
    producer.write(OUT, "a", index=index)
    cluster.kill(cluster.sim.wait_led(OUT, index))
    assert producer.end() == "none"
    cluster.run_for(15_000)
    assert read_committed(cluster, OUT, index) == ["a"]
    assert last_stable_offset(cluster.leader(OUT, index), OUT, index) == 2


def test_a_transaction_of_a_topic_that_is_deleted_comes_to_its_end() -> None:
    cluster = Cluster()
    cluster.sim.create("gone", replicas=[[1, 2, 3]])
    producer = cluster.producer()
    producer.write("gone", "a")
    producer.write(OUT, "a")
    answer = cluster._client(cluster.sim.controller).ask(
        20, 6, topics=[{"name": "gone", "topic_id": bytes(16)}], timeout=5_000
    )
    assert answer.responses[0].error_code.name == "none"
    assert producer.end() == "none"
    cluster.run_for(5_000)
    assert read_committed(cluster, OUT) == ["a"]
    assert producer.write(OUT, "b") == "none"


def test_a_dead_producer_holds_up_readers_no_longer_than_its_timeout() -> None:
    """V14."""
    cluster = Cluster()
    producer = cluster.producer(timeout_ms=5_000)
    producer.write(OUT, "a")
    cluster.kill(cluster.coordinator_id)
    cluster.run_for(25_000)
    assert read_committed(cluster, OUT) == []
    assert last_stable_offset(cluster.leader(OUT, 0), OUT) == 2


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("seed", range(2))
def test_brokers_die_one_after_the_other_and_every_transaction_is_whole(
    seed: int, version: int
) -> None:
    """V13, V14: what was answered is read as it was answered, once, in order."""
    cluster = Cluster(seed)
    producer = cluster.producer(version=version)
    expected: list[str] = []
    for number in range(8):
        if number % 2:
            victim = cluster.sim.alive[(number + seed) % len(cluster.sim.alive)]
            cluster.kill(victim)
        for index in range(3):
            assert producer.write(OUT, f"{number}", index=index) == "none"
        commit = number % 3 != 2
        assert producer.end(commit=commit) == "none"
        expected += [f"{number}"] * commit
        if number % 2:
            cluster.sim.start(victim)
            for index in range(3):
                cluster.sim.wait_isr(OUT, 1, 2, 3, index=index)
            cluster.sim.wait_isr(TRANSACTION_STATE, 1, 2, 3)
    cluster.run_for(3_000)
    assert cluster.read() == [expected] * 3
