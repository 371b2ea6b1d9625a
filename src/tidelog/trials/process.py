"""A broker of the explorer: production machines and membership, without sockets or files.

It implements the `Host` that the controller's requests act on, and the `Peers` that they travel
by. What survives its death is on its `Disk`: model logs, and the high watermarks it had saved.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from tidelog.base.control import (
    ControlRequest,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    PartitionState,
    ReplicaStatePartition,
    ReplicaStatesRequest,
    ReplicaStatesResponse,
    ReplicaStateTopic,
    StopReplicaRequest,
    StopReplicaResponse,
)
from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.cluster.image import BrokerInfo
from tidelog.cluster.isr_writes import IsrWriter
from tidelog.cluster.messages import partition_info
from tidelog.cluster.metadata import Metadata
from tidelog.cluster.surroundings import Surroundings
from tidelog.replication.replica import Replica, Role
from tidelog.trials.coordinating import Coordinating, ToCoordinator
from tidelog.trials.exchange import Ask, Copy
from tidelog.trials.following import Fetcher
from tidelog.trials.hosts import HostLoop
from tidelog.trials.leading import Leading, Produce
from tidelog.trials.log_starts import DeleteRecords, LogStarts
from tidelog.trials.model_log import ModelLog
from tidelog.trials.network import Channel, Reply
from tidelog.trials.shards import shard_makers
from tidelog.trials.transacting import Transacting
from tidelog.trials.violation import Violation
from tidelog.world.sim.coordination import CoordinationFaults, SimCoordination
from tidelog.world.sim.entropy import SimEntropy

if TYPE_CHECKING:
    from tidelog.trials.world import World


OPENING_MS_MAX = 5
"""How long it takes a broker to open logs before it answers the controller."""


class Disk:
    """What a machine keeps."""

    def __init__(self) -> None:
        self.logs: dict[int, ModelLog] = {}
        self.topic_ids: dict[int, bytes] = {}
        """Whose each log is."""
        self.high_watermarks: dict[int, int] = {}

    def ends_at(self, index: int, end: int) -> None:
        """A log was cut, or has lost its end: as a log dir does, it saves no more than is there."""
        self.high_watermarks[index] = min(self.high_watermarks.get(index, 0), end)


class Read:
    __slots__ = ("index", "offset")

    def __init__(self, index: int, offset: int) -> None:
        self.index = index
        self.offset = offset


class Process:
    def __init__(self, world: "World", number: int, disk: Disk) -> None:
        self.world = world
        self.number = number
        self.disk = disk
        self.loop = HostLoop(world.loop)
        self.copies: dict[int, Copy] = {}
        self.is_ready = False
        self._controller_epoch = -1
        self._fetchers: dict[int, Fetcher] = {}
        self._channels: dict[int, Channel] = {}
        faults = CoordinationFaults(
            session_timeout_ms=world.options.session_timeout_ms, away_ms_max=200
        )
        self.coordination = SimCoordination(self.loop, world.ensemble, faults)
        around = Surroundings(
            coordination=self.coordination,
            clock=world.loop.clock,
            entropy=SimEntropy(world.next_number()),
            loop=self.loop,
            peers=self,
            host=self,
        )
        broker = BrokerInfo(
            broker_id=number, endpoints={"PLAINTEXT": ("localhost", 9_000 + number)}
        )
        self.metadata = Metadata(around, world.settings, broker)
        self.leading = Leading(self, IsrWriter(self.coordination))
        self.log_starts = LogStarts(self)
        self.transacting = Transacting(self)
        self.coordinating = Coordinating(self, shard_makers(self))

    # -- life

    def start(self) -> None:
        self.metadata.prepare(self._prepared)
        self.loop.call_at(self._soon(self.world.options.lag_ms_max // 2), self._look_at_sets)
        self.after(self._sync_gap_ms(), self._sync)

    def _prepared(self, error: Exception | None) -> None:
        if error is None:
            self.metadata.join(self._joined)
        else:
            self.trace_text(f"cannot be prepared: {error}")
            self.world.restart_later(self)

    def _joined(self, error: Exception | None) -> None:
        if error is None:
            self.is_ready = True
            self.trace_text("is in the cluster")
        else:
            self.trace_text(f"cannot join: {error}")
            self.world.restart_later(self)

    def _look_at_sets(self) -> None:
        self.leading.expire()
        self.loop.call_at(self._soon(self.world.options.lag_ms_max // 2), self._look_at_sets)

    def _sync(self) -> None:
        """What is durable, and which high watermark is saved, differs by partition."""
        draws = self.world.disk_draws
        for index, copy in self.copies.items():
            if draws.random() < 0.7:
                copy.log.sync()
            if draws.random() < 0.7:
                self.disk.high_watermarks[index] = copy.replica.high_watermark
        self.after(self._sync_gap_ms(), self._sync)

    def _sync_gap_ms(self) -> int:
        return 1 + int(self.world.disk_draws.random() * 2 * self.world.options.sync_gap_ms)

    def _soon(self, delay_ms: int) -> int:
        return self.loop.clock.monotonic_ms() + delay_ms

    def after(self, delay_ms: int, event: Callable[[], None]) -> None:
        self.world.loop.after(delay_ms, partial(self.loop.run_event, event))

    # -- what others send

    def receive(self, request: Any, reply: Reply) -> bool:
        if self.loop.is_dead:
            return False
        if isinstance(request, list):
            self.leading.fetch(request, reply)
        elif isinstance(request, Produce):
            self.leading.produce(request, reply)
        elif isinstance(request, Read):
            reply(self.leading.read(request.index, request.offset))
        elif isinstance(request, ToCoordinator):
            self.coordinating.receive(request, reply)
        elif isinstance(request, DeleteRecords):
            self.log_starts.delete(request.partition, request.before, reply)
        elif isinstance(request, tuple):
            self.transacting.receive(request, reply)
        else:
            self.metadata.handle(request, reply)
        return True

    def send(
        self, broker_id: int, request: ControlRequest, done: Callable[[Any | KafkaError], None]
    ) -> None:
        channel = self._channels.get(broker_id)
        if channel is None:
            channel = self._channels[broker_id] = Channel(self.world.network, self, broker_id)
        channel.call(request, partial(_answered, done))

    # -- what the controller says

    def leader_and_isr(
        self, request: LeaderAndIsrRequest, done: Callable[[LeaderAndIsrResponse], None]
    ) -> None:
        self._look_at_controller(request.controller_epoch, request.broker_epoch)
        for topic in request.topics:
            for state in topic.partitions:
                self._obey(topic.topic_id, state)
        if request.is_full:
            wanted = {state.index for topic in request.topics for state in topic.partitions}
            for index in [index for index in self.disk.logs if index not in wanted]:
                self._remove(index)
        for fetcher in self._fetchers.values():
            fetcher.go_on()
        delay_ms = int(self.world.disk_draws.random() * OPENING_MS_MAX)
        self.after(delay_ms, partial(done, LeaderAndIsrResponse(error_code=0, topics=())))

    def _look_at_controller(self, controller_epoch: int, broker_epoch: int) -> None:
        """V20: nothing is done for a controller that was deposed, or in a predecessor's place."""
        if controller_epoch < self._controller_epoch or broker_epoch != self.metadata.broker_epoch:
            raise Violation(
                "V20",
                f"broker {self.number} obeys a controller of epoch {controller_epoch} "
                f"as incarnation {broker_epoch}",
            )
        self._controller_epoch = controller_epoch

    def _obey(self, topic_id: bytes, state: PartitionState) -> None:
        index, epochs = state.index, (state.leader_epoch, state.partition_epoch)
        copy = self._copy(topic_id, index)
        replica = copy.replica
        if epochs < (replica.leader_epoch, replica.partition_epoch):
            return
        replica.min_isr = min(self.world.options.min_isr, len(state.replicas))
        replica.lag_ms_max = self.world.options.lag_ms_max
        if state.leader == self.number:
            self._lead(state)
        else:
            replica.become_follower(state.leader, epochs)
            self.trace("follows", index, "%d in epoch %d", state.leader, state.leader_epoch)
            if state.leader >= 0 and state.leader not in self._fetchers:
                self._fetchers[state.leader] = Fetcher(self, state.leader)
        self.touched(index)
        self.leading.changed(index)

    def _lead(self, state: PartitionState) -> None:
        index, replica = state.index, self.copies[state.index].replica
        goes_on = replica.role is Role.leader and replica.leader_epoch == state.leader_epoch
        if goes_on and replica.partition_epoch >= state.partition_epoch:
            return
        self.trace("leads", index, "in epoch %d, ISR %s", state.leader_epoch, state.isr)
        replica.elr = tuple(state.elr)
        epochs = (state.leader_epoch, state.partition_epoch)
        self.leading.infos[index] = partition_info(state)
        replica.become_leader(epochs, state.replicas, state.isr, self.loop.clock.monotonic_ms())
        self.copies[index].oracle.leads(self.number)

    def _copy(self, topic_id: bytes, index: int) -> Copy:
        """A log of another topic of the same name goes first."""
        if self.disk.topic_ids.get(index, topic_id) != topic_id:
            self._remove(index)
        copy = self.copies.get(index)
        if copy is None:
            log = self.disk.logs.get(index)
            if log is None:
                log = self.disk.logs[index] = self.world.new_log()
                self.disk.topic_ids[index] = topic_id
            else:
                log.reopen()
                self.disk.ends_at(index, log.log_end_offset)
            saved = self.disk.high_watermarks.get(index, 0)
            copy = Copy(log, Replica(self.number, log, saved, self._live_epoch), topic_id)
            copy.oracle = self.world.topics[topic_id].oracles[index]
            self.copies[index] = copy
            copy.oracle.started(self.number, copy)
        return copy

    def _live_epoch(self, broker_id: int) -> int | None:
        broker = self.metadata.image.brokers.get(broker_id)
        return None if broker is None else broker.epoch

    def stop_replica(
        self, request: StopReplicaRequest, done: Callable[[StopReplicaResponse], None]
    ) -> None:
        self._look_at_controller(request.controller_epoch, request.broker_epoch)
        for topic in request.topics:
            for stop in topic.partitions:
                copy = self.copies.get(stop.index)
                if copy is None or copy.topic_id != topic.topic_id:
                    continue
                if 0 <= stop.leader_epoch < copy.replica.leader_epoch:
                    continue
                if stop.delete:
                    self._remove(stop.index)
                else:
                    copy.replica.resign()
                    self.leading.changed(stop.index)
        done(StopReplicaResponse(error_code=0, topics=()))

    def _remove(self, index: int) -> None:
        """The replica is another broker's now: its log goes, and who waits for it is told."""
        self.trace("removes", index, "it is not to be here any more")
        copy = self.copies.get(index)
        if copy is not None:
            copy.replica.resign()
            self.leading.changed(index)
            del self.copies[index]
            self.leading.forget(index)
            self.transacting.forget(index)
        del self.disk.logs[index]
        self.disk.high_watermarks.pop(index, None)
        topic_id = self.disk.topic_ids.pop(index)
        self.world.topics[topic_id].oracles[index].removed(self.number)

    def replica_states(self, request: ReplicaStatesRequest) -> ReplicaStatesResponse:
        return ReplicaStatesResponse(
            error_code=0,
            topics=tuple(
                ReplicaStateTopic(
                    topic_id=topic.topic_id,
                    partitions=tuple(
                        self._report(topic.topic_id, asked.index, asked.leader_epoch)
                        for asked in topic.partitions
                    ),
                )
                for topic in request.topics
            ),
        )

    def _report(self, topic_id: bytes, index: int, leader_epoch: int) -> ReplicaStatePartition:
        copy = self.copies.get(index)
        if copy is None or copy.topic_id != topic_id:
            return ReplicaStatePartition(
                index=index,
                error_code=ErrorCode.kafka_storage_error,
                leader_epoch=leader_epoch,
                last_epoch=-1,
                log_end_offset=-1,
            )
        epoch = copy.replica.leader_epoch
        knows = epoch == leader_epoch and copy.replica.role is Role.nobody
        return ReplicaStatePartition(
            index=index,
            error_code=0 if knows else ErrorCode.unknown_leader_epoch,
            leader_epoch=epoch,
            last_epoch=copy.log.epochs.latest,
            log_end_offset=copy.log.log_end_offset,
        )

    def resign(self) -> None:
        self.trace_text("leads and follows nothing any more")
        for index, copy in self.copies.items():
            copy.replica.resign()
            self.leading.changed(index)

    # -- what is watched

    def touched(self, index: int) -> None:
        self.copies[index].oracle.touched(self.number)

    def matched(self, index: int) -> None:
        self.copies[index].oracle.matched(self.number)

    def proposed(self, index: int) -> None:
        self.copies[index].oracle.proposed(self.number, self._live_epoch)

    def deleted(self, copy: Copy, start: int) -> None:
        copy.oracle.deleted(copy.replica, start, self._live_epoch)

    def was_cut(self, index: int, before: int) -> None:
        copy = self.copies[index]
        log = copy.log
        self.world.counts.truncations += log.log_end_offset < before
        self.world.counts.logs_begun_anew += log.log_end_offset > before
        self.disk.ends_at(index, log.log_end_offset)
        copy.oracle.cut(self.number, log.log_end_offset)

    def trace(self, verb: str, index: int, what: str, *details: object) -> None:
        """The details are put in as in a log line: only if somebody looks."""
        if self.world.tracing is not None:
            self.world.tracing(f"broker {self.number} {verb} partition {index}: {what % details}")

    def trace_text(self, what: str) -> None:
        if self.world.tracing is not None:
            self.world.tracing(f"broker {self.number} {what}")


def _answered(done: Callable[[Any | KafkaError], None], answer: Any | None) -> None:
    if answer is None:
        done(KafkaError(ErrorCode.network_exception, "the connection was lost"))
    else:
        done(answer)


__all__ = ["Ask", "Disk", "Process", "Read"]
