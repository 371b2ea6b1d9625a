"""A random walk of a whole simulated cluster: clients at work, faults at random, then a reckoning.

Writers send idempotent batches with acks=all and repeat each until it is acknowledged; readers
read from the leaders. Meanwhile brokers are killed, lose power (never so many that the settings
do not promise to survive it), stop, lose their sessions and their links. At the end all is
healed: every acknowledged record must be there once, at its offset, whatever a reader saw must
still be so, and all replicas must be alike.
"""

from functools import partial
from random import Random
from typing import Any

from support.brokers import SimClient
from support.cluster_calls import (
    ALTER_REASSIGNMENTS,
    ELECT_LEADERS,
    assert_alike,
    new_producer,
    numbered,
    read,
    records_of,
)
from support.sim_cluster import SimCluster

TOPIC = "walk"
PARTITIONS = 2
REPLICAS = 3
REQUEST_MS_MAX = 2_000
PAUSE_MS_MAX = 300
LARGE_BYTES = 300_000
ODDS = {
    "kill": 10,
    "lose_power": 6,
    "stop": 5,
    "start": 40,
    "cut": 8,
    "cut_one_way": 8,
    "mend": 20,
    "lose_connection": 6,
    "expire": 4,
    "elect": 6,
    "reassign": 6,
    "nothing": 30,
}


class Endpoint:
    """A client's connection to whichever broker it tries, made again when it is lost."""

    def __init__(self, walk: "Walk") -> None:
        self.walk = walk
        self.client: SimClient | None = None
        self.broker_id = 0
        self.life = 0
        self.sent_ms = 0
        self.had = 0
        self._rests_until_ms = 0

    def rests(self) -> bool:
        return self.walk.cluster.clock.monotonic_ms() < self._rests_until_ms

    def wake(self) -> None:
        self._rests_until_ms = 0

    def rest(self) -> None:
        pause_ms = self.walk.draw.randint(0, PAUSE_MS_MAX)
        self._rests_until_ms = self.walk.cluster.clock.monotonic_ms() + pause_ms

    def go_to(self, broker_id: int) -> bool:
        """Whether there is a connection now."""
        cluster = self.walk.cluster
        if self.client is not None and self.broker_id == broker_id and self._is_good():
            return True
        self.leave()
        if broker_id not in cluster.alive:
            return False
        self.client = cluster.client(broker_id)
        self.broker_id = broker_id
        self.life = id(cluster.process(broker_id))
        return True

    def leave(self) -> None:
        if self.client is not None and self.client.closed_why is None:
            self.client.link.close()
        self.client = None

    def _is_good(self) -> bool:
        cluster = self.walk.cluster
        assert self.client is not None
        is_same = (
            self.broker_id in cluster.alive and id(cluster.process(self.broker_id)) == self.life
        )
        return is_same and self.client.closed_why is None

    def asked(self) -> None:
        assert self.client is not None
        self.sent_ms = self.walk.cluster.clock.monotonic_ms()
        self.had = len(self.client.answers)

    def answer(self) -> Any | None:
        """What came; False if nothing will."""
        client = self.client
        assert client is not None
        if len(client.answers) > self.had:
            return client.answers[-1]
        is_late = self.walk.cluster.clock.monotonic_ms() - self.sent_ms > REQUEST_MS_MAX
        return False if is_late or not self._is_good() else None


class Writer:
    def __init__(self, walk: "Walk", number: int, producer_id: int) -> None:
        self._walk = walk
        self.end = Endpoint(walk)
        self._producer_id = producer_id
        self.index = number % PARTITIONS
        self._sequence = 0
        self._number = number
        self._value = self._next_value()
        self._is_waiting = False

    def step(self) -> None:
        if self._is_waiting:
            answer = self.end.answer()
            if answer is None:
                return
            self._is_waiting = False
            self.end.rest()
            if answer is False:
                self.end.leave()
            else:
                self._take(answer.responses[0].partition_responses[0])
        elif not self.end.rests() and self.end.go_to(self._walk.where_to(self.index)):
            batch = numbered(self._producer_id, self._sequence, self._value)
            assert self.end.client is not None
            self.end.client.send_produce(TOPIC, batch, index=self.index)
            self.end.asked()
            self._is_waiting = True

    def _next_value(self) -> str:
        """Now and then a large one, which is written beside the loop and sent from its file."""
        is_large = self._walk.draw.random() < 0.05
        return f"w{self._number}-{self._sequence}" + ("x" * LARGE_BYTES if is_large else "")

    def _take(self, row: Any) -> None:
        name = row.error_code.name
        self._walk.count(f"produce {name}")
        if name == "none":
            self._walk.acknowledge(self.index, row.base_offset, self._value)
            self._sequence += 1
            self._value = self._next_value()
        elif name == "out_of_order_sequence_number":
            # One that was deposed and does not know it has not seen what came since.
            assert self.end.broker_id != self._walk.cluster.leader(TOPIC, self.index)
        else:
            assert name in EXPECTED, f"{name}: {row.error_message}"


