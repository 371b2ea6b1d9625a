"""What this broker holds replicas of, as the controller says: which it leads, which it follows.

A control request is applied partition by partition; one that is older than what is known is
ignored. Logs are made when they are first named. The first request of a controller names
everything the broker is to hold: what else lies on its disks belongs to topics that are gone, and
goes too (T6). A request may name thousands: it is applied in slices, between which the loop
does other things, and one request at a time.
"""

import logging
from collections.abc import Callable
from functools import partial
from typing import Final

from tidelog.base.control import (
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    PartitionError,
    PartitionState,
    ReplicaStatePartition,
    ReplicaStatesRequest,
    ReplicaStatesResponse,
    ReplicaStateTopic,
    StopPartition,
    StopReplicaRequest,
    StopReplicaResponse,
    StopTopic,
    TopicErrors,
    TopicState,
)
from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.base.ids import TopicPartition
from tidelog.base.log_settings import LogSettings
from tidelog.base.ports import Clock
from tidelog.cluster.image import NO_LEADER, PartitionInfo
from tidelog.cluster.messages import partition_info
from tidelog.disk_work import DiskWork
from tidelog.fetchers import Fetchers
from tidelog.following import Following, SaveStart
from tidelog.healing import check_sound, heal
from tidelog.in_sync import InSync
from tidelog.log.log_dir import LogDir
from tidelog.log.logs import Logs
from tidelog.partition import Partition
from tidelog.partitions import Partitions
from tidelog.placing import Placing
from tidelog.provision import Provision, states_in
from tidelog.replication.replica import Replica, Role
from tidelog.slices import Sliced, Slices
from tidelog.slow_appends import SlowAppends

_log = logging.getLogger("tidelog.hosting")

_GOOD: Final = int(ErrorCode.none)


