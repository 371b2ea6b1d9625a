"""What this broker holds replicas of, as the controller says: which it leads, which it follows.

A control request is applied partition by partition; one that is older than what is known is
ignored. Logs are opened, or made, when they are first named. The first request of a controller
names everything the broker is to hold: what else lies on its disks belongs to topics that are
gone, and goes too (T6).
"""

import logging
from collections.abc import Callable
from functools import partial

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
from tidelog.fetchers import Fetchers
from tidelog.following import Following
from tidelog.in_sync import InSync
from tidelog.log.log_dir import LogDir
from tidelog.log.logs import Logs
from tidelog.log.partition_log import PartitionLog
from tidelog.partition import Partition
from tidelog.partitions import Partitions
from tidelog.replication.replica import Replica, Role
from tidelog.slow_appends import SlowAppends

_log = logging.getLogger("tidelog.hosting")

_GOOD = int(ErrorCode.none)


class Hosting:
    def __init__(
        self,
        logs: Logs,
        partitions: Partitions,
        slow_appends: SlowAppends,
        in_sync: InSync,
        clock: Clock,
    ) -> None:
        self._logs = logs
        self._partitions = partitions
        self._slow = slow_appends
        self._in_sync = in_sync
        self._clock = clock
        self._known: set[tuple[bytes, int]] | None = None
        """What was there at the start; a partition that is named later is a new one."""
        self._followings: dict[Partition, Following] = {}

    def connect(
        self,
        broker_id: int,
        broker_epochs: Callable[[int], int | None],
        settings_of: Callable[[str], LogSettings],
        fetchers: Fetchers,
    ) -> None:
        """Before the first request: who this is, under which epoch each broker is registered, the
        settings of a topic's logs, and who fetches from leaders."""
        self._broker_id = broker_id
        self._broker_epoch_of = broker_epochs
        self._settings_of = settings_of
        self._fetchers = fetchers

    # -- what the controller asks for

    def leader_and_isr(self, request: LeaderAndIsrRequest) -> LeaderAndIsrResponse:
        errors = [self._take_topic(topic) for topic in request.topics]
        if request.is_full:
            if self._known is None:
                self._known = {
                    (topic.topic_id, state.index)
                    for topic in request.topics
                    for state in topic.partitions
                }
            self._remove_strays(request)
        return LeaderAndIsrResponse(
            error_code=_GOOD, topics=tuple(found for found in errors if found.partitions)
        )

    def _take_topic(self, topic: TopicState) -> TopicErrors:
        errors: list[PartitionError] = []
        for state in topic.partitions:
            try:
                self._take(topic, state)
            except KafkaError as error:
                _log.error("not taken partition=%s-%d why=%s", topic.name, state.index, error)
                errors.append(PartitionError(index=state.index, error_code=int(error.code)))
        return TopicErrors(topic_id=topic.topic_id, partitions=tuple(errors))

    def _take(self, topic: TopicState, state: PartitionState) -> None:
        partition = self._partitions.held(topic.topic_id, state.index)
        if partition is None:
            partition = self._open(topic, state)
        partition.log.check_online()
        info = partition_info(state)
        known = partition.state
        if known is not None and partition.replica.role is not Role.nobody:
            if (state.leader_epoch, state.partition_epoch) < (
                known.leader_epoch,
                known.state_version,
            ):
                return
            if info == known and partition.is_led == (state.leader == self._broker_id):
                return
        if state.leader == self._broker_id:
            self._check_incarnation(partition, info)
        if partition.is_led and partition.leader_epoch == state.leader_epoch:
            partition.lead(info, self._clock.monotonic_ms())
            return
        self._unfollow(partition)
        partition.stop_leading()
        self._partitions.set_led(partition)
        partition.when_idle(partial(self._begin, partition, info))

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
        if partition.is_deleted:
            return
        if info.leader == self._broker_id:
            partition.lead(info, self._clock.monotonic_ms())
        else:
            partition.follow(info)
            if info.leader != NO_LEADER:
                following = Following(partition, self._clock, self._slow, self._fetchers)
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
        following = self._followings.pop(partition, None)
        if following is not None:
            following.is_over = True
            self._fetchers.unfollow(following)

    def stop_replica(self, request: StopReplicaRequest) -> StopReplicaResponse:
        gone: list[TopicPartition] = []
        for topic in request.topics:
            for stop in topic.partitions:
                self._stop(topic, stop, gone)
        self._logs.delete(*gone)
        return StopReplicaResponse(error_code=_GOOD, topics=())

    def _stop(self, topic: StopTopic, stop: StopPartition, gone: list[TopicPartition]) -> None:
        partition = self._partitions.held(topic.topic_id, stop.index)
        if stop.delete:
            self._partitions.forget_offline(topic.name, topic.topic_id, stop.index)
        if partition is None or 0 <= stop.leader_epoch < partition.leader_epoch:
            return
        self._unfollow(partition)
        if stop.delete:
            self._partitions.remove(partition)
            gone.append(partition.name)
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
        for partition in list(self._partitions):
            self._unfollow(partition)
            partition.resign()
            self._partitions.set_led(partition)

    # -- logs

    def _open(self, topic: TopicState, state: PartitionState) -> Partition:
        name = TopicPartition(topic.name, state.index)
        is_new = self._known is not None and (topic.topic_id, state.index) not in self._known
        try:
            log = self._find_log(name, topic.topic_id, is_new=is_new)
        except KafkaError:
            self._partitions.set_offline(topic.name, topic.topic_id, state.index)
            raise
        home = log.home
        assert isinstance(home, LogDir)
        watermark = home.high_watermarks.get(name, log.log_start_offset)
        replica = Replica(self._broker_id, log, watermark, self._broker_epoch_of)
        replica.lag_ms_max = self._in_sync.lag_ms_max
        partition = Partition(log, topic.topic_id, replica, self._slow, self._in_sync)
        self._partitions.forget_offline(topic.name, topic.topic_id, state.index)
        self._partitions.add(partition)
        return partition

    def _find_log(self, name: TopicPartition, topic_id: bytes, *, is_new: bool) -> PartitionLog:
        """The log of a partition, made if it is not there; but not if it may be in a dir that is
        offline: an empty one in its place would pass for all there ever was."""
        for log_dir in self._logs.online:
            log = log_dir.logs.get(name)
            if log is not None:
                if log_dir.topic_id(name) in (None, topic_id):
                    log.configure(self._settings_of(name.topic))
                    return log
                _log.warning("removing partition=%s why=it is of another topic of that name", name)
                log_dir.delete_log(name)
        if not is_new and len(self._logs.online) < len(self._logs.dirs):
            raise KafkaError(
                ErrorCode.kafka_storage_error, f"the log of {name} may be in a dir that is offline"
            )
        return self._logs.create(name, self._settings_of(name.topic), topic_id)

    def _remove_strays(self, request: LeaderAndIsrRequest) -> None:
        """What is on the disks and not in a full request is of a topic that was deleted, or of
        a replica that was moved away, while this broker was down."""
        wanted = {
            TopicPartition(topic.name, state.index)
            for topic in request.topics
            for state in topic.partitions
        }
        unreadable = set(request.unreadable)
        strays = [
            name
            for log_dir in self._logs.online
            for name in log_dir.logs
            if name not in wanted and name.topic not in unreadable
        ]
        for name in strays:
            _log.warning("removing partition=%s why=it is not to be here any more", name)
            partition = self._partitions.held(name.topic, name.partition)
            if partition is not None:
                self._unfollow(partition)
                self._partitions.remove(partition)
        self._logs.delete(*strays)
