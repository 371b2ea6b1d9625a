"""How many files and connections this process has open, and how many it may."""

import os
import resource

_UNLIMITED = 1 << 31
_OPEN = "/proc/self/fd"


def descriptors() -> tuple[int, int]:
    """As far as it is known without counting them: whoever opens something is given the lowest
    number that is free, so at least so many are open as lie below that."""
    limit = _limit()
    try:
        lowest = os.eventfd(0, os.EFD_CLOEXEC)
    except OSError:
        return limit, limit
    os.close(lowest)
    return lowest, limit


def counted_descriptors() -> tuple[int, int]:
    """Those above a number that was given back as well. Since Linux 6.2 the folder knows how many
    there are; before that they are listed, which takes the longer the more there are."""
    try:
        return os.stat(_OPEN).st_size or len(os.listdir(_OPEN)), _limit()
    except OSError:
        return descriptors()


def _limit() -> int:
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _UNLIMITED if limit == resource.RLIM_INFINITY else limit
