"""Histories one after the other, and what to say when one of them ends badly.

A run keeps no trace, so that it is quick. A history that violates something is run once more,
from the same seed and thus in the same way, with its events written down.
"""

import gc
import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from tidelog.trials.counts import Counts
from tidelog.trials.history import run_history
from tidelog.trials.options import Options
from tidelog.trials.violation import Violation

LAST_EVENTS: Final = 60
_LOGGER: Final = logging.getLogger("tidelog")


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    seed: int
    invariant: str
    what: str
    events: tuple[str, ...]
    """The last ones before it."""

    def __str__(self) -> str:
        lines = "\n".join(f"  {event}" for event in self.events)
        return (
            f"{self.invariant} is violated with seed {self.seed}: {self.what}\n{lines}\n"
            f"To see all of it: tidelog trials replay --seed {self.seed}"
        )


def explore(seeds: Iterable[int], options: Options | None = None) -> tuple[Counts, Failure | None]:
    """Up to the first history that violates something. `options` are drawn from each seed
    unless they are given."""
    total = Counts()
    with _collecting() as collect:
        for seed in seeds:
            failure = _explore_one(seed, total, options)
            if failure is not None:
                return total, failure
            collect()
    return total, None


def _explore_one(seed: int, total: Counts, options: Options | None) -> Failure | None:
    try:
        with _listening(None) as bugs:
            counts = run_history(seed, options=options)
        if bugs:
            raise Violation("bug", bugs[0])
    except Violation:
        return find_failure(seed, options)
    total.add(counts)
    return None


def find_failure(seed: int, options: Options | None = None) -> Failure:
    """Runs a history that went wrong again, with its last events."""
    events: deque[str] = deque(maxlen=LAST_EVENTS)
    violation = replay(seed, events.append, options)
    assert isinstance(violation, Violation), f"seed {seed} ends in two ways: {violation}"
    return Failure(
        seed=seed, invariant=violation.invariant, what=violation.what, events=tuple(events)
    )


def replay(
    seed: int, tell: Callable[[str], None], options: Options | None = None
) -> Counts | Violation:
    """A line for each event; then what happened, or what was violated."""
    try:
        with _listening(tell) as bugs:
            counts = run_history(seed, tell, options)
        if bugs:
            raise Violation("bug", bugs[0])
    except Violation as violation:
        return violation
    return counts


class _Listener(logging.Handler):
    """Hears what production code logs: a bug that it survived is a bug."""

    def __init__(self, tell: Callable[[str], None] | None) -> None:
        super().__init__()
        self._tell = tell
        self.bugs: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        text = f"{record.name.removeprefix('tidelog.')} logs: {record.getMessage()}"
        if self._tell is not None:
            self._tell(f"       {text}")
        if record.exc_info or record.getMessage().startswith("bug"):
            error = record.exc_info[1] if record.exc_info else None
            self.bugs.append(f"{text}: {error!r}")


@contextmanager
def _listening(tell: Callable[[str], None] | None) -> Iterator[list[str]]:
    listener = _Listener(tell)
    before = (_LOGGER.level, _LOGGER.propagate)
    _LOGGER.addHandler(listener)
    _LOGGER.propagate = False
    _LOGGER.setLevel(logging.ERROR if tell is None else logging.INFO)
    try:
        yield listener.bugs
    finally:
        _LOGGER.removeHandler(listener)
        _LOGGER.setLevel(before[0])
        _LOGGER.propagate = before[1]


@contextmanager
def _collecting() -> Iterator[Callable[[], object]]:
    """Garbage is collected between histories only, and what was there before them is none. After
    each of them, so that the next one has the same memory, which is still in the caches."""
    was_enabled = gc.isenabled()
    gc.disable()
    gc.freeze()
    try:
        yield gc.collect
    finally:
        gc.unfreeze()
        if was_enabled:
            gc.enable()
