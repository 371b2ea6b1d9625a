"""One node: the parts of a broker put together, started in order and stopped in order.

A start takes the log dirs, opens the coordinator, opens the logs, and only then registers: from
there on the controller says what is led and followed here, and when it has said so for the first
time clients are let in. A stop has its partitions led elsewhere first, answers what was accepted,
makes everything durable, and says so in the log dirs.
"""

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from tidelog.base.control import ControlRequest
from tidelog.base.coordination import Coordination
from tidelog.base.errors import BadValue, KafkaError
from tidelog.base.log_settings import LogSettings
from tidelog.base.ports import Connection, Receiver
from tidelog.base.settings import Settings
from tidelog.base.world import World
from tidelog.cluster.effective import effective_log_settings
from tidelog.cluster.isr_writes import IsrWriter
from tidelog.cluster.metadata import Metadata
from tidelog.cluster.requests import Change
from tidelog.cluster.surroundings import Surroundings
from tidelog.coordinators import Coordinators, Place
from tidelog.disk_work import DiskWork
from tidelog.fetchers import Fetchers
from tidelog.handlers.api import Api
from tidelog.handlers.doors import Doors
from tidelog.handlers.table import APIS
from tidelog.handlers.transaction_calls import TransactionCalls
from tidelog.healing import Healing
from tidelog.hosting import Hosting
from tidelog.housekeeping import Housekeeping
from tidelog.in_sync import InSync
from tidelog.listening import Listening
from tidelog.log.cleaner import Cleaner
from tidelog.log.files import open_files_max
from tidelog.log.log_dir import LogDir
from tidelog.log.logs import Logs
from tidelog.partition import Partition
from tidelog.partitions import Partitions
from tidelog.peers.link import Address, Wiring
from tidelog.peers.peers import BrokerPeers
from tidelog.replication_throttles import FOLLOWER_REPLICAS, LeaderThrottle, is_named
from tidelog.serving.counters import Counters
from tidelog.serving.fetch_sessions import FetchSessions
from tidelog.slices import Slices
from tidelog.slow_appends import SlowAppends
from tidelog.verification import Verification
from tidelog.wire.frames import ReceiveBuffers

STOP_MS_MAX: Final = 10_000
ANSWERS_AWAY_MS_MAX: Final = 2_000
"""How long a stop waits for answers when some of them will never come: there is no coordinator."""
SESSION_EVICTION_MS: Final = 120_000
DIR_CHECK_MS: Final = 200

_log = logging.getLogger("tidelog.broker")


