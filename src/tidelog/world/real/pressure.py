"""How much the page cache holds that is not on disk yet, as Linux counts it.

From half way between its background limit and its limit on, the kernel makes whoever writes
wait; that half way is what large writes stay clear of. Where the system does not tell, the level
is high: then these are never made where waiting would hurt, and small ones are.
"""

from pathlib import Path
from resource import RUSAGE_THREAD, getrusage

from tidelog.base.ports import Level

_COUNTERS = Path("/proc/vmstat")
_HIGH = 0.7
_LIMIT = 0.95
"""Shares of what the kernel takes without making anybody wait."""
_WANTED = ("nr_dirty", "nr_writeback", "nr_dirty_threshold", "nr_dirty_background_threshold")


class RealPressure:
    def level(self) -> Level:
        try:
            counters = dict(line.split() for line in _COUNTERS.read_text().splitlines())
            dirty, writeback, limit, background = (int(counters[name]) for name in _WANTED)
        except (OSError, KeyError, ValueError):
            return Level.high
        share = (dirty + writeback) / max(1, (limit + background) / 2)
        if share > _LIMIT:
            return Level.limit
        return Level.high if share > _HIGH else Level.low

    def waits(self) -> int:
        return getrusage(RUSAGE_THREAD).ru_nvcsw
