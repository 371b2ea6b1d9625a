"""Time in which a server and a test could do something, on a machine that others use too.

What is measured is how long somebody is kept waiting. That the machine had no processor free, for
those who do the work or for who waits, says nothing about them: Linux tells it by thread.
"""

import os
from collections.abc import Iterable
from pathlib import Path
from threading import get_native_id
from time import monotonic


class Stopwatch:
    """Time that passes while neither the main threads of the processes nor the threads of the
    test that are at work, this one and the main one, wait for a processor."""

    def __init__(self, process_ids: Iterable[int]) -> None:
        mine = {f"/proc/self/task/{number}" for number in (get_native_id(), os.getpid())}
        theirs = {f"/proc/{number}/task/{number}" for number in process_ids}
        self._threads = [Path(thread, "schedstat") for thread in sorted(mine | theirs)]

    def seconds(self) -> float:
        waited_ns = sum(int(path.read_text().split()[1]) for path in self._threads if path.exists())
        return monotonic() - waited_ns / 1e9
