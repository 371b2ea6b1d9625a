"""Work on the files of the log dirs, done step by step: one thing at a time in each dir.

Flushes, checkpoints, retention, the swapping in of compacted segments and the deletion of
replicas are steps. The loop does what is quick, a thread of the dir waits for the disk. Because
only one piece of work is under way in a dir, none of them has to think of the others. What has
nothing to do with any of them, as the making of new replicas, has a lane of its own.
"""

import logging
from collections import deque
from functools import partial
from typing import Final

from tidelog.base.errors import KafkaError
from tidelog.base.ports import Loop
from tidelog.log.log_dir import LogDir
from tidelog.log.steps import Steps

COMMON: Final = "disk"
MAKING: Final = "make"

_log = logging.getLogger("tidelog.disk")


class DiskWork:
    def __init__(self, loop: Loop) -> None:
        self.loop = loop
        self._queues: dict[str, deque[tuple[str, Steps]]] = {}
        """By lane and dir."""

    @property
    def is_idle(self) -> bool:
        return not any(self._queues.values())

    def run(self, name: str, log_dir: LogDir, steps: Steps, lane: str = COMMON) -> None:
        """Drives steps to their end, after those that came before them in the same dir and lane.
        An error of the disk has taken the dir offline by then; it is logged, and that is all."""
        key = f"{lane} {log_dir.path}"
        queue = self._queues.setdefault(key, deque())
        queue.append((name, steps))
        if len(queue) == 1:
            self._go_on(key, None)

    def run_once(self, name: str, log_dir: LogDir, steps: Steps) -> None:
        """The same, unless work of that name is waiting there already."""
        waiting = list(self._queues.get(f"{COMMON} {log_dir.path}", ()))[1:]
        if all(name != other for other, _ in waiting):
            self.run(name, log_dir, steps)

    def _go_on(self, key: str, end: object) -> None:
        """Takes up a lane's first steps where they are, with what the last wait came to."""
        queue = self._queues[key]
        while queue:
            name, steps = queue[0]
            try:
                wait = steps.throw(end) if isinstance(end, Exception) else next(steps)
            except StopIteration:
                queue.popleft()
            except KafkaError as error:
                _log.error("failed work=%s in=%s why=%s", name, key, error.message)
                queue.popleft()
            except BaseException:
                queue.popleft()
                if queue:
                    self.loop.call_soon(partial(self._go_on, key, None))
                raise
            else:
                self.loop.offload(key, wait, partial(self._go_on, key))
                return
            end = None
