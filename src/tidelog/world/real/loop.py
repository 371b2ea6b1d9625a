"""What runs a broker: one thread, one epoll, one callback at a time.

A turn waits until something is ready and then runs, in this order: the handlers of ready
descriptors, timers that are due, callbacks for soon, those for a turn that finds nothing ready if
it is one, and the flushes that all of them asked for.
So everything one turn has to say on a connection leaves in one system call. An error that
escapes a callback goes to `on_error`, and the loop goes on.
"""

import logging
import os
import select
from collections import deque
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from time import monotonic_ns
from typing import Protocol

from tidelog.base.ports import QUIET_MS_MAX, Result
from tidelog.world.real.lanes import Lanes

OnError = Callable[[str, Exception], None]
Handler = Callable[[int], None]

_EVENTS_MAX = 256
_WAIT_SECONDS_MAX = 3600.0
_SPIN_NS = 100_000
_SPIN_SECONDS = _SPIN_NS / 1_000_000_000
_MISSES_MAX = 63
_QUIET_NS_MAX = QUIET_MS_MAX * 1_000_000
_CANCELLED_MIN = 256
"""Fewer cancelled timers than this are not worth a sweep of the heap."""


def log_error(what: str, error: Exception) -> None:
    logging.getLogger("tidelog.loop").error("%s: %s", what, error, exc_info=error)


class Flushable(Protocol):
    def flush(self) -> None: ...


class EpollTimer:
    __slots__ = ("_loop", "callback")

    def __init__(self, loop: "EpollLoop", callback: Callable[[], None]) -> None:
        self._loop = loop
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        if self.callback is not None:
            self.callback = None
            self._loop.forget_timer()


