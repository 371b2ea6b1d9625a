"""The loop of the explorer: one heap, and nothing in it but events.

The simulated loop that whole brokers run on has timers, flushes and idle work besides. Here all
of that are events at a time, so that a turn is a pop and a call.
"""

from collections.abc import Callable
from heapq import heappop, heappush

from tidelog.world.sim.loop import SimLoop

TURNS_MAX = 10_000
"""Within one moment."""


class TrialLoop(SimLoop):
    now_ms = 0
    """What the clock says, at hand."""

    def after(self, delay_ms: int, event: Callable[[], None]) -> None:
        self._sequence += 1
        heappush(self._events, (self.now_ms + delay_ms, self._sequence, event))

    def run_for(self, duration_ms: int) -> None:
        """Everything that happens within a time; afterwards that time has passed."""
        events, soon, clock = self._events, self._soon, self.clock
        now_ms = self.now_ms
        end_ms = now_ms + duration_ms
        while True:
            turns = 0
            while soon:
                soon.popleft()()
                turns += 1
                assert turns < TURNS_MAX, "it turns for ever"
            if not events or events[0][0] > end_ms:
                break
            at_ms, _, event = heappop(events)
            if at_ms > now_ms:
                clock.advance(at_ms - now_ms)
                self.now_ms = now_ms = at_ms
            event()
        clock.advance(end_ms - now_ms)
        self.now_ms = end_ms
