"""Where groups and transactions are measured: one broker, and how much effort is made."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.groups.crowd import Link
from bench.load.contest import Side
from bench.load.processes import fine_cpu_seconds

_IDLE_SECONDS_MAX, _LOOK_SECONDS, _IDLE_SHARE = 10, 0.3, 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    changes: int
    """Members that leave a group, and that join it."""
    rounds: int
    seconds: float
    megabytes: float
    sink_rounds: int


QUICK = Effort(changes=2, rounds=2, seconds=0.8, megabytes=300, sink_rounds=1)
FULL = Effort(changes=8, rounds=7, seconds=1.5, megabytes=600, sink_rounds=5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    side: Side
    folder: Path
    effort: Effort

    def await_idle(self) -> None:
        """Until the broker has done what follows from the requests that it has answered."""
        deadline = time.monotonic() + _IDLE_SECONDS_MAX
        while time.monotonic() < deadline:
            before = fine_cpu_seconds(self.side.pid)
            time.sleep(_LOOK_SECONDS)
            if fine_cpu_seconds(self.side.pid) - before < _IDLE_SHARE * _LOOK_SECONDS:
                return

    @contextmanager
    def link(self) -> Iterator[Link]:
        link = Link(self.side.broker.address, "bench")
        try:
            yield link
        finally:
            link.close()
