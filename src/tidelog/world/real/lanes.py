"""Threads that wait in system calls for the loop: one for each lane, started on first use.

A lane does its work one at a time and in order. What came of it, a result or the exception
as a value, is posted back to the loop; a lane outlives whatever its work raises.
"""

from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from threading import Thread
from typing import Any

Post = Callable[[Callable[[], None]], None]
Work = tuple[Callable[[], Any], Callable[[Any], None]]


class Lanes:
    def __init__(self, post: Post) -> None:
        self._post = post
        self._lanes: dict[str, tuple[SimpleQueue[Work | None], Thread]] = {}

    def submit(self, lane: str, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        found = self._lanes.get(lane)
        if found is None:
            found = self._lanes[lane] = self._start(lane)
        found[0].put((work, done))

    def close(self) -> None:
        """Ends every lane after the work it was given."""
        for queue, _ in self._lanes.values():
            queue.put(None)
        for _, thread in self._lanes.values():
            thread.join()
        self._lanes.clear()

    def _start(self, lane: str) -> tuple[SimpleQueue[Work | None], Thread]:
        queue: SimpleQueue[Work | None] = SimpleQueue()
        thread = Thread(target=_serve, args=(queue, self._post), name=f"lane {lane}", daemon=True)
        thread.start()
        return queue, thread


def _serve(queue: SimpleQueue[Work | None], post: Post) -> None:
    while (item := queue.get()) is not None:
        work, done = item
        post(partial(done, _outcome(work)))
        # Nothing of the last piece of work may live on while the lane waits for the next.
        del item, work, done


def _outcome(work: Callable[[], Any]) -> Any:
    try:
        return work()
    except Exception as error:
        return error
    except BaseException as error:
        # A thread that tries to end the process would only end its lane, and all its work.
        return RuntimeError(f"work beside the loop raised {error!r}")
