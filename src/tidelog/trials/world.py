"""All of a simulated cluster: its machines, its ensemble, its network, its clients.

It starts, kills, pauses and restarts brokers; when and why is the part of `faults` and
`history`. Everything that is drawn comes from the seed, each purpose from a stream of its own.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial

from tidelog.base.coordination import Create, Watch, WatchKind
from tidelog.base.settings import Settings, Value
from tidelog.cluster import paths
from tidelog.cluster.topic_nodes import random_topic_id
from tidelog.cluster.znodes import encode_cluster_id, id_text
from tidelog.trials.clients import CLIENTS, Client, ClientHost
from tidelog.trials.counts import Counts
from tidelog.trials.journals import Batches
from tidelog.trials.leading import TOPIC
from tidelog.trials.model_log import ModelLog
from tidelog.trials.network import Network
from tidelog.trials.options import Options, draw_options
from tidelog.trials.oracle import Oracle
from tidelog.trials.process import Disk, Process
from tidelog.trials.stamped_log import StampedLog, Stamps
from tidelog.trials.topic import Topic
from tidelog.trials.tree import WatchedEnsemble
from tidelog.trials.turning import TrialLoop
from tidelog.trials.unclean import UncleanOracle
from tidelog.trials.violation import Violation
from tidelog.world.sim.entropy import SimEntropy

Tracing = Callable[[str], None]

GUARD_MS = 20
"""From the death of a process to the end of its session, and from its stop."""
CLOSING_MS = 2


class World:
    def __init__(
        self, seed: int, tracing: Tracing | None = None, options: Options | None = None
    ) -> None:
        """`options` are drawn from the seed unless they are given."""
        self.loop = TrialLoop(seed=seed)
        choices = self.loop.choices
        self.options = options or draw_options(choices.stream("options"))
        self.counts = Counts(histories=1)
        self.disk_draws = choices.stream("disk")
        self.client_draws = choices.stream("clients")
        self.member_draws = choices.stream("members")
        self.transactor_draws = choices.stream("transactors")
        self.loading_draws = choices.stream("loading")
        self.settings = _settings(self.options)
        min_isr = min(self.options.min_isr, self.options.replication_factor)
        partitions = self.options.partitions
        has_groups, has_transactions = self.options.members > 0, self.options.transactors > 0
        count = partitions + has_groups + has_transactions
        self.topic = Topic([self._oracle(i, min_isr) for i in range(count)])
        self.topics: dict[bytes, Topic] = {}
        """Those that were made, one after the other, by their ids."""
        self.oracles = self.topic.oracles
        self.group_journal = partitions if has_groups else None
        """The partition that plays `__consumer_offsets`."""
        self.transaction_journal = count - 1 if has_transactions else None
        """The partition that plays `__transaction_state`."""
        self.batches = Batches()
        self.stamps = Stamps()
        self.ensemble = WatchedEnsemble(self.loop.clock, self, self.counts)
        if not self.options.is_new:
            self._make_base_nodes()
        self.network = Network(self.loop, self.options)
        self.client_host = ClientHost(self)
        self.network.peers[CLIENTS] = self.client_host
        self.numbers = tuple(range(1, self.options.brokers + 1))
        self.disks = {number: Disk() for number in self.numbers}
        self.processes: dict[int, Process] = {}
        self.clients: list[Client] = []
        self.refused: set[int] = set()
        """Values that were refused for good."""
        self.abandoned: set[int] = set()
        """Values of writers with acks=1 that heard nothing and went on: if one comes after all, it
        comes late."""
        self.tracing: Tracing | None = None
        if tracing is not None:
            self.tracing = self.ensemble.tracing = partial(self._trace, tracing)
        self._numbers_given = 0
        self.unclean_asked = 0
        """Wishes for unclean elections that are not answered yet."""

    def _trace(self, tracing: Tracing, text: str) -> None:
        tracing(f"{self.loop.clock.monotonic_ms():6d} {text}")

    def _oracle(self, index: int, min_isr: int) -> Oracle:
        if self.options.unclean == "never":
            return Oracle(index, min_isr, self)
        return UncleanOracle(index, min_isr, self)

    def next_number(self) -> int:
        self._numbers_given += 1
        return self._numbers_given

    def _make_base_nodes(self) -> None:
        """What brokers leave in the ensemble when they start for the first time."""
        session_id = self.ensemble.begin_session(tell_nobody)
        made = [Create(path=path) for path in paths.BASE]
        cluster_id = encode_cluster_id(id_text(random_topic_id(SimEntropy(self.loop.choices.seed))))
        made.append(Create(path=paths.CLUSTER_ID, data=cluster_id))
        self.ensemble.write(session_id, made)
        self.ensemble.end_session(session_id)

    def new_log(self) -> ModelLog:
        log = ModelLog() if self.transaction_journal is None else StampedLog(self.stamps)
        log.may_repeat = self.options.delete_gap_ms > 0
        return log

    # -- machines

    def start(self, number: int) -> None:
        if number in self.processes:
            return
        process = Process(self, number, self.disks[number])
        self.processes[number] = process
        self.network.peers[number] = process
        if self.tracing is not None:
            self.tracing(f"broker {number} starts")
        process.start()

    def kill(self, number: int, *, machine: bool) -> bool:
        """The process dies, or the machine with what its disk had not made durable."""
        process = self.processes.pop(number, None)
        if process is None:
            return False
        process.loop.die()
        session_id = process.coordination.session_id
        process.coordination.die()
        for copy in process.copies.values():
            copy.oracle.stopped(number)
        if self.tracing is not None:
            self.tracing(f"broker {number} is killed{', its machine too' if machine else ''}")
        if machine:
            self._lose_power(number)
        else:
            self.network.drop(number)
            if self.options.guarded:
                self.loop.after(GUARD_MS, partial(self.ensemble.end_session, session_id))
        self.network.forget(process)
        return True

    def _lose_power(self, number: int) -> None:
        """Logs lose a part of what was not durable, as often as the min ISR lets them."""
        disk = self.disks[number]
        for index, log in disk.logs.items():
            oracle = self.topics[disk.topic_ids[index]].oracles[index]
            at_risk = log.log_end_offset - log.durable_end
            if at_risk and oracle.power_losses < oracle.min_isr - 1 and not oracle.is_exposed:
                lost = 1 + int(self.disk_draws.random() * at_risk)
                log.lose(lost)
                oracle.power_losses += 1
                self.counts.power_losses += 1
                if self.tracing is not None:
                    self.tracing(
                        f"broker {number} has lost {lost} records of partition {index}, "
                        f"which ends at {log.log_end_offset}"
                    )

    def stop(self, number: int) -> None:
        """A clean end: everything is durable, the session is closed."""
        process = self.processes.pop(number, None)
        if process is None:
            return
        if self.tracing is not None:
            self.tracing(f"broker {number} stops")
        for index, copy in process.copies.items():
            copy.log.sync()
            process.disk.high_watermarks[index] = copy.replica.high_watermark
            copy.oracle.stopped(number)
        process.metadata.close()
        session_id = process.coordination.session_id
        process.coordination.die()
        self.loop.after(CLOSING_MS, partial(self.ensemble.end_session, session_id))
        process.loop.die()
        self.network.drop(number)
        self.network.forget(process)

    def restart_later(self, process: Process) -> None:
        """A broker that could not come in is started again."""
        if self.processes.get(process.number) is process:
            self.kill(process.number, machine=False)
            self.loop.after(100, partial(self.start, process.number))

    def controller(self) -> Process | None:
        for process in self.processes.values():
            if process.metadata.controller_epoch is not None and not process.loop.is_paused:
                return process
        return None

    # -- the topic

    def topic_made(self, topic_id: bytes) -> list[Oracle]:
        if self.topics:
            self.counts.topics_made_again += 1
            for oracle in self.oracles:
                # What is late of the one before may come to this one.
                self.abandoned.update(oracle.acknowledged.values())
            min_isr = min(self.options.min_isr, self.options.replication_factor)
            self.topic = Topic([self._oracle(i, min_isr) for i in range(len(self.oracles))])
            self.oracles = self.topic.oracles
        self.topic.topic_id = topic_id
        self.topics[topic_id] = self.topic
        return self.oracles

    def topic_doomed(self) -> None:
        self.topic.doom()

    # -- unclean elections

    def may_be_unclean(self) -> bool:
        return self.options.unclean == "setting" or self.unclean_asked > 0

    def elected_uncleanly(self) -> None:
        self.counts.unclean_elections += 1

    def went_back(self, index: int, end: int) -> None:
        for client in self.clients:
            client.went_back(index, end)

    def gave_up(self, values: Iterable[int]) -> None:
        """A request of such a value that is late may bring it back after others."""
        for value in values:
            self.counts.records_given_up += 1
            self.abandoned.add(value)

    # -- what clients and oracles ask

    def live_epoch(self, broker_id: int) -> int | None:
        process = self.processes.get(broker_id)
        if process is None:
            return None
        epoch = self.ensemble.registered.get(broker_id)
        return epoch if epoch == process.metadata.broker_epoch else None

    def guess_leader(self, index: int) -> int:
        """Whom some broker takes for the leader."""
        number = self.numbers[int(self.client_draws.random() * len(self.numbers))]
        return self.leader_known_to(number, index)

    def leader_known_to(self, number: int, index: int) -> int:
        process = self.processes.get(number)
        if process is None or process.loop.is_paused:
            return -1
        topic = process.metadata.image.topics.get(TOPIC)
        if topic is None or index >= len(topic.partitions):
            return -1
        return topic.partitions[index].leader

    def guess_replica(self, index: int) -> int:
        leader = self.guess_leader(index)
        if leader < 0 or self.client_draws.random() < 0.4:
            return self.numbers[int(self.client_draws.random() * len(self.numbers))]
        return leader

    def read_refused(self, index: int, value: int) -> None:
        raise Violation("G1a", f"partition {index}: m{value} was refused, and read")


def tell_nobody(_watch: Watch, _kind: WatchKind, _path: str) -> None:
    raise AssertionError("who only writes leaves no watch")


class _Unchanged(Settings):
    """Nobody changes settings here, and to check all of them at each start of a broker would
    take a tenth of the time."""

    __slots__ = ()

    def with_changes(self, changes: Mapping[str, Value], *, cluster_wide: bool = False) -> Settings:
        return super().with_changes(changes, cluster_wide=cluster_wide) if changes else self


def _settings(options: Options) -> Settings:
    return _read_settings(options.min_isr, options.lag_ms_max, options.session_timeout_ms)


@cache
def _read_settings(min_isr: int, lag_ms_max: int, session_timeout_ms: int) -> Settings:
    return _Unchanged.from_properties(
        f"min.insync.replicas={min_isr}\nreplica.lag.time.max.ms={lag_ms_max}\n"
        f"replica.fetch.wait.max.ms={lag_ms_max}\nzookeeper.session.timeout.ms={session_timeout_ms}\n"
        "auto.leader.rebalance.enable=false\ngroup.initial.rebalance.delay.ms=20\n"
        "transaction.abort.timed.out.transaction.cleanup.interval.ms=100\n"
    )
