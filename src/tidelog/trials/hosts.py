"""A simulated computer with one process on it, which may be paused or killed at any moment.

Everything that the process is to do goes through its host: what arrives while it is paused
happens when it goes on, and what arrives for a process that has died never happens.
"""

from collections import deque
from collections.abc import Callable
from functools import partial

from tidelog.base.ports import Result
from tidelog.world.sim.loop import SimLoop

Event = Callable[[], None]


class HostTimer:
    __slots__ = ("callback",)

    def __init__(self, callback: Event) -> None:
        self.callback: Event | None = callback

    def cancel(self) -> None:
        self.callback = None

    def fire(self) -> None:
        callback, self.callback = self.callback, None
        if callback is not None:
            callback()


class HostLoop(SimLoop):
    """The loop of one process. It has no time of its own: it is a view of the one loop of the
    world, which is also what its coordination session runs on."""

    def __init__(self, world: SimLoop) -> None:
        self.world = world
        self.clock = world.clock
        self.choices = world.choices
        self.is_dead = False
        self.is_paused = False
        self._held: deque[Event] = deque()

    def call_at(self, monotonic_ms: int, callback: Event) -> HostTimer:  # type: ignore[override]
        timer = HostTimer(callback)
        now_ms = self.clock.monotonic_ms()
        self.world.after(max(0, monotonic_ms - now_ms), partial(self.run_event, timer.fire))
        return timer

    def call_soon(self, callback: Event) -> None:
        self.world.call_soon(partial(self.run_event, callback))

    def call_when_quiet(self, callback: Event) -> None:
        self.world.call_when_quiet(partial(self.run_event, callback))

    def offload(
        self, lane: str, work: Callable[[], Result], done: Callable[[Result | Exception], None]
    ) -> None:
        raise NotImplementedError(f"nothing here works beside the loop: {lane}, {work}, {done}")

    def after(self, delay_ms: int, event: Event) -> None:
        """What the world does at this host; it goes on when the process is dead."""
        self.world.after(delay_ms, partial(self._unless_paused, event))

    def run_event(self, event: Event) -> None:
        """Something that the process does, now or when it goes on."""
        if self.is_paused:
            self._held.append(partial(self.run_event, event))
        elif not self.is_dead:
            event()

    def pause(self) -> None:
        self.is_paused = True

    def go_on(self) -> None:
        self.is_paused = False
        held, self._held = self._held, deque()
        for event in held:
            self.world.call_soon(event)

    def die(self) -> None:
        self.is_dead = True
        self.go_on()

    def _unless_paused(self, event: Event) -> None:
        if self.is_paused:
            self._held.append(partial(self._unless_paused, event))
        else:
            event()
