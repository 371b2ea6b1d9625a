"""A ZooKeeper that is only looked at: each read waits for its answer, for commands that show nodes.

It has no loop of its own: what the adapter wants to run in one is run while a read waits. Nothing
is written, and a chroot that is not there is not made.
"""

from collections.abc import Callable
from functools import partial
from queue import Empty, SimpleQueue
from time import monotonic
from typing import Final, TypeVar

from tidelog.base.coordination import CoordinationError, Done, Node, Stat
from tidelog.base.errors import BadValue
from tidelog.world.real.zookeeper import ZooKeeper
from tidelog.world.real.zookeeper_requests import below

_ANSWER_SECONDS_MAX: Final = 10.0
_SESSION_TIMEOUT_MS: Final = 10_000

Answer = TypeVar("Answer")


class ReadZooKeeper:
    def __init__(self, connect: str) -> None:
        """`connect` is `host:port,host:port/chroot`."""
        self._connect = connect
        hosts, slash, chroot = connect.partition("/")
        self._root = slash + chroot if chroot else ""
        self._calls: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._adapter = ZooKeeper(hosts, _SESSION_TIMEOUT_MS, self._calls.put)

    def close(self) -> None:
        self._adapter.close()
        over: list[bool] = []
        self._adapter.after_all(partial(over.append, True))
        self._run_until(lambda: bool(over))

    def get(self, path: str) -> Node:
        return self._ask(self._adapter.get, path)

    def children(self, path: str) -> list[str]:
        return self._ask(self._adapter.children, path)

    def exists(self, path: str) -> Stat | None:
        return self._ask(self._adapter.exists, path)

    def _ask(self, read: Callable[[str, Done[Answer]], None], path: str) -> Answer:
        answers: list[Answer | CoordinationError] = []
        read(below(self._root, path), answers.append)
        if not self._run_until(lambda: bool(answers)):
            raise BadValue(
                f"{self._connect}: no ZooKeeper answered there for {_ANSWER_SECONDS_MAX:.0f} s"
            )
        answer = answers[0]
        if isinstance(answer, CoordinationError):
            raise CoordinationError(answer.trouble, path)
        return answer

    def _run_until(self, is_done: Callable[[], bool]) -> bool:
        """Runs what the adapter has to run, until it is done or takes too long."""
        deadline = monotonic() + _ANSWER_SECONDS_MAX
        while not is_done():
            try:
                self._calls.get(timeout=max(0.0, deadline - monotonic()))()
            except Empty:
                return False
        return True