EXPECTED = {
    "not_leader_or_follower",
    "not_enough_replicas",
    "not_enough_replicas_after_append",
    "request_timed_out",
    "unknown_topic_or_partition",
    "kafka_storage_error",
}


class Reader:
    def __init__(self, walk: "Walk", index: int) -> None:
        self._walk = walk
        self.end = Endpoint(walk)
        self._index = index
        self._offset = 0
        self._is_waiting = False

    def step(self) -> None:
        if self._is_waiting:
            answer = self.end.answer()
            if answer is None:
                return
            self._is_waiting = False
            self.end.rest()
            if answer is False:
                self.end.leave()
            else:
                self._take(answer.responses[0].partitions[0])
        elif not self.end.rests() and self.end.go_to(self._walk.where_to(self._index)):
            assert self.end.client is not None
            self.end.client.send_fetch([(TOPIC, self._index, self._offset)], max_wait=300)
            self.end.asked()
            self._is_waiting = True

    def _take(self, row: Any) -> None:
        name = row.error_code.name
        self._walk.count(f"fetch {name}")
        if name == "offset_out_of_range":
            # Who names no leader epoch may be answered by one that was deposed long ago.
            assert self.end.broker_id != self._walk.cluster.leader(TOPIC, self._index)
            return
        assert name in EXPECTED | {"none"}, f"a reader at {self._offset} is told {name}"
        for record in records_of(row.records):
            if record.offset >= self._offset:
                assert record.offset == self._offset, "nothing is left out"
                self._walk.saw(self._index, record.offset, (record.value or b"").decode())
                self._offset = record.offset + 1


