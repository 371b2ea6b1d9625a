"""One node: the parts of a broker put together, started in order and stopped in order.

A start takes the log dirs, opens the coordinator, reads the cluster's metadata, opens the logs,
and only then lets clients in. From there on the broker follows the metadata: topics that come,
go, grow or change their settings do so in its logs. A stop answers what was accepted, makes
everything durable, and says so in the log dirs.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from tidelog.base.coordination import Coordination
from tidelog.base.errors import BadValue, KafkaError
from tidelog.base.ids import TopicPartition
from tidelog.base.log_settings import LogSettings
from tidelog.base.ports import (
    Clock,
    Disk,
    Entropy,
    Listener,
    Loop,
    Network,
    Pressure,
    Workers,
)
from tidelog.base.settings import Settings, read_listeners, read_protocol_map
from tidelog.cluster.effective import effective_log_settings
from tidelog.cluster.image import BrokerInfo, TopicInfo
from tidelog.cluster.metadata import Metadata
from tidelog.cluster.requests import Change
from tidelog.disk_work import DiskWork
from tidelog.handlers.api import Api
from tidelog.handlers.doors import Doors
from tidelog.handlers.table import APIS
from tidelog.housekeeping import Housekeeping
from tidelog.log.cleaner import Cleaner
from tidelog.log.log_dir import LogDir
from tidelog.log.logs import Logs
from tidelog.log.partition_log import PartitionLog
from tidelog.partition import Partition
from tidelog.partitions import Partitions
from tidelog.serving.counters import Counters
from tidelog.serving.fetch_sessions import FetchSessions
from tidelog.slow_appends import SlowAppends
from tidelog.wire.frames import ReceiveBuffers

STOP_MS_MAX: Final = 10_000
SESSION_EVICTION_MS: Final = 120_000

_log = logging.getLogger("tidelog.broker")


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """Everything outside the broker."""

    clock: Clock
    entropy: Entropy
    disk: Disk
    pressure: Pressure
    loop: Loop
    network: Network
    cleaning: Workers
    inspecting: Workers
    host_name: str
    """What clients are told where a listener names no host."""
    open_coordination: Callable[[str], Coordination]
    """Given the folder where an embedded coordinator keeps its tree."""


class Broker:
    def __init__(self, settings: Settings, world: World) -> None:
        self._static = settings
        self._world = world
        self._listeners: list[Listener] = []
        self._is_stopping = False
        self._coordination: Coordination | None = None
        self._metadata: Metadata | None = None
        self.clock = world.clock
        self.entropy = world.entropy
        self.loop = world.loop
        self.disk = world.disk
        self.apis: Mapping[int, Api] = APIS
        self.buffers = ReceiveBuffers()
        self.counters = Counters()
        self.partitions = Partitions()
        self.logs = Logs(
            [LogDir(path, world.disk, world.clock, world.cleaning) for path in settings.log_dirs]
        )
        self.sessions = FetchSessions(
            settings.whole("max.incremental.fetch.session.cache.slots"),
            SESSION_EVICTION_MS,
            lambda: int.from_bytes(world.entropy.random_bytes(4), "big") >> 1,
        )
        self.fetch_bytes_max = settings.whole("fetch.max.bytes")
        self.doors = Doors(self, lambda: self.settings, world.loop, world.clock)
        self._disk_work = DiskWork(world.loop)
        self.slow_appends = SlowAppends(
            self._disk_work, world.clock, world.inspecting, world.pressure
        )
        self.housekeeping = Housekeeping(
            self.logs,
            self.partitions,
            Cleaner(
                self.logs,
                world.cleaning,
                world.entropy,
                settings.whole("log.cleaner.dedupe.buffer.size"),
            ),
            lambda: self.settings,
            self._disk_work,
            world.clock,
        )

    # -- what handlers ask for

    @property
    def settings(self) -> Settings:
        return self._static if self._metadata is None else self._metadata.settings

    @property
    def metadata(self) -> Metadata:
        assert self._metadata is not None, "the broker has not been started"
        return self._metadata

    @property
    def broker_id(self) -> int:
        return self.metadata.broker_id

    @property
    def cluster_id(self) -> str:
        return self.metadata.cluster_id

    @property
    def endpoints(self) -> list[tuple[str, str, int]]:
        """Listener name, host and port of everything that is listened on."""
        wanted = read_listeners(self._static.text("listeners"))
        return [
            (listener.name, listener.host, taken.port)
            for listener, taken in zip(wanted, self._listeners, strict=True)
        ]

    # -- start

    def start(self, done: Callable[[Exception | None], None]) -> None:
        """`done` gets None when clients are let in, or why that cannot be."""
        try:
            identity = self.logs.take()
            self._listen()
            if self.logs.dirs[0].failure is not None:
                # Its tree is there; without it nothing is known of any topic.
                raise self.logs.dirs[0].failure
            self._coordination = self._world.open_coordination(f"{self.logs.dirs[0].path}/znodes")
            self._metadata = Metadata(
                self._coordination,
                self._static,
                self.clock,
                self.entropy,
                self.loop,
                self._broker_info(identity),
            )
        except (BadValue, KafkaError, OSError) as error:
            done(error)
            return
        self._metadata.on_change(self._changed)
        expected = identity.get("cluster.id")
        self._metadata.start(partial(self._started, done), expected)

    def _listen(self) -> None:
        for listener in read_listeners(self._static.text("listeners")):
            accept = partial(self.doors.accept, listener.name)
            try:
                taken = self._world.network.listen(listener.host, listener.port, accept)
            except OSError as error:
                raise BadValue(
                    f"cannot listen on {listener.host or '*'}:{listener.port}: "
                    f"{error.strerror}: stop what uses it, or set listeners"
                ) from error
            self._listeners.append(taken)

    def _broker_info(self, identity: Mapping[str, str]) -> BrokerInfo:
        settings = self._static
        broker_id = settings.whole("broker.id")
        if broker_id < 0 and "broker.id" in identity:
            broker_id = int(identity["broker.id"])
        rack = settings["broker.rack"]
        return BrokerInfo(
            broker_id=broker_id,
            endpoints=self._advertised(),
            protocols=read_protocol_map(settings.text("listener.security.protocol.map")),
            rack=None if rack is None else str(rack),
        )

    def _advertised(self) -> dict[str, tuple[str, int]]:
        """What clients are told, by listener. A port of 0 stands for the one that was taken."""
        taken = {name: port for name, _, port in self.endpoints}
        text = self._static["advertised.listeners"]
        listeners = read_listeners(self._static.text("listeners") if text is None else str(text))
        return {
            listener.name: (
                listener.host or self._world.host_name,
                listener.port or taken.get(listener.name, 0),
            )
            for listener in listeners
        }

    def _started(self, done: Callable[[Exception | None], None], error: Exception | None) -> None:
        if self._is_stopping:
            return
        if error is None:
            try:
                self._open_logs()
            except (BadValue, KafkaError, OSError) as wrong:
                error = wrong
        if error is not None:
            done(error)
            return
        self.housekeeping.start()
        self.doors.open()
        done(None)

    def _open_logs(self) -> None:
        identity = {"broker.id": str(self.broker_id), "cluster.id": self.cluster_id}
        self.logs.open(
            identity, lambda partition: self._log_settings(partition.topic), self._belongs
        )
        for topic in self.metadata.image.topics.values():
            self._open_partitions(topic, 0)

    def _belongs(self, partition: TopicPartition, topic_id: bytes | None) -> bool:
        """Whether a log that was found is a partition's of a topic that there is."""
        image = self.metadata.image
        topic = image.topics.get(partition.topic)
        if partition.topic in image.unreadable or (
            topic is not None
            and partition.partition < len(topic.partitions)
            and topic_id in (None, topic.topic_id)
        ):
            return True
        _log.warning("removing partition=%s why=its topic was deleted", partition)
        return False

    def _open_partitions(self, topic: TopicInfo, first: int, *, are_new: bool = False) -> None:
        for index in range(first, len(topic.partitions)):
            info = topic.partitions[index]
            if self.broker_id in info.replicas:
                log = self._find_log(topic, index, is_new=are_new)
                if log is None:
                    self.partitions.set_offline(topic.name, topic.topic_id, index)
                else:
                    self.partitions.add(
                        Partition(log, topic.topic_id, info.leader_epoch, self.slow_appends)
                    )

    def _find_log(self, topic: TopicInfo, index: int, *, is_new: bool) -> PartitionLog | None:
        """The log of a partition, made if it is not there; None if it may be in a dir that is
        offline: an empty one in its place would pass for all there ever was."""
        name = TopicPartition(topic.name, index)
        for log_dir in self.logs.online:
            if name in log_dir.logs:
                return log_dir.logs[name]
        if not self.logs.online or (not is_new and len(self.logs.online) < len(self.logs.dirs)):
            _log.error("offline partition=%s why=its log may be in a dir that is offline", name)
            return None
        try:
            return self.logs.create(name, self._log_settings(topic.name), topic.topic_id)
        except KafkaError as error:
            _log.error("offline partition=%s why=%s", name, error.message)
            return None

    # -- following the metadata

    def _changed(self, change: Change) -> None:
        for topic in change.created:
            self._open_partitions(topic, 0, are_new=True)
        for topic, before in change.grown:
            self._open_partitions(topic, before, are_new=True)
        self._delete_partitions(change.deleted)
        if change.broker_config:
            self._configure(list(self.partitions))
        elif change.topic_configs:
            changed = set(change.topic_configs)
            self._configure([p for p in self.partitions if p.topic in changed])

    def _delete_partitions(self, topics: Sequence[TopicInfo]) -> None:
        """All at once: what makes it durable takes as long for one as for a thousand."""
        gone: list[TopicPartition] = []
        for topic in topics:
            for index in range(len(topic.partitions)):
                partition = self.partitions.by_key.get((topic.topic_id, index))
                self.partitions.forget_offline(topic.name, topic.topic_id, index)
                if partition is not None:
                    self.partitions.remove(partition)
                    gone.append(partition.name)
        self.logs.delete(*gone)

    def _configure(self, partitions: list[Partition]) -> None:
        for partition in partitions:
            partition.configure(self._log_settings(partition.topic))

    def _log_settings(self, topic: str) -> LogSettings:
        return effective_log_settings(self.metadata.image, self.settings, topic)

    # -- stop

    def stop(self, done: Callable[[], None]) -> None:
        """Answers what was accepted, makes everything durable, and calls `done`."""
        self._is_stopping = True
        for listener in self._listeners:
            listener.close()
        self.housekeeping.stop()
        deadline_ms = self.clock.monotonic_ms() + STOP_MS_MAX
        self.doors.close(partial(self._wait_for_disk, done, deadline_ms), deadline_ms)

    def _wait_for_disk(self, done: Callable[[], None], deadline_ms: int) -> None:
        now_ms = self.clock.monotonic_ms()
        if self.slow_appends.is_idle and self._disk_work.is_idle:
            self._close(done)
        elif now_ms >= deadline_ms:
            # What is still being written must not be taken for whole by the next start.
            _log.error("stopped without closing the logs why=a disk does not come to an end")
            done()
        else:
            self.loop.call_at(now_ms + 10, partial(self._wait_for_disk, done, deadline_ms))

    def _close(self, done: Callable[[], None]) -> None:
        for partition in self.partitions:
            log_dir = partition.log.home
            assert isinstance(log_dir, LogDir)
            log_dir.high_watermarks[partition.name] = partition.high_watermark
        self.logs.close()
        if self._coordination is not None:
            self._coordination.close()
        done()
