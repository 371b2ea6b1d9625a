"""The loop of the explorer: one heap, and nothing in it but events.

The simulated loop that whole brokers run on has timers, flushes and idle work besides. Here all
of that are events at a time, so that a turn is a pop and a call.
"""

from heapq import heappop

from tidelog.world.sim.loop import SimLoop


class TrialLoop(SimLoop):
    def run_for(self, duration_ms: int) -> None:
        """Everything that happens within a time; afterwards that time has passed."""
        events, soon, clock = self._events, self._soon, self.clock
        now_ms = clock.monotonic_ms()
        end_ms = now_ms + duration_ms
        while True:
            while soon:
                soon.popleft()()
            if not events or events[0][0] > end_ms:
                break
            at_ms, _, event = heappop(events)
            if at_ms > now_ms:
                clock.advance(at_ms - now_ms)
                now_ms = at_ms
            event()
        clock.advance(end_ms - now_ms)
