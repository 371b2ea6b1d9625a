"""A broker as a process: the real world around it, its log, its signals.

Nothing here is imported by anything but the command line and tests. Modules that are heavy and
that a broker does not need (numba, numpy, pyarrow) stay out of this process.
"""

import gc
import logging
import os
import resource
import signal
import socket
import sys
import time
from collections.abc import Callable
from errno import EADDRINUSE, EIO
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tidelog.base.coordination import Coordination, CoordinationError, SessionState
from tidelog.base.errors import BadValue
from tidelog.base.ports import Lock
from tidelog.base.settings import BROKER, Settings
from tidelog.base.settings.no_effect import ignored
from tidelog.base.world import World
from tidelog.broker import Broker
from tidelog.log.log_dir import take_lock
from tidelog.records.joiner import the_joiner
from tidelog.world.real.clock import RealClock
from tidelog.world.real.descriptors import counted_descriptors, descriptors
from tidelog.world.real.disk import RealDisk
from tidelog.world.real.embedded import EmbeddedCoordination, open_embedded
from tidelog.world.real.entropy import RealEntropy
from tidelog.world.real.loop import EpollLoop
from tidelog.world.real.network import RealNetwork
from tidelog.world.real.pressure import RealPressure
from tidelog.world.real.signals import Signals
from tidelog.world.real.snapshotting import Place
from tidelog.world.real.sockets import addresses_of
from tidelog.world.real.workers import RealWorkers, WorkersByTask

if TYPE_CHECKING:
    from tidelog.world.real.ensemble import Ensemble

SWITCH_INTERVAL_SECONDS = 0.0001
YOUNG_COLLECTION_MS = 1_000
FULL_COLLECTION_MS = 60_000
LEAVING_MS_MAX = 3_000

_log = logging.getLogger("tidelog.server")


def run(settings: Settings, log_level: str = "INFO", interpreted: str | None = None) -> None:
    """Serves until SIGTERM or SIGINT; raises what keeps it from starting. `interpreted` is why its
    code is not compiled, if it is not."""
    began = time.monotonic()
    _start_logging(log_level)
    if interpreted is not None:
        _log.info("runs as bytecode why=%s", interpreted)
    if the_joiner() is None:
        _log.info(
            "appends batches one by one why=no kernels are in the cache (tidelog kernels warm)"
        )
    _raise_descriptor_limit()
    sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)
    for name, why in ignored(BROKER, settings):
        _log.warning("ignored setting=%s value=%s why=%s", name, settings[name], why)
    process = Process(settings)
    process.run(began)