class Walk:
    def __init__(self, seed: int) -> None:
        self.draw = Random(f"{seed}/walk")
        self.brokers = range(1, REPLICAS + 1 + seed % 2)
        """Every other cluster has a broker more than there are replicas."""
        self.cluster = SimCluster(
            len(self.brokers),
            seed,
            replica_socket_timeout_ms=3_000,
            controller_socket_timeout_ms=3_000,
            log_segment_bytes=1_048_576,
        )
        self.cluster.create(TOPIC, PARTITIONS)
        self.counts: dict[str, int] = {}
        self.moves: list[tuple[int, str, int]] = []
        """For whoever looks at a run that failed."""
        self.acknowledged: list[dict[int, str]] = [{} for _ in range(PARTITIONS)]
        self.seen: list[dict[int, str]] = [{} for _ in range(PARTITIONS)]
        self._hurt: int | None = None
        """Who lost power last, until it has caught up."""
        client = self.cluster.client(1)
        self.writers = [Writer(self, at, new_producer(client)) for at in range(2 * PARTITIONS)]
        self.readers = [Reader(self, index) for index in range(PARTITIONS)]
        self.clients: list[Writer | Reader] = [*self.writers, *self.readers]

    def count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    def where_to(self, index: int) -> int:
        """Mostly the leader, as a client would have learned it."""
        leader = self.cluster.leader(TOPIC, index)
        if leader < 0 or self.draw.random() < 0.1:
            return self.draw.choice(self.brokers)
        return leader

    def acknowledge(self, index: int, offset: int, value: str) -> None:
        known = self.acknowledged[index]
        assert known.get(offset, value) == value, f"two records at {offset}"
        assert self.seen[index].get(offset, value) == value, f"a reader saw another at {offset}"
        known[offset] = value

    def saw(self, index: int, offset: int, value: str) -> None:
        for known in (self.seen[index], self.acknowledged[index]):
            assert known.get(offset, value) == value, f"what is at {offset} has changed (V8)"
        self.seen[index][offset] = value

    # -- the walk

    def run(self, moves: int) -> None:
        for _ in range(moves):
            self.one_move()
            self.pass_time(self.draw.choice((20, 50, 100, 300, 1_000)))
            self.clear_failed_starts()
        self.heal()
        self.reckon()

    def pass_time(self, duration_ms: int) -> None:
        end_ms = self.cluster.clock.monotonic_ms() + duration_ms
        while self.cluster.clock.monotonic_ms() < end_ms:
            for client in self.clients:
                client.step()
            self.cluster.run_for(20)

    def one_move(self) -> None:
        name = self.draw.choices(list(ODDS), list(ODDS.values()))[0]
        broker_id = self.draw.choice(self.brokers)
        self.moves.append((self.cluster.clock.monotonic_ms(), name, broker_id))
        is_alive = broker_id in self.cluster.alive
        if name == "start":
            if not is_alive:
                self.cluster.begin(broker_id)
        elif name in ("kill", "lose_power", "stop", "lose_connection", "expire"):
            if is_alive and (name != "lose_power" or self.may_lose_power(broker_id)):
                self.stir()
                getattr(self, f"do_{name}")(broker_id)
                self.count(name)
        elif name in ("cut", "cut_one_way"):
            other = self.draw.choice([n for n in self.brokers if n != broker_id])
            self.cluster.cut(broker_id, other, one_way=name == "cut_one_way")
            self.count(name)
        elif name == "mend":
            self.cluster.network.mend()
        elif name in ("elect", "reassign") and is_alive:
            getattr(self, f"do_{name}")(broker_id)
            self.count(name)

    def stir(self) -> None:
        """Has all clients ask for something, and what comes next fall in the middle of it."""
        for client in self.clients:
            client.end.wake()
            client.step()
        self.cluster.run_for(self.draw.choice((0, 1, 2, 3, 5, 8)))

    def do_kill(self, broker_id: int) -> None:
        self.cluster.kill(broker_id, guard=self.draw.random() < 0.8)

    def do_lose_power(self, broker_id: int) -> None:
        self._hurt = broker_id
        self.cluster.lose_power(broker_id, self.draw.choice(("all", "some", "none")))

    def do_stop(self, broker_id: int) -> None:
        if self.cluster.process(broker_id).started == [None]:
            self.cluster.stop(broker_id)

    def do_lose_connection(self, broker_id: int) -> None:
        for session in self.cluster.process(broker_id).sessions:
            session.lose_connection(away_ms=self.draw.choice((50, 1_000, 8_000)))

    def do_expire(self, broker_id: int) -> None:
        for session in self.cluster.process(broker_id).sessions:
            session.expire()

    def do_elect(self, broker_id: int) -> None:
        """Asks for preferred leaders; only the controller will do something."""
        client = self.cluster.client(broker_id)
        client.send(ELECT_LEADERS, 2, election_type=0, topic_partitions=None, timeout=5_000)

    def do_reassign(self, broker_id: int) -> None:
        """Moves a partition, or takes that back."""
        wanted = self.draw.sample(self.brokers, REPLICAS) if self.draw.random() < 0.7 else None
        index = self.draw.randrange(PARTITIONS)
        partition = {"partition_index": index, "replicas": wanted}
        topics = [{"name": TOPIC, "partitions": [partition]}]
        self.cluster.client(broker_id).send(ALTER_REASSIGNMENTS, 0, timeout=5_000, topics=topics)

    def may_lose_power(self, broker_id: int) -> bool:
        """One machine at a time may lose what it did not sync: min.insync.replicas is two. The
        next one may when that one is in sync everywhere again."""
        hurt = self._hurt
        if hurt is None or hurt == broker_id:
            return True
        return all(self._is_back(hurt, index) for index in range(PARTITIONS))

    def _is_back(self, broker_id: int, index: int) -> bool:
        """As the incarnation that runs now: the one before may still be registered."""
        process = self.cluster.machines[broker_id].process
        if process is None or process.started != [None]:
            return False
        state, epoch = self.cluster.state(TOPIC, index), process.broker.metadata.broker_epoch
        if broker_id not in self.cluster.replicas(TOPIC, index):
            return True
        is_member = state["broker_epochs"].get(str(broker_id)) == epoch
        return is_member and broker_id in state["isr"] and state["leader"] >= 0

    # -- the end

    def clear_failed_starts(self) -> None:
        """A process that could not start has ended; whoever runs it starts it again."""
        for broker_id in self.cluster.alive:
            if any(self.cluster.process(broker_id).started):
                self.count("failed start")
                self.cluster.kill(broker_id)

    def start_for_good(self, broker_id: int) -> None:
        """A session that is about to expire may end the first attempt."""
        for _ in range(3):
            self.clear_failed_starts()
            if broker_id not in self.cluster.alive:
                self.cluster.begin(broker_id)
            process = self.cluster.process(broker_id)
            self.cluster.wait(partial(bool, process.started), f"broker {broker_id} starts")
            if process.started == [None]:
                return
        raise AssertionError(f"broker {broker_id} does not start")

    def heal(self) -> None:
        self.cluster.network.mend()
        for broker_id in self.brokers:
            self.start_for_good(broker_id)
        for index in range(PARTITIONS):
            self.cluster.wait_led(TOPIC, index)
            self.cluster.wait_isr(TOPIC, index=index)
        before = [len(known) for known in self.acknowledged]
        self.pass_time(REQUEST_MS_MAX + 1_000)
        for index in range(PARTITIONS):
            assert len(self.acknowledged[index]) > before[index], "writers go on"
        for client in self.clients:
            client.end.leave()
        for index in range(PARTITIONS):
            self.cluster.wait_caught_up(TOPIC, index)

    def reckon(self) -> None:
        for index in range(PARTITIONS):
            assert_alike(self.cluster, TOPIC, index)
            values = read(self.cluster, TOPIC, index)
            assert len(set(values)) == len(values), "no record is there twice (V13)"
            for known in (self.acknowledged[index], self.seen[index]):
                for offset, value in known.items():
                    there = values[offset] if offset < len(values) else "nothing"
                    assert there == value, f"{index}: {there} at {offset}, {value} was promised"
