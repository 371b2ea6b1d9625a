"""How much the page cache holds that is not on disk yet, as Linux counts it.

From half way between its background limit and its limit on, the kernel makes whoever writes
wait; that half way is what this stays clear of. Where the system does not tell, there is
always pressure: then large writes are never made where waiting would hurt.
"""

from pathlib import Path
from resource import RUSAGE_THREAD, getrusage

_COUNTERS = Path("/proc/vmstat")
_SHARE = 0.7
_WANTED = ("nr_dirty", "nr_writeback", "nr_dirty_threshold", "nr_dirty_background_threshold")


class RealPressure:
    def is_high(self) -> bool:
        try:
            counters = dict(line.split() for line in _COUNTERS.read_text().splitlines())
            dirty, writeback, limit, background = (int(counters[name]) for name in _WANTED)
        except (OSError, KeyError, ValueError):
            return True
        return dirty + writeback > _SHARE * (limit + background) / 2

    def waits(self) -> int:
        return getrusage(RUSAGE_THREAD).ru_nvcsw