class Hosting:
    def __init__(
        self,
        logs: Logs,
        partitions: Partitions,
        slow_appends: SlowAppends,
        in_sync: InSync,
        clock: Clock,
        work: DiskWork,
    ) -> None:
        self._partitions = partitions
        self._slow = slow_appends
        self._in_sync = in_sync
        self._clock = clock
        self._followings: dict[Partition, Following] = {}
        self._awaited: dict[Partition, PartitionInfo] = {}
        """What holds for a partition once nothing of before is being written to it."""
        self._slices = Slices(work.loop, clock)
        self._placing = Placing(logs, work, slow_appends)
        self._provision = Provision(logs, partitions, self._placing, self._remove)
        self.has_room_again = self._placing.has_room_again
        self._resignations = 0

    def connect(
        self,
        broker_id: int,
        broker_epochs: Callable[[int], int | None],
        settings_of: Callable[[str], LogSettings],
        fetchers: Fetchers,
        save_start: SaveStart,
        cannot_be_cut: Callable[[Partition], None],
    ) -> None:
        """Before the first request: who this is, under which epoch each broker is registered, the
        settings of a topic's logs, who fetches from leaders, how log starts become durable, and
        who heals a log that has rotted where it is to be cut."""
        self._broker_id = broker_id
        self._broker_epoch_of = broker_epochs
        self._settings_of = settings_of
        self._fetchers = fetchers
        self._save_start = save_start
        self._heal = cannot_be_cut

    @property
    def is_idle(self) -> bool:
        """Whether no request is being acted on."""
        return self._slices.is_idle

    # -- what the controller asks for

    def leader_and_isr(
        self, request: LeaderAndIsrRequest, done: Callable[[LeaderAndIsrResponse], None]
    ) -> None:
        failed = LeaderAndIsrResponse(error_code=int(ErrorCode.unknown_server_error))
        self._slices.run(self._leading_and_following(request, done), lambda: done(failed))

    def _leading_and_following(
        self, request: LeaderAndIsrRequest, done: Callable[[LeaderAndIsrResponse], None]
    ) -> Sliced:
        resignations = self._resignations
        yield from self._provision.providing(request, self._settings_of, self._broker_id)
        errors: dict[bytes, list[PartitionError]] = {}
        for topic, state in states_in(request):
            yield None
            if self._resignations != resignations:
                done(LeaderAndIsrResponse(error_code=int(ErrorCode.stale_broker_epoch)))
                return
            error = self._taken(topic, state)
            if error is not None:
                errors.setdefault(topic.topic_id, []).append(error)
        if request.is_full:
            yield partial(self._placing.delete, self._provision.let_go_of_strays(request))
        done(
            LeaderAndIsrResponse(
                error_code=_GOOD,
                topics=tuple(
                    TopicErrors(topic_id=topic_id, partitions=tuple(found))
                    for topic_id, found in errors.items()
                ),
            )
        )

    def _taken(self, topic: TopicState, state: PartitionState) -> PartitionError | None:
        try:
            self._take(topic, state)
        except KafkaError as error:
            _log.error("not taken partition=%s-%d why=%s", topic.name, state.index, error)
            return PartitionError(index=state.index, error_code=int(error.code))
        return None

    def _take(self, topic: TopicState, state: PartitionState) -> None:
        partition = self._partitions.held(topic.topic_id, state.index)
        if partition is None:
            partition = self._open(topic, state)
        partition.log.check_online()
        info = partition_info(state)
        if self._is_old(partition, info):
            return
        check_sound(partition, info, self._broker_id)
        if state.leader == self._broker_id:
            self._check_incarnation(partition, info)
        if self._goes_on(partition, info):
            partition.lead(info, self._clock.monotonic_ms())
            return
        self._unfollow(partition)
        partition.stop_leading()
        self._partitions.set_led(partition)
        self._awaited[partition] = info
        partition.when_idle(partial(self._begin, partition, info))

    def _goes_on(self, partition: Partition, info: PartitionInfo) -> bool:
        """Whether it is led here as before: nobody who waits need be sent away. What is being
        written belongs to the epoch in which that was begun."""
        is_new = info.leader_epoch != partition.leader_epoch
        return (
            partition.is_led
            and info.leader == self._broker_id
            and not (is_new and partition.is_busy)
        )

    def _is_old(self, partition: Partition, info: PartitionInfo) -> bool:
        """Whether it says nothing new. Who leads and follows nothing may have to be told the same
        again, but nothing from before."""
        awaited = self._awaited.get(partition)
        known = awaited or partition.state
        if known is None:
            return False
        is_nobody = partition.replica.role is Role.nobody and awaited is None
        is_same = info == known and partition.is_led == (info.leader == self._broker_id)
        age = (info.leader_epoch, info.state_version)
        return (is_same and not is_nobody) or age < (known.leader_epoch, known.state_version)

    def _check_incarnation(self, partition: Partition, info: PartitionInfo) -> None:
        """Whoever leads does so as the incarnation that was elected: another one may have lost
        what that one had (D9)."""
        if info.broker_epochs.get(self._broker_id) != self._broker_epoch_of(self._broker_id):
            raise KafkaError(
                ErrorCode.stale_broker_epoch,
                f"{partition.name} is to be led by an earlier incarnation of this broker",
            )

    def _begin(self, partition: Partition, info: PartitionInfo) -> None:
        """Leads or follows in a new epoch, once nothing of the old one is being written."""
        self._awaited.pop(partition, None)
        if partition.is_deleted:
            return
        if info.leader == self._broker_id:
            partition.lead(info, self._clock.monotonic_ms())
        else:
            partition.follow(info)
            heal(partition, self._clock.now_ms())
            if info.leader != NO_LEADER:
                following = Following(
                    partition,
                    self._clock,
                    self._slow,
                    self._fetchers,
                    self._save_start,
                    self._cannot_be_cut,
                )
                self._followings[partition] = following
                self._fetchers.follow(following, info.leader)
        self._partitions.set_led(partition)
        _log.debug(
            "role partition=%s leader=%d epoch=%d isr=%s",
            partition.name,
            info.leader,
            info.leader_epoch,
            info.isr,
        )

    def _unfollow(self, partition: Partition) -> None:
        self._awaited.pop(partition, None)
        following = self._followings.pop(partition, None)
        if following is not None:
            following.is_over = True
            self._fetchers.unfollow(following)

    def _cannot_be_cut(self, partition: Partition) -> None:
        self._unfollow(partition)
        self._heal(partition)

    def stop_replica(
        self, request: StopReplicaRequest, done: Callable[[StopReplicaResponse], None]
    ) -> None:
        failed = StopReplicaResponse(error_code=int(ErrorCode.unknown_server_error), topics=())
        self._slices.run(self._stopping(request, done), lambda: done(failed))

    def _stopping(
        self, request: StopReplicaRequest, done: Callable[[StopReplicaResponse], None]
    ) -> Sliced:
        gone: list[Partition] = []
        for topic in request.topics:
            for stop in topic.partitions:
                yield None
                self._stop(topic, stop, gone)
        yield partial(self._placing.delete, [partition.name for partition in gone])
        for partition in gone:
            yield None
            # Its dir may have failed over it.
            self._provision.removed(partition)
        done(StopReplicaResponse(error_code=_GOOD, topics=()))

    def _stop(self, topic: StopTopic, stop: StopPartition, gone: list[Partition]) -> None:
        partition = self._partitions.held(topic.topic_id, stop.index)
        if stop.delete:
            self._partitions.forget_offline(topic.name, topic.topic_id, stop.index)
        if partition is None:
            return
        known = self._awaited.get(partition, partition)
        if 0 <= stop.leader_epoch < known.leader_epoch:
            return
        self._unfollow(partition)
        if stop.delete:
            self._provision.removed(partition)
            self._partitions.remove(partition)
            gone.append(partition)
        else:
            partition.resign()
            self._partitions.set_led(partition)

    def replica_states(self, request: ReplicaStatesRequest) -> ReplicaStatesResponse:
        return ReplicaStatesResponse(
            error_code=_GOOD,
            topics=tuple(
                ReplicaStateTopic(
                    topic_id=topic.topic_id,
                    partitions=tuple(
                        self._state_of(topic.topic_id, asked.index, asked.leader_epoch)
                        for asked in topic.partitions
                    ),
                )
                for topic in request.topics
            ),
        )

    def _state_of(self, topic_id: bytes, index: int, leader_epoch: int) -> ReplicaStatePartition:
        """How far a replica is, if it knows of that epoch and follows nobody in it."""
        partition = self._partitions.held(topic_id, index)
        code, last_epoch, end = ErrorCode.none, -1, -1
        if partition is None or partition.log.home.failure is not None:
            code = ErrorCode.kafka_storage_error
        elif (
            partition.leader_epoch != leader_epoch
            or partition.replica.role is not Role.nobody
            or partition.is_busy
        ):
            code = ErrorCode.unknown_leader_epoch
        else:
            end, last_epoch, _ = partition.replica.fetch_position()
        return ReplicaStatePartition(
            index=index,
            error_code=int(code),
            leader_epoch=leader_epoch,
            last_epoch=last_epoch,
            log_end_offset=end,
        )

    def dirs_failed(self) -> None:
        """What lies in a log dir that has failed is neither led nor followed here any more."""
        for partition in list(self._partitions):
            if partition.log.home.failure is not None and partition.replica.role is not Role.nobody:
                _log.error("offline partition=%s why=its log dir has failed", partition.name)
                self._unfollow(partition)
                partition.resign()
                self._partitions.set_led(partition)
                self._partitions.set_offline(partition.topic, partition.topic_id, partition.index)

    def resign(self) -> None:
        """The session with the coordinator is over: leads and follows nothing until told."""
        self._resignations += 1
        for partition in list(self._partitions):
            self._unfollow(partition)
            partition.resign()
            self._partitions.set_led(partition)

    # -- logs

    def _open(self, topic: TopicState, state: PartitionState) -> Partition:
        name = TopicPartition(topic.name, state.index)
        try:
            log = self._provision.find(name)
        except KafkaError:
            self._partitions.set_offline(topic.name, topic.topic_id, state.index)
            raise
        log.configure(self._settings_of(topic.name))
        home = log.home
        assert isinstance(home, LogDir)
        watermark = home.high_watermarks.get(name, log.log_start_offset)
        replica = Replica(self._broker_id, log, watermark, self._broker_epoch_of)
        replica.lag_ms_max = self._in_sync.lag_ms_max
        partition = Partition(log, topic.topic_id, replica, self._slow, self._in_sync)
        if log.lost_from is not None:
            partition.damaged = log.segments.first
        self._partitions.forget_offline(topic.name, topic.topic_id, state.index)
        self._partitions.add(partition)
        return partition

    def _remove(self, name: TopicPartition) -> None:
        partition = self._partitions.held(name.topic, name.partition)
        if partition is not None:
            self._unfollow(partition)
            self._provision.removed(partition)
            self._partitions.remove(partition)