class Process:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.loop = EpollLoop()
        self._clock = RealClock()
        self._cleaning, self._inspecting = RealWorkers(), WorkersByTask()
        self._disk = disk = RealDisk()
        self._ensemble: Ensemble | None = None
        self._tree_lock: Lock | None = None
        self._network = RealNetwork(
            self.loop,
            backlog=settings.whole("socket.listen.backlog.size"),
            send_buffer_bytes=settings.whole("socket.send.buffer.bytes"),
            receive_buffer_bytes=settings.whole("socket.receive.buffer.bytes"),
        )
        world = World(
            clock=self._clock,
            entropy=RealEntropy(),
            disk=disk,
            pressure=RealPressure(),
            loop=self.loop,
            network=self._network,
            cleaning=self._cleaning,
            inspecting=self._inspecting,
            host_name=socket.getfqdn(),
            open_coordination=self._open_coordination,
            resolve=addresses_of,
            descriptors=descriptors,
            counted_descriptors=counted_descriptors,
        )
        self.broker = Broker(settings, world)
        self.broker.on_no_dir_left = self._halt
        self._is_stopping = False

    def _open_coordination(self, folder: str) -> Coordination:
        """ZooKeeper where the settings name one; otherwise a tree of this node's own."""
        if self._settings["zookeeper.connect"] is None:
            self._take_tree(folder)
            place = Place(disk=self._disk, loop=self.loop, clock=self._clock, folder=folder)
            tree = open_embedded(place)
            tree.on_session(partial(self._tree_failed, tree))
            return tree
        from tidelog.world.real.ensemble import Ensemble

        self._ensemble = Ensemble(self._settings, self.loop.post)
        return self._ensemble.coordination

    def _tree_failed(self, tree: EmbeddedCoordination, _state: SessionState) -> None:
        """Only a disk ends its session. The log dir that it lies in is offline with it: without
        its tree a node that is alone would serve some things and refuse others for ever."""
        why = tree.failure
        _log.error("the tree of znodes is lost until the next start why=%s", why)
        failure = why if isinstance(why, OSError) else OSError(EIO, f"its znodes: {why}")
        self.broker.logs.dirs[0].fail(failure)

    def _take_tree(self, folder: str) -> None:
        """The log dir is let go of while a thread may still write to the tree, or replace its
        snapshot: that must not fall among what another process writes there."""
        self._disk.make_folder(folder)
        self._tree_lock = take_lock(self._disk, folder)

    def run(self, began: float) -> None:
        failure: list[Exception] = []

        def started(error: Exception | None) -> None:
            if error is not None:
                failure.append(error)
                self.loop.stop()
                return
            try:
                self._serve(began, self._listen_for_metrics())
            except BadValue as taken:
                # It is a member by now, and leaves in order.
                failure.append(taken)
                self.loop.call_soon(self._stop)

        signals = Signals(self.loop, {signal.SIGTERM: self._stop, signal.SIGINT: self._stop})
        self.broker.start(started)
        self.loop.run()
        signals.close()
        self._cleaning.close()
        self._inspecting.close()
        self.loop.close()
        if self._tree_lock is not None:
            self._tree_lock.release()
        lost = self.broker.logs.dirs[0].failure
        if failure and isinstance(failure[0], CoordinationError) and lost is not None:
            raise lost from failure[0]
        if failure:
            raise failure[0]

    def _serve(self, began: float, metrics: str | None) -> None:
        for name, host, port in self.broker.endpoints:
            _say(f"listening on {name}://{host or '0.0.0.0'}:{port}")
        folders = ", ".join(str(Path(path).resolve()) for path in self._settings.log_dirs)
        _say(f"data in {folders}")
        _log.info(
            "started broker=%d cluster=%s partitions=%d seconds=%.2f",
            self.broker.broker_id,
            self.broker.cluster_id,
            len(self.broker.partitions),
            time.monotonic() - began,
        )
        if metrics is not None:
            _say(f"metrics on {metrics}")
        self._keep_garbage_small()

    def _listen_for_metrics(self) -> str | None:
        """Where they are served, if they are."""
        port = self._settings["metrics.port"]
        if port is None:
            return None
        from tidelog.metrics import MetricsPages

        assert isinstance(port, int)
        host = self.broker.endpoints[0][1]
        pages = MetricsPages(self.broker, self.loop, self._clock)
        try:
            taken = self._network.listen(host, port, pages.accept)
        except OSError as error:
            advice = "stop what uses it, or " if error.errno == EADDRINUSE else ""
            raise BadValue(f"{error.strerror}; {advice}set metrics.port") from error
        return f"http://{host or '0.0.0.0'}:{taken.port}/metrics"

    def _stop(self) -> None:
        if not self._is_stopping:
            self._is_stopping = True
            _log.info("stopping")
            self.broker.stop(self._stopped)

    def _stopped(self) -> None:
        """The loop turns until the session is over: then nobody takes this broker for alive."""
        if self._ensemble is None:
            self.loop.stop()
        else:
            self.loop.call_at(self._clock.monotonic_ms() + LEAVING_MS_MAX, self.loop.stop)
            self._ensemble.leave(self.loop.stop)

    def _halt(self) -> None:
        """As Kafka does when its last log dir has failed (S10). Nothing can be closed in order, and
        a thread may wait for a disk for ever. The session ends with the process; others lead."""
        failures = (f"{log_dir.path}: {log_dir.failure}" for log_dir in self.broker.logs.dirs)
        _log.critical("halted why=all log dirs have failed: %s", "; ".join(failures))
        logging.shutdown()
        os._exit(1)

    def _keep_garbage_small(self) -> None:
        """A full collection among many partitions takes as long as a thousand requests. What is
        there now stays; the hot path makes no cycles; the rest is looked for now and then, when
        there is nothing else to do."""
        gc.collect()
        gc.freeze()
        gc.disable()
        self._every(YOUNG_COLLECTION_MS, partial(self._collect, 1))
        self._every(FULL_COLLECTION_MS, partial(self._collect, 2))

    def _collect(self, generation: int) -> None:
        began_us = self._clock.monotonic_us()
        gc.collect(generation)
        self.broker.counters.garbage_us += self._clock.monotonic_us() - began_us

    def _every(self, interval_ms: int, work: Callable[[], None]) -> None:
        def run() -> None:
            self.loop.when_idle(work)
            self._every(interval_ms, work)

        self.loop.call_at(self._clock.monotonic_ms() + interval_ms, run)


def _say(line: str) -> None:
    """On the standard output, to whoever is there. If he went away, or the disk that it goes to is
    full, clients are served all the same."""
    text = line.encode(sys.stdout.encoding, "backslashreplace").decode(sys.stdout.encoding)
    try:
        print(text, flush=True)
    except OSError as error:
        _log.warning("cannot be said: %s why=%s", line, error)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _start_logging(level: str) -> None:
    """One line an event, to standard error: time, level, who, and name=value pairs."""
    logging.basicConfig(
        level=level,
        format="%(asctime)s.%(msecs)03d %(levelname)s %(name)s %(message)s",
        datefmt="%Y-%m-%dT%H:%M:%S",
        stream=sys.stderr,
    )


def _raise_descriptor_limit() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