class _PeersOf:
    """The other brokers, as soon as this one has a number."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker

    def send(
        self, broker_id: int, request: ControlRequest, done: Callable[[Any | KafkaError], None]
    ) -> None:
        self._broker.peers.send(broker_id, request, done)


class Broker:
    def __init__(self, settings: Settings, world: World) -> None:
        self._static = settings
        self._world = world
        self._is_stopping = False
        self._coordination: Coordination | None = None
        self._metadata: Metadata | None = None
        self._peers: BrokerPeers | None = None
        self._fetchers: Fetchers | None = None
        self._identity: dict[str, str] = {}
        self._broker_epochs: dict[int, int] = {}
        self.clock = world.clock
        self.entropy = world.entropy
        self.loop = world.loop
        self.disk = world.disk
        self.inspecting = world.inspecting
        self.resolve = world.resolve
        self.descriptors = world.descriptors
        self.apis: Mapping[int, Api] = APIS
        self.buffers = ReceiveBuffers()
        self.counters = Counters()
        self.slices = Slices(world.loop, world.clock)
        self.partitions = Partitions()
        dirs, outside = settings.log_dirs, (world.disk, world.clock, world.cleaning)
        files_max = open_files_max(world.descriptors()[1], len(dirs))
        log_dirs = [LogDir(path, *outside, files_max) for path in dirs]
        self.logs = Logs(log_dirs, world.counted_descriptors)
        self.sessions = FetchSessions(
            settings.whole("max.incremental.fetch.session.cache.slots"),
            SESSION_EVICTION_MS,
            lambda: int.from_bytes(world.entropy.random_bytes(4), "big") >> 1,
        )
        self.fetch_bytes_max = settings.whole("fetch.max.bytes")
        self._listening = Listening(settings, world.host_name)
        self.inter_broker_listener = self._listening.inter_broker
        self.doors = Doors(self, lambda: self.settings, world.loop, world.clock)
        self._broker_doors = Doors(
            self, lambda: self.settings, world.loop, world.clock, for_brokers=True
        )
        self._disk_work = work = DiskWork(world.loop)
        self.slow_appends = SlowAppends(work, world.clock, world.inspecting, world.pressure)
        self.leader_throttle = LeaderThrottle(
            lambda: self.metadata.image, lambda: self.settings, world.loop, world.clock
        )
        self.in_sync = InSync(self.partitions, lambda: self.settings, world.clock, world.loop)
        self.hosting = Hosting(
            self.logs, self.partitions, self.slow_appends, self.in_sync, world.clock, work
        )
        self._calls = TransactionCalls(self)
        self.verification = Verification(world.loop, world.clock, self._calls)
        self.healing = Healing(self.partitions, lambda: self.metadata.log_dir_failed())
        self.coordinators = self._new_coordinators()
        self.partitions.on_led = self.coordinators.led_changed
        self.housekeeping = self._new_housekeeping()
        self.on_no_dir_left: Callable[[], None] = lambda: None
        """Called when the last log dir has failed: there is nothing left to serve."""

    def _new_coordinators(self) -> Coordinators:
        world = self._world
        place = Place(
            clock=world.clock,
            loop=world.loop,
            work=self._disk_work,
            slices=self.slices,
            healing=self.healing,
            image=lambda: self.metadata.image,
            settings=lambda: self.settings,
        )
        return Coordinators(
            place,
            world.entropy,
            self._calls.deliver,
            lambda done: self.metadata.next_producer_id(done),
        )

    def _new_housekeeping(self) -> Housekeeping:
        world = self._world
        memory_bytes = self._static.whole("log.cleaner.dedupe.buffer.size")
        return Housekeeping(
            self.logs,
            self.partitions,
            Cleaner(self.logs, world.cleaning, world.entropy, memory_bytes),
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
    def peers(self) -> BrokerPeers:
        assert self._peers is not None, "the broker has not been started"
        return self._peers

    @property
    def broker_id(self) -> int:
        return self.metadata.broker_id

    @property
    def cluster_id(self) -> str:
        return self.metadata.cluster_id

    @property
    def endpoints(self) -> list[tuple[str, str, int]]:
        """Listener name, host and port of everything that is listened on."""
        return self._listening.endpoints

    # -- start

    def start(self, done: Callable[[Exception | None], None]) -> None:
        """`done` gets None when clients are let in, or why that cannot be."""
        try:
            self._identity = self.logs.take()
            self._listening.start(self._world.network, self._accept)
            if self.logs.dirs[0].failure is not None:
                # An embedded tree is there; without it nothing is known of any topic.
                raise self.logs.dirs[0].failure
            self._coordination = self._world.open_coordination(f"{self.logs.dirs[0].path}/znodes")
            around = Surroundings(
                coordination=self._coordination,
                clock=self.clock,
                entropy=self.entropy,
                loop=self.loop,
                peers=_PeersOf(self),
                host=self.hosting,
            )
            self._metadata = Metadata(
                around, self._static, self._listening.broker_info(self._identity)
            )
        except (BadValue, KafkaError, OSError) as error:
            done(error)
            return
        self.metadata.on_change(self._changed)
        expected = self._identity.get("cluster.id")
        self.metadata.prepare(partial(self._prepared, done), expected)

    def _accept(self, listener: str, link: Connection) -> Receiver | None:
        is_broker = listener == self.inter_broker_listener
        return (self._broker_doors if is_broker else self.doors).accept(listener, link)

    def _join_up(self) -> None:
        """Makes what talks to the other brokers, now that this one has a number."""
        assert self._coordination is not None
        world = self._world
        wiring = Wiring(
            network=world.network,
            loop=world.loop,
            clock=world.clock,
            buffers=self.buffers,
            client_id=f"broker-{self.broker_id}",
        )
        make_peers = partial(
            BrokerPeers,
            wiring,
            self.broker_id,
            self._address_of,
            self.metadata.handle,
            self._static.whole("controller.socket.timeout.ms"),
        )
        self._peers = make_peers()
        self._calls.connect(make_peers)
        self._fetchers = Fetchers(
            wiring,
            self._address_of,
            self.settings,
            self.broker_id,
            lambda: self.metadata.broker_epoch,
            self._is_throttled,
        )
        self.hosting.connect(
            self.broker_id,
            self._epoch_of,
            self._log_settings,
            self._fetchers,
            self.housekeeping.persist_log_starts,
            self.healing.cannot_be_cut,
        )
        self.in_sync.start(IsrWriter(self._coordination), self.metadata.isr_changed)

    def _address_of(self, broker_id: int) -> Address | None:
        """A controller knows of a broker before the others are told of it."""
        controller = self.metadata.controller
        image = self.metadata.image if controller is None else controller.realm.image
        broker = image.brokers.get(broker_id)
        if broker is None or self.inter_broker_listener is None:
            return None
        return broker.endpoints.get(self.inter_broker_listener)

    def _is_throttled(self, topic_id: bytes, index: int) -> bool:
        return is_named(self.metadata.image, topic_id, index, self.broker_id, FOLLOWER_REPLICAS)

    def _epoch_of(self, broker_id: int) -> int | None:
        """The epoch under which a broker is registered, as far as is known here."""
        if broker_id == self.broker_id:
            return self.metadata.broker_epoch
        broker = self.metadata.image.brokers.get(broker_id)
        return None if broker is None else broker.epoch

    def _prepared(self, done: Callable[[Exception | None], None], error: Exception | None) -> None:
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
        self._join_up()
        self._broker_doors.open()
        self.metadata.join(partial(self._joined, done))

    def _open_logs(self) -> None:
        identity = {"broker.id": str(self.broker_id), "cluster.id": self.cluster_id}
        self.logs.open(
            identity, lambda log: self._log_settings(log.topic), self.metadata.image.may_be
        )

    def _joined(self, done: Callable[[Exception | None], None], error: Exception | None) -> None:
        if self._is_stopping:
            return
        if error is None:
            self.housekeeping.start()
            self.doors.open()
            self._look_at_dirs(0)
        done(error)

    def _look_at_dirs(self, known: int) -> None:
        """Tells the controller of a log dir that has failed: others shall lead what lies there. Has
        it name again what could not be made for want of files, when there are enough."""
        if self._is_stopping:
            return
        if not self.logs.online:
            self.on_no_dir_left()
        failed = len(self.logs.dirs) - len(self.logs.online)
        if failed > known:
            self.hosting.dirs_failed()
        if failed > known or self.hosting.has_room_again():
            self.metadata.log_dir_failed()
        at_ms = self.clock.monotonic_ms() + DIR_CHECK_MS
        self.loop.call_at(at_ms, partial(self._look_at_dirs, failed))

    # -- following the metadata

    def _changed(self, change: Change) -> None:
        epochs = {broker.broker_id: broker.epoch for broker in self.metadata.image.brokers.values()}
        if epochs != self._broker_epochs:
            self._broker_epochs = epochs
            self.in_sync.brokers_changed()
        if change.created or change.deleted or change.grown:
            self.coordinators.topics_changed()
        if change.broker_config or change.topic_configs:
            changed, all_of_them = set(change.topic_configs), change.broker_config
            self._configure([p for p in self.partitions if all_of_them or p.topic in changed])
            self.leader_throttle.configure()
            if self._fetchers is not None:
                self._fetchers.configure(self.settings)

    def _configure(self, partitions: list[Partition]) -> None:
        for partition in partitions:
            partition.configure(self._log_settings(partition.topic))

    def _log_settings(self, topic: str) -> LogSettings:
        return effective_log_settings(self.metadata.image, self.settings, topic)

    # -- stop

    def stop(self, done: Callable[[], None]) -> None:
        """Has others lead, answers what was accepted, makes everything durable, calls `done`."""
        self._is_stopping = True
        if self._metadata is None:
            self._leave(done)
        else:
            self._metadata.leave(partial(self._leave, done))

    def _leave(self, done: Callable[[], None]) -> None:
        self._listening.close()
        self.coordinators.stop()
        self.housekeeping.stop()
        self.in_sync.stop()
        self.leader_throttle.close()
        if self._fetchers is not None:
            self._fetchers.close()
        now_ms = self.clock.monotonic_ms()
        is_away = self._metadata is not None and not self._metadata.is_connected
        answers_ms_max = ANSWERS_AWAY_MS_MAX if is_away else STOP_MS_MAX
        closed = partial(self._wait_for_disk, done, now_ms + STOP_MS_MAX)
        self.doors.close(closed, now_ms + answers_ms_max)

    def _wait_for_disk(self, done: Callable[[], None], deadline_ms: int) -> None:
        now_ms = self.clock.monotonic_ms()
        is_idle = self.slow_appends.is_idle and self._disk_work.is_idle and self.hosting.is_idle
        if is_idle or now_ms >= deadline_ms:
            self._broker_doors.close(partial(self._close, done, is_idle), now_ms)
        else:
            self.loop.call_at(now_ms + 10, partial(self._wait_for_disk, done, deadline_ms))

    def _close(self, done: Callable[[], None], is_idle: bool) -> None:
        if is_idle:
            for partition in self.partitions:
                log_dir = partition.log.home
                assert isinstance(log_dir, LogDir)
                log_dir.high_watermarks[partition.name] = partition.high_watermark
            self.logs.close()
        else:
            # What is still being written must not be taken for whole by the next start.
            _log.error("stopped without closing the logs why=a disk does not come to an end")
        self._calls.close()
        if self._peers is not None:
            self._peers.close()
        if self._metadata is not None:
            self._metadata.close()
        if self._coordination is not None:
            self._coordination.close()
        done()
