"""What runs brokers in a simulated cluster: machines, and processes that come and go on them.

A process that has ended does nothing more: its timers and callbacks are dropped, and so is what
it had begun beside the loop.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from tidelog.base.coordination import Coordination
from tidelog.base.ports import Result
from tidelog.base.settings import Settings
from tidelog.base.world import World
from tidelog.broker import Broker
from tidelog.world.sim.clock import SimClock
from tidelog.world.sim.coordination import CoordinationFaults, SimCoordination
from tidelog.world.sim.disk import SimDisk
from tidelog.world.sim.ensemble import SimEnsemble
from tidelog.world.sim.entropy import SimEntropy
from tidelog.world.sim.loop import SimLoop, SimTimer
from tidelog.world.sim.network import SimHost, SimNetwork
from tidelog.world.sim.pressure import SimPressure
from tidelog.world.sim.workers import SimWorkers

SESSION_TIMEOUT_MS = 6_000


class SimGround:
    """What all machines of a cluster stand on: one clock, one loop, one network, one ensemble."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.clock = SimClock()
        self.loop = SimLoop(self.clock, seed)
        self.network = SimNetwork(self.loop)
        self.ensemble = SimEnsemble(self.clock)
        self.session_timeout_ms = SESSION_TIMEOUT_MS
        self._seeds = seed * 1000

    def next_seed(self) -> int:
        self._seeds += 1
        return self._seeds

    def open_session(self) -> SimCoordination:
        faults = CoordinationFaults(session_timeout_ms=self.session_timeout_ms)
        return SimCoordination(self.loop, self.ensemble, faults)


class MachineClock(SimClock):
    """The time that all machines share, on a machine that reboots by itself."""

    def __init__(self, shared: SimClock) -> None:
        super().__init__(shared.now_ms())
        self._shared = shared

    def now_ms(self) -> int:
        return self._shared.now_ms()

    def monotonic_ms(self) -> int:
        return self._shared.monotonic_ms()

    def monotonic_us(self) -> int:
        return self._shared.monotonic_us()


class ProcessLoop:
    """The loop as one process has it: after its end nothing of it runs any more."""

    def __init__(self, loop: SimLoop, name: str) -> None:
        self._loop = loop
        self._name = name
        self.is_over = False

    def call_at(self, monotonic_ms: int, callback: Callable[[], None]) -> SimTimer:
        return self._loop.call_at(monotonic_ms, self._while_alive(callback))

    def call_soon(self, callback: Callable[[], None]) -> None:
        self._loop.call_soon(self._while_alive(callback))

    def call_when_quiet(self, callback: Callable[[], None]) -> None:
        self._loop.call_when_quiet(self._while_alive(callback))

    def offload(
        self, lane: str, work: Callable[[], Result], done: Callable[[Result | Exception], None]
    ) -> None:
        self._loop.offload(
            f"{self._name} {lane}", partial(self._work, work), partial(self._end, done)
        )

    def _work(self, work: Callable[[], Any]) -> Any:
        return None if self.is_over else work()

    def _end(self, done: Callable[[Any], None], result: Any) -> None:
        if not self.is_over:
            done(result)

    def _while_alive(self, callback: Callable[[], None]) -> Callable[[], None]:
        return lambda: None if self.is_over else callback()


class SimProcess:
    """One life of a broker on its machine."""

    def __init__(self, ground: SimGround, machine: "SimMachine", settings: Settings) -> None:
        self.loop = ProcessLoop(ground.loop, machine.name)
        self.host: SimHost = ground.network.host(machine.name)
        self.sessions: list[SimCoordination] = []
        self.started: list[Exception | None] = []
        self._ground = ground
        world = World(
            clock=machine.clock,
            entropy=SimEntropy(ground.next_seed()),
            disk=machine.disk,
            pressure=SimPressure(ground.seed),
            loop=self.loop,
            network=self.host,
            cleaning=SimWorkers(machine.disk),
            inspecting=SimWorkers(machine.disk),
            host_name=machine.name,
            open_coordination=self._open_coordination,
        )
        self.broker = Broker(settings, world)
        self.broker.start(self.started.append)

    def _open_coordination(self, _folder: str) -> Coordination:
        session = self._ground.open_session()
        self.sessions.append(session)
        return session

    def end(self) -> None:
        self.loop.is_over = True


class SimMachine:
    """A machine with its disk, and the broker that runs on it, if one does."""

    def __init__(self, ground: SimGround, broker_id: int) -> None:
        self.name = f"machine-{broker_id}"
        self.broker_id = broker_id
        self.clock = MachineClock(ground.clock)
        self.disk = SimDisk(seed=ground.seed * 100 + broker_id, clock=self.clock)
        self.disk.cold_share = 0.0
        self.settings: dict[str, object] = {}
        self.process: SimProcess | None = None
