"""Our broker has done what it answers for when it answers. Apache Kafka's controller answers before
its brokers have heard of it, so a test that looks at once would fail there for no good reason."""

import time
from collections.abc import Callable

from support.servers import PEER

_SECONDS_MAX = 60


def settled(holds: Callable[[], bool]) -> bool:
    """Whether `holds`: at once for our broker, in a while for another."""
    deadline = time.monotonic() + (_SECONDS_MAX if PEER else 0)
    while not holds():
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.05)
    return True
