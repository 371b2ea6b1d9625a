"""How much the page cache holds that is not on disk yet, as Linux counts it.

From half way between its background limit and its limit on, the kernel makes whoever writes
wait; that half way is what large writes stay clear of. Where the system does not tell, the level
is high: then these are never made where waiting would hurt, and small ones are.

Threads of a real-time class are made to wait later than others: only when a quarter more is dirty
than what these are stopped at. To be of one takes the right to (root, CAP_SYS_NICE, or a limit
RLIMIT_RTPRIO of at least 1).
"""

import os
import re
from pathlib import Path
from resource import RUSAGE_THREAD, getrusage

from tidelog.base.ports import Level

_COUNTERS = Path("/proc/vmstat")
_HIGH = 0.7
_LIMIT = 0.95
"""Shares of what the kernel takes without making anybody wait."""
_THIS_THREAD = 0
_LOWEST_PRIORITY = 1
_WANTED = (b"nr_dirty", b"nr_writeback", b"nr_dirty_threshold", b"nr_dirty_background_threshold")
_NAMED = re.compile(rb"^(" + b"|".join(_WANTED) + rb") (\d+)$", re.MULTILINE)
_COUNTERS_BYTES_MAX = 1 << 16


class RealPressure:
    def __init__(self) -> None:
        self._may_favour = True

    def level(self) -> Level:
        try:
            counters = dict(_NAMED.findall(_read(_COUNTERS)))
            dirty, writeback, limit, background = (int(counters[name]) for name in _WANTED)
        except (OSError, KeyError, ValueError):
            return Level.high
        share = (dirty + writeback) / max(1, (limit + background) / 2)
        if share > _LIMIT:
            return Level.limit
        return Level.high if share > _HIGH else Level.low

    def waits(self) -> int:
        return getrusage(RUSAGE_THREAD).ru_nvcsw

    def favour(self) -> None:
        if not self._may_favour or os.sched_getscheduler(_THIS_THREAD) != os.SCHED_OTHER:
            return
        try:
            policy = os.SCHED_RR | os.SCHED_RESET_ON_FORK
            os.sched_setscheduler(_THIS_THREAD, policy, os.sched_param(_LOWEST_PRIORITY))
        except OSError:
            # Whoever may not is served as everybody is.
            self._may_favour = False


def _read(path: Path) -> bytes:
    """In as few calls as there can be."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, _COUNTERS_BYTES_MAX)
    finally:
        os.close(descriptor)
