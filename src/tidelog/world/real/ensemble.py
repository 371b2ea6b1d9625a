"""A broker's standing with ZooKeeper: its session, and who watches over it.

Before anything is sent in a session, the session of this broker's predecessor is closed, if there
is one that nobody closed; the new one is noted beside the logs; and the guard knows of it, so that
it ends with the process. Imported only where a ZooKeeper is configured.
"""

from collections.abc import Callable

from tidelog.base.settings import Settings
from tidelog.world.real.guarding import Guard
from tidelog.world.real.past_session import close_previous, forget_session, note_session
from tidelog.world.real.zookeeper import ZooKeeper

DEFAULT_PORT = 2181


class Ensemble:
    def __init__(self, settings: Settings, post: Callable[[Callable[[], None]], None]) -> None:
        connect = settings.text("zookeeper.connect")
        self._servers = servers_in(connect)
        self._folder = settings.log_dirs[0]
        self._timeout_ms = settings.whole("zookeeper.session.timeout.ms")
        self._is_first = True
        self.guard = Guard(self._servers)
        self.coordination = ZooKeeper(connect, self._timeout_ms, post, self._begin_session)

    def _begin_session(self, session_id: int, password: bytes) -> None:
        """In the thread of the adapter, which sends nothing before this returns."""
        if self._is_first:
            close_previous(self._folder, self._servers)
            self._is_first = False
        note_session(self._folder, session_id, password)
        self.guard.watch(session_id, password, self._timeout_ms)

    def leave(self, done: Callable[[], None]) -> None:
        """Calls `done` when the session, which was closed, is over; or cannot be ended now. Then it
        is left to the guard when this process has ended, and to the next one in that folder."""

        def over() -> None:
            if self.coordination.was_ended:
                self.guard.close()
                forget_session(self._folder)
            done()

        self.coordination.after_all(over)


def servers_in(connect: str) -> list[tuple[str, int]]:
    """Hosts and ports of `zookeeper.connect`, without its path."""
    servers = []
    for item in connect.partition("/")[0].split(","):
        host, found, port = item.strip().rpartition(":")
        servers.append((host.strip("[]"), int(port)) if found else (port, DEFAULT_PORT))
    return servers
