"""How many files and connections this process has open, and how many it may."""

import os
import resource

_UNLIMITED = 1 << 31


def descriptors() -> tuple[int, int]:
    """As far as it is known without counting them: whoever opens something is given the lowest
    number that is free, so at least so many are open as lie below that."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        limit = _UNLIMITED
    try:
        lowest = os.eventfd(0, os.EFD_CLOEXEC)
    except OSError:
        return limit, limit
    os.close(lowest)
    return lowest, limit
