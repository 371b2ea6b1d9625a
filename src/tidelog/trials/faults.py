"""What goes wrong: crashes, pauses, cuts, lost sessions, one after the other or all at once.

A fault ends by itself after a drawn time, and the next one does not wait for that. Only those
that took effect are counted: there is nothing to kill where nothing runs.
"""

from collections.abc import Callable
from functools import partial
from typing import Literal

from tidelog.base.coordination import Delete
from tidelog.cluster import paths
from tidelog.trials.options import Options
from tidelog.trials.process import Process
from tidelog.trials.world import World, tell_nobody

LEAVE_MS_MAX = 1_500


class Nemesis:
    def __init__(self, world: World) -> None:
        self._world = world
        self._options: Options = world.options
        self._random = world.loop.choices.stream("faults").random
        self._is_over = False
        self._session_id = world.ensemble.begin_session(tell_nobody)
        self._kinds: dict[str, Callable[[], bool]] = {
            "process crash": partial(self._crash_one, machine=False),
            "machine crash": partial(self._crash_one, machine=True),
            "all machines crash": self._crash_all,
            "set of a partition crashes": self._crash_set,
            "pause": self._pause,
            "cut": partial(self._cut, both=True),
            "one-way cut": partial(self._cut, both=False),
            "isolation": self._isolate,
            "session expiry": self._expire,
            "coordination loss": self._lose_coordination,
            "broken connections": self._break_connections,
            "slow link": self._slow_link,
            "late coordination": self._late_coordination,
            "clean restart": self._restart_cleanly,
            "preferred leaders": self._elect_preferred,
            "controller deposed": self._depose,
        }

    def start(self) -> None:
        self._world.loop.after(self._gap_ms(), self._next)

    def end(self) -> None:
        """Nothing goes wrong any more, and what did is made good."""
        self._is_over = True
        world = self._world
        world.network.mend_all()
        for number in world.numbers:
            process = world.processes.get(number)
            if process is None:
                world.start(number)
            else:
                self._go_on(process)
                process.coordination.faults.delay_ms_max = 3

    def _next(self) -> None:
        if self._is_over:
            return
        kinds = self._options.fault_kinds
        kind = kinds[self._below(len(kinds))]
        if self._kinds[kind]():
            self._world.counts.faults += 1
            if self._world.tracing is not None:
                self._world.tracing(f"fault: {kind}")
        self._world.loop.after(self._gap_ms(), self._next)

    # -- draws

    def _below(self, bound: int) -> int:
        return int(self._random() * bound)

    def _gap_ms(self) -> int:
        return 1 + self._below(2 * self._options.fault_gap_ms)

    def _down_ms(self) -> int:
        return 1 + self._below(self._options.down_ms_max)

    def _number(self) -> int:
        return self._world.numbers[self._below(len(self._world.numbers))]

    def _process(self) -> Process | None:
        return self._world.processes.get(self._number())

    def _after(self, event: Callable[[], object]) -> None:
        self._world.loop.after(self._down_ms(), partial(self._unless_over, event))

    def _unless_over(self, event: Callable[[], object]) -> None:
        if not self._is_over:
            event()

    # -- crashes

    def _crash_one(self, *, machine: bool) -> bool:
        return self._crash(self._number(), machine=machine)

    def _crash(self, number: int, *, machine: bool) -> bool:
        killed = self._world.kill(number, machine=machine)
        if killed:
            self._after(partial(self._world.start, number))
        return killed

    def _crash_all(self) -> bool:
        """All at the same moment; they come back one by one."""
        killed = [self._crash(number, machine=True) for number in self._world.numbers]
        return any(killed)

    def _crash_set(self) -> bool:
        """Everyone in the set of a partition, in some order, processes and machines."""
        oracle = self._world.oracles[self._below(len(self._world.oracles))]
        if oracle.state is None:
            return False
        members = sorted(oracle.state.isr, key=lambda _: self._random())
        for member in members:
            machine = self._random() < 0.6
            event = partial(self._crash, member, machine=machine)
            delay_ms = self._below(100)
            self._world.loop.after(delay_ms, partial(self._unless_over, event))
        return True

    def _pause(self) -> bool:
        process = self._process()
        if process is None or process.loop.is_paused:
            return False
        process.loop.pause()
        world = self._world
        session_id = process.coordination.session_id
        end = partial(self._end_session_of_paused, process, session_id)
        world.loop.after(self._options.session_timeout_ms, end)
        is_long = self._random() < 0.6
        pause_ms = self._down_ms() + (self._options.session_timeout_ms if is_long else 0)
        world.loop.after(pause_ms, partial(self._go_on, process))
        return True

    def _end_session_of_paused(self, process: Process, session_id: int) -> None:
        if process.loop.is_paused and process.coordination.session_id == session_id:
            self._world.ensemble.end_session(session_id)

    def _go_on(self, process: Process) -> None:
        if process.loop.is_paused and not process.loop.is_dead:
            process.loop.go_on()
            if self._world.tracing is not None:
                self._world.tracing(f"broker {process.number} goes on after a pause")
            if not self._world.ensemble.has_session(process.coordination.session_id):
                process.coordination.expire()

    def _restart_cleanly(self) -> bool:
        process = self._process()
        if process is None or not process.is_ready or process.loop.is_paused:
            return False
        process.metadata.leave(partial(self._left, process))
        self._world.loop.after(LEAVE_MS_MAX, partial(self._left, process))
        return True

    def _left(self, process: Process) -> None:
        if self._world.processes.get(process.number) is process and not process.loop.is_paused:
            self._world.stop(process.number)
            self._world.loop.after(self._down_ms(), partial(self._world.start, process.number))

    # -- the network

    def _cut(self, *, both: bool) -> bool:
        one, other = self._number(), self._number()
        if one == other:
            return False
        self._cut_for_a_while([(one, other), (other, one)] if both else [(one, other)])
        return True

    def _isolate(self) -> bool:
        number = self._number()
        links = [(number, other) for other in self._world.numbers if other != number]
        self._cut_for_a_while([*links, *((b, a) for a, b in links)])
        return True

    def _cut_for_a_while(self, links: list[tuple[int, int]]) -> None:
        """Half of the time for so long that who is behind it falls out of the sets."""
        network = self._world.network
        for link in links:
            network.cut(*link)

        def mend() -> None:
            for link in links:
                network.mend(*link)

        lag_ms = self._options.lag_ms_max if self._random() < 0.5 else 0
        self._world.loop.after(2 * lag_ms + self._down_ms(), partial(self._unless_over, mend))

    def _break_connections(self) -> bool:
        network = self._world.network
        one = self._number()
        found = [network.break_link(one, other) for other in (*self._world.numbers, 100)]
        return any(found)

    def _slow_link(self) -> bool:
        one, other = self._number(), self._number()
        slow = self._world.network.slow
        slow[one, other] = 1 + self._below(200)
        self._after(partial(slow.pop, (one, other), 0))
        return True

    # -- coordination

    def _expire(self) -> bool:
        process = self._process()
        if process is None or process.loop.is_paused:
            return False
        process.coordination.expire()
        return True

    def _lose_coordination(self) -> bool:
        process = self._process()
        if process is None or process.loop.is_paused:
            return False
        process.coordination.lose_connection(away_ms=self._down_ms())
        return True

    def _late_coordination(self) -> bool:
        """Answers and watches come late."""
        process = self._process()
        if process is None:
            return False
        faults = process.coordination.faults
        faults.delay_ms_max = 20 + self._below(300)

        def recover() -> None:
            faults.delay_ms_max = 3

        self._after(recover)
        return True

    # -- what people do

    def _depose(self) -> bool:
        """Somebody deletes the controller's node, as Kafka's manual says to do: its session
        lives on, and it hears of it late."""
        ensemble = self._world.ensemble
        if ensemble.tree.exists(paths.CONTROLLER) is None:
            return False
        ensemble.write(self._session_id, [Delete(path=paths.CONTROLLER)])
        return True

    def _elect_preferred(self) -> bool:
        controller = self._world.controller()
        if controller is None:
            return False
        kind: Literal["preferred"] = "preferred"
        controller.metadata.elect_leaders(kind, None, lambda _results: None)
        return True
