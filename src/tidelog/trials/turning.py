"""The loop of the explorer: one heap, and nothing in it but events.

The simulated loop that whole brokers run on has timers, flushes and idle work besides. Here all
of that are events at a time, so that a turn is a pop and a call.
"""

from collections.abc import Callable
from heapq import heappop, heappush

from tidelog.world.sim.clock import START_MS, SimClock
from tidelog.world.sim.loop import SimLoop

TURNS_MAX = 10_000
"""Within one moment."""


class TrialClock(SimClock):
    """It shows the time of its loop, so that nobody has to move it along with every event."""

    def __init__(self, loop: "TrialLoop") -> None:
        super().__init__()
        self._loop = loop

    def now_ms(self) -> int:
        return START_MS + self._loop.now_ms

    def monotonic_ms(self) -> int:
        return self._loop.now_ms

    def monotonic_us(self) -> int:
        return self._loop.now_ms * 1_000

    def advance(self, delay_ms: int) -> None:
        raise AssertionError(f"time passes in the loop, not by {delay_ms} ms here")


class TrialLoop(SimLoop):
    now_ms = 0

    def __init__(self, seed: int = 0) -> None:
        super().__init__(TrialClock(self), seed)

    def after(self, delay_ms: int, event: Callable[[], None]) -> None:
        self._sequence += 1
        heappush(self._events, (self.now_ms + delay_ms, self._sequence, event))

    def run_for(self, duration_ms: int) -> None:
        """Everything that happens within a time; afterwards that time has passed."""
        events, soon = self._events, self._soon
        end_ms = self.now_ms + duration_ms
        while True:
            if soon:
                self._run_soon()
            if not events or events[0][0] > end_ms:
                break
            self.now_ms, _, event = heappop(events)
            event()
        self.now_ms = end_ms

    def _run_soon(self) -> None:
        turns, soon = 0, self._soon
        while soon:
            soon.popleft()()
            turns += 1
            assert turns < TURNS_MAX, "it turns for ever"
