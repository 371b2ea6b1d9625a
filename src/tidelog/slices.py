"""Long work in the loop, done in slices so that others come in between.

A generator does a little and yields: None where it may be interrupted, or something to ask for that
calls back when it is done. It goes on in a later turn of the loop when its slice is over. However
much work there is, a turn goes on with one slice of it.
"""

from collections import deque
from collections.abc import Callable, Generator
from functools import partial
from typing import Final

from tidelog.base.ports import Clock, Loop

SLICE_US: Final = 5_000
SLICE_STEPS: Final = 50
"""So many steps end a slice too: a simulated clock stands still while they are done."""

Ask = Callable[[Callable[[], None]], None]
Sliced = Generator[Ask | None, None, None]


class Slices:
    def __init__(self, loop: Loop, clock: Clock) -> None:
        self._loop = loop
        self._clock = clock
        self._under_way = 0
        self._interrupted: deque[Callable[[], None]] = deque()

    @property
    def is_idle(self) -> bool:
        return not self._under_way

    def run(self, work: Sliced, failed: Callable[[], None]) -> None:
        """Begins at once. `failed` is called if an error escapes from the work."""
        self._under_way += 1
        self._go_on(work, failed)

    def _go_on(self, work: Sliced, failed: Callable[[], None]) -> None:
        go_on = partial(self._go_on, work, failed)
        try:
            is_waiting = self._slice(work, go_on)
        except StopIteration:
            self._under_way -= 1
        except Exception:
            self._under_way -= 1
            failed()
            raise
        else:
            if not is_waiting:
                self._in_a_later_turn(go_on)

    def _slice(self, work: Sliced, go_on: Callable[[], None]) -> bool:
        """Runs until the slice is over, or until something was asked for that is not there yet:
        then it is waited for."""
        clock = self._clock
        end_us = clock.monotonic_us() + SLICE_US
        for _ in range(SLICE_STEPS):
            ask = next(work)
            if ask is not None and not _Question(go_on).is_answered_at_once(ask):
                return True
            if clock.monotonic_us() >= end_us:
                break
        return False

    def _in_a_later_turn(self, then: Callable[[], None]) -> None:
        self._interrupted.append(then)
        if len(self._interrupted) == 1:
            self._wait_a_turn()

    def _wait_a_turn(self) -> None:
        # A timer, because what is to be called soon is called in the same turn.
        self._loop.call_at(self._clock.monotonic_ms(), self._next_slice)

    def _next_slice(self) -> None:
        go_on = self._interrupted.popleft()
        if self._interrupted:
            self._wait_a_turn()
        go_on()


class _Question:
    """Something asked for, which may be there before whoever is asked returns."""

    __slots__ = ("_go_on", "_is_answered", "_is_asked")

    def __init__(self, go_on: Callable[[], None]) -> None:
        self._go_on = go_on
        self._is_asked = False
        self._is_answered = False

    def is_answered_at_once(self, ask: Ask) -> bool:
        """If it is not, work goes on when the answer comes."""
        ask(self._answer)
        self._is_asked = True
        return self._is_answered

    def _answer(self) -> None:
        if self._is_asked:
            self._go_on()
        else:
            self._is_answered = True