class EpollLoop:
    __slots__ = (
        "_cancelled",
        "_epoll",
        "_handlers",
        "_idle",
        "_is_stopping",
        "_is_woken",
        "_lanes",
        "_misses",
        "_poll",
        "_posted",
        "_quiet",
        "_quiet_until_ns",
        "_sequence",
        "_soon",
        "_timers",
        "_turns_without",
        "_waker",
        "_was_ready",
        "flushes",
        "on_error",
    )

    def __init__(self, on_error: OnError = log_error) -> None:
        self.on_error = on_error
        self.flushes: deque[Flushable] = deque()
        """Who has something to flush at the end of this turn; each once."""
        self._epoll = select.epoll()
        self._poll = self._epoll.poll
        self._handlers: dict[int, Handler] = {}
        self._was_ready = False
        self._misses = 0
        self._turns_without = 0
        self._timers: list[tuple[int, int, EpollTimer]] = []
        self._cancelled = 0
        self._sequence = 0
        self._soon: deque[Callable[[], None]] = deque()
        self._quiet: list[Callable[[], None]] = []
        self._quiet_until_ns = 0
        self._idle: list[Callable[[], None]] = []
        self._is_stopping = False
        self._posted: deque[Callable[[], None]] = deque()
        self._is_woken = False
        self._waker = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._lanes = Lanes(self.post)
        self.watch(self._waker, select.EPOLLIN, self._take_posted)

    # The port.

    def call_at(self, monotonic_ms: int, callback: Callable[[], None]) -> EpollTimer:
        timer = EpollTimer(self, callback)
        self._sequence += 1
        heappush(self._timers, (monotonic_ms, self._sequence, timer))
        return timer

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> EpollTimer:
        """For adapters, which have no clock of their own."""
        return self.call_at(-(-monotonic_ns() // 1_000_000) + delay_ms, callback)

    def call_soon(self, callback: Callable[[], None]) -> None:
        self._soon.append(callback)

    def call_when_quiet(self, callback: Callable[[], None]) -> None:
        if not self._quiet:
            self._quiet_until_ns = monotonic_ns() + _QUIET_NS_MAX
        self._quiet.append(callback)

    def offload(
        self,
        lane: str,
        work: Callable[[], Result],
        done: Callable[[Result | Exception], None],
    ) -> None:
        self._lanes.submit(lane, work, done)

    # Running.

    def run(self) -> None:
        """Until `stop`, which may have been called before."""
        while not self._is_stopping:
            self.turn()
        self._is_stopping = False

    def stop(self) -> None:
        """Ends `run` after this turn. For callbacks; other threads `post` it."""
        self._is_stopping = True

    def turn(self, wait_seconds_max: float = _WAIT_SECONDS_MAX) -> None:
        """Waits until something is ready, and does it."""
        ready = self._look(self._wait_seconds(wait_seconds_max))
        try:
            handlers = self._handlers
            for descriptor, events in ready:
                handler = handlers.get(descriptor)
                if handler is not None:
                    handler(events)
            if self._timers:
                self._run_timers()
            soon = self._soon
            while soon:
                soon.popleft()()
            if self._quiet and (not ready or monotonic_ns() >= self._quiet_until_ns):
                self._run_quiet()
            flushes = self.flushes
            if flushes:
                for _ in range(len(flushes)):
                    flushes.popleft().flush()
            if self._idle and not ready:
                self._run_idle()
        except Exception as error:
            # What this turn did not come to is still queued, or reported again by epoll.
            self.on_error("a callback failed", error)

    def _look(self, wait_seconds: float) -> list[tuple[int, int]]:
        """What is ready, at once or after a wait. Going to sleep and being woken takes longer than
        a client takes to ask for the next thing, so after something was ready it is looked for
        a little longer before that. Where it did not come, the next times are left out; what
        was there at the first look tells nothing of how long the next thing takes."""
        poll = self._poll
        if not self._was_ready or wait_seconds < _SPIN_SECONDS:
            ready = poll(wait_seconds, _EVENTS_MAX)
        elif self._turns_without:
            self._turns_without -= 1
            ready = poll(wait_seconds, _EVENTS_MAX)
        else:
            ready = poll(0, _EVENTS_MAX) or self._look_longer() or poll(wait_seconds, _EVENTS_MAX)
        self._was_ready = bool(ready)
        return ready

    def _look_longer(self) -> list[tuple[int, int]]:
        poll = self._poll
        until_ns = monotonic_ns() + _SPIN_NS
        while monotonic_ns() < until_ns:
            ready = poll(0, _EVENTS_MAX)
            if ready:
                self._misses = 0
                return ready
        self._misses = min(2 * self._misses + 1, _MISSES_MAX)
        self._turns_without = self._misses
        return []

    def post(self, callback: Callable[[], None]) -> None:
        """Runs a callback in the loop, in a later turn; the only call for other threads."""
        self._posted.append(callback)
        if not self._is_woken:
            self._is_woken = True
            os.eventfd_write(self._waker, 1)

    def expect_nothing(self) -> None:
        """Somebody was sent so much in this turn that he has no next question yet."""
        self._was_ready = False

    def when_idle(self, callback: Callable[[], None]) -> None:
        """Runs a callback once, at the end of the first turn that found nothing ready."""
        self._idle.append(callback)

    def close(self) -> None:
        """Ends the lanes, once their work is done, and gives the descriptors back."""
        self._lanes.close()
        # Who posts from now on must not write to a descriptor that is somebody else's.
        self._is_woken = True
        self._handlers.clear()
        self._epoll.close()
        os.close(self._waker)

    # Descriptors.

    def watch(self, descriptor: int, events: int, handler: Handler) -> None:
        """Calls a handler with what is ready, in every turn in which something is."""
        if descriptor in self._handlers:
            self._epoll.modify(descriptor, events)
        else:
            self._epoll.register(descriptor, events)
        self._handlers[descriptor] = handler

    def unwatch(self, descriptor: int) -> None:
        if self._handlers.pop(descriptor, None) is not None:
            self._epoll.unregister(descriptor)

    # Inside.

    def forget_timer(self) -> None:
        """Most timers are timeouts that never fire: without a sweep the heap would hold
        every one of them until its time has come."""
        self._cancelled += 1
        timers = self._timers
        if self._cancelled > _CANCELLED_MIN and self._cancelled * 2 > len(timers):
            timers[:] = [entry for entry in timers if entry[2].callback is not None]
            heapify(timers)
            self._cancelled = 0

    def _wait_seconds(self, wait_seconds_max: float) -> float:
        if self._soon or self.flushes or self._quiet or self._idle:
            return 0.0
        if self._timers:
            # epoll rounds up to whole milliseconds, so a timer is never early.
            wait_seconds = self._timers[0][0] / 1_000 - monotonic_ns() / 1_000_000_000
            if wait_seconds < wait_seconds_max:
                return max(wait_seconds, 0.0)
        return wait_seconds_max

    def _run_timers(self) -> None:
        """Those that were there when the pass began: one that renews itself for now must not
        keep the loop."""
        timers = self._timers
        now_ms = monotonic_ns() // 1_000_000
        newest = self._sequence
        while timers and timers[0][0] <= now_ms and timers[0][1] <= newest:
            timer = heappop(timers)[2]
            callback, timer.callback = timer.callback, None
            if callback is None:
                self._cancelled -= 1
            else:
                callback()

    def _take_posted(self, _events: int) -> None:
        os.eventfd_read(self._waker)
        # Cleared before the queue is emptied: who adds to it later wakes the loop again.
        self._is_woken = False
        posted = self._posted
        while posted:
            self._soon.append(posted.popleft())

    def _run_quiet(self) -> None:
        soon = self._soon
        soon.extend(self._quiet)
        self._quiet.clear()
        while soon:
            soon.popleft()()

    def _run_idle(self) -> None:
        waiting, self._idle = self._idle, []
        for callback in waiting:
            self._soon.append(callback)
        while self._soon:
            self._soon.popleft()()
