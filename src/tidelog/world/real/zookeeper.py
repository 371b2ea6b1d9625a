"""Coordination through a real ZooKeeper: a session that lives as long as the broker does.

Everything here runs in the broker's loop. What the connection's thread hears comes through one
queue, in order, so a watch is told before any answer that shows its change. What is asked while
there is no connection waits. When a connection is lost, what was under way is answered with
`connection_loss`, and on the next one the watches are left again, before anything else is asked;
those that fired meanwhile are told first. When the session expires, all that was asked is
answered with `session_expired`, its watches are gone, and a new session begins by itself.
"""

import logging
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from tidelog.base.coordination import (
    CoordinationError,
    Create,
    Done,
    Node,
    Operation,
    SessionState,
    Stat,
    Trouble,
    Watch,
    Written,
)
from tidelog.base.errors import BadValue
from tidelog.world.real.zookeeper_link import Link, OnNewSession, are_hosts
from tidelog.world.real.zookeeper_requests import (
    WATCH_KINDS,
    Asked,
    SetWatches,
    Writing,
    above,
    ask_children,
    ask_data,
    ask_existence,
    below,
    read_existence,
    read_node,
)
from tidelog.world.real.zookeeper_watches import LeftWatches
from tidelog.world.znode_paths import ROOT, check_path

_log = logging.getLogger("tidelog.zookeeper")

IN_FLIGHT_MAX: Final = 1_000
_TOLD_MAX: Final = 50
"""Answers and watches in one turn of the loop; the rest wait for the next."""

Answer = TypeVar("Answer")
Post = Callable[[Callable[[], None]], None]


class ZooKeeper:
    def __init__(
        self,
        connect: str,
        session_timeout_ms: int,
        post: Post,
        on_new_session: OnNewSession | None = None,
        in_flight_max: int = IN_FLIGHT_MAX,
    ) -> None:
        """`connect` is `host:port,host:port/chroot`; the chroot is made if it is not there.
        `post` runs a callback in the loop, from any thread. `on_new_session` is called with the
        id and the password of every new session, in another thread; before it has returned
        nothing is sent in that session, and if it raises, nothing will be."""
        hosts, slash, chroot = connect.partition("/")
        self._root = slash + chroot if chroot else ""
        if not are_hosts(hosts):
            raise BadValue(
                f"zookeeper.connect={connect}: must be host:port separated by commas, an IPv6 "
                "address in brackets, such as zoo1:2181,[::1]:2181"
            )
        if self._root:
            _check_chroot(self._root, connect)
        self._post = post
        self._in_flight_max = in_flight_max
        self._listeners: list[Callable[[SessionState], None]] = []
        self._state: SessionState | None = None
        """None until the first connection: whoever asks first need not hear of it."""
        self._session_id = 0
        self._connection = 0
        self._has_root = not self._root
        """Whether the chroot is known to be there."""
        self._watches = LeftWatches()
        self._waiting: deque[Asked[Any]] = deque()
        """Not sent yet."""
        self._asked: deque[Asked[Any]] = deque()
        """Sent, or refused, and not answered yet."""
        self._news: deque[Callable[[], None]] = deque()
        self._is_posted = False
        self._has_sent = False
        self._is_closed = False
        self._is_ending = False
        self._is_over = False
        self.was_ended = False
        """Whether, once all is over, no session is left that has to time out."""
        self._at_the_end: list[Callable[[], None]] = []
        # Nothing else is said until one answers, which may take as long as it likes.
        _log.info("connecting to ZooKeeper at %s", connect)
        self._link = Link(hosts, session_timeout_ms, _Hearing(self), on_new_session)

    # The port.

    @property
    def session_id(self) -> int:
        """0 until the first connection."""
        return self._session_id

    def get(self, path: str, done: Done[Node], watch: Watch | None = None) -> None:
        request = ask_data(below(self._root, path), watch is not None)
        self._look(Asked(path, done, request).reading(read_node), watch)

    def children(self, path: str, done: Done[list[str]], watch: Watch | None = None) -> None:
        request = ask_children(below(self._root, path), watch is not None)
        self._look(Asked(path, done, request).reading(sorted), watch)

    def exists(self, path: str, done: Done[Stat | None], watch: Watch | None = None) -> None:
        request = ask_existence(below(self._root, path), watch is not None)
        self._look(Asked(path, done, request).reading(read_existence), watch)

    def write(self, operations: Sequence[Operation], done: Done[list[Written]]) -> None:
        writing = Writing(operations, self._root)
        path = operations[0].path if operations else ROOT
        asked = Asked(path, done, writing.request()).reading(writing.read)
        self._ask(asked, writing.check)

    def on_session(self, listener: Callable[[SessionState], None]) -> None:
        """The first connection is not told: whatever is asked before it waits for it."""
        self._listeners.append(listener)

    def close(self) -> None:
        """What was asked for before is still done and answered, if there is a connection."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._state is not SessionState.connected:
            self._break_off(Trouble.connection_loss)
        self._put(self._end_if_done)

    def after_all(self, callback: Callable[[], None]) -> None:
        """Runs a callback once the session that was closed is over, or is left to time out."""
        self._at_the_end.append(callback)
        self._put(self._tell_the_end)

    # Asking.

    def _look(self, asked: Asked[Any], watch: Watch | None) -> None:
        asked.watch = watch
        self._ask(asked, partial(check_path, asked.path))

    def _ask(self, asked: Asked[Any], check: Callable[[], None]) -> None:
        try:
            check()
        except CoordinationError as error:
            asked.refused = error
        if self._is_closed or self._state is SessionState.expired:
            asked.refused = CoordinationError(Trouble.session_expired, asked.path)
        self._waiting.append(asked)
        self._send_waiting()

    def _send_waiting(self) -> None:
        """What is refused comes with the rest, so that its answer is not before theirs."""
        while self._waiting and len(self._asked) < self._in_flight_max:
            asked = self._waiting[0]
            if asked.refused is None and self._state is not SessionState.connected:
                return
            self._waiting.popleft()
            self._asked.append(asked)
            if asked.refused is None:
                self._send(asked)
            else:
                self._put(self._go_on)

    def _send(self, asked: Asked[Any]) -> None:
        """The connection is woken in the next turn, once for all that this one has to send."""
        asked.connection = self._connection
        self._link.outgoing.append(asked.reporting(self._hear_answer))
        if not self._has_sent:
            self._has_sent = True
            self._post(self._wake_link)

    def _wake_link(self) -> None:
        self._has_sent = False
        self._link.wake()

    # What comes back: from any thread into the queue, and from there in order.

    def _hear_answer(self, asked: Asked[Any], answer: Any) -> None:
        self._put(partial(self._answer, asked, answer))

    def _put(self, news: Callable[[], None]) -> None:
        self._news.append(news)
        self._wake()

    def _wake(self) -> None:
        if not self._is_posted:
            self._is_posted = True
            self._post(self._tell_some)

    def _tell_some(self) -> None:
        # Cleared before the queue is looked at: who adds to it later posts again.
        self._is_posted = False
        try:
            for _ in range(min(_TOLD_MAX, len(self._news))):
                self._news.popleft()()
        finally:
            if self._news:
                self._wake()

    def _tell_next(self, news: Sequence[Callable[[], None]]) -> None:
        """Before all that is in the queue; each on its own, so that one that fails takes none of
        the others with it."""
        self._news.extendleft(reversed(news))
        self._wake()

    def _answer(self, asked: Asked[Any], answer: Any) -> None:
        if asked.is_answered:
            return
        head = self._asked.popleft()
        assert head is asked, "ZooKeeper answers in order"
        if asked.watch is not None:
            self._leave_watch(asked, asked.watch, answer)
        self._tell_next([partial(asked.tell, answer), self._go_on])

    def _go_on(self) -> None:
        """After an answer: it may have made room, and those behind it may be refused."""
        refused = []
        while self._asked and (error := self._asked[0].refused) is not None:
            refused.append(partial(self._asked.popleft().tell, error))
        self._tell_next([*refused, self._end_if_done])
        self._send_waiting()

    def _leave_watch(self, asked: Asked[Any], watch: Watch, answer: Any) -> None:
        path = below(self._root, asked.path)
        if isinstance(answer, CoordinationError):
            return
        if answer is None:
            self._watches.on_missing(path, watch)
        elif asked.is_of_children:
            self._watches.on_children(path, watch)
        else:
            self._watches.on_node(path, watch)

    def _tell_watches(self, kind_number: int, path: str) -> None:
        kind = WATCH_KINDS[kind_number]
        seen = above(self._root, path)
        self._tell_next([partial(watch, kind, seen) for watch in self._watches.take(kind, path)])

    # The session.

    def _begin(self, connection: int, session_id: int, last_zxid: int) -> None:
        _log.info("connected to ZooKeeper, session 0x%x", session_id)
        is_first, is_new = self._state is None, session_id != self._session_id
        self._state = SessionState.connected
        self._session_id, self._connection = session_id, connection
        if is_new or not self._has_root:
            self._make_chroot()
        for lists in self._watches.lists():
            self._ask_first(SetWatches(last_zxid, lists), _hear_nothing)
        self._send_waiting()
        if not is_first:
            self._tell_next(self._announcements())

    def _make_chroot(self) -> None:
        for end, letter in enumerate(self._root + "/"):
            if letter == "/" and end:
                made = Writing([Create(path=self._root[:end])], "")
                self._ask_first(made.request(), self._made_chroot)

    def _made_chroot(self, answer: object) -> None:
        """Made now or before: what counts is that the last one was answered at all."""
        self._has_root = not isinstance(answer, CoordinationError)

    def _ask_first(self, request: Any, done: Done[Any]) -> None:
        asked: Asked[Any] = Asked(ROOT, done, request)
        self._asked.append(asked)
        self._send(asked)

    def _suspend(self) -> None:
        if self._state is SessionState.connected:
            _log.warning("the connection to ZooKeeper is lost")
            self._state = SessionState.suspended
            self._break_off(Trouble.connection_loss)

    def _expire(self) -> None:
        _log.warning("session 0x%x at ZooKeeper has expired", self._session_id)
        self._state = SessionState.expired
        self._watches.clear()
        self._asked += self._waiting
        self._waiting.clear()
        self._break_off(Trouble.session_expired)

    def _break_off(self, trouble: Trouble) -> None:
        """What was under way is answered, after the listeners know why."""
        self._link.outgoing.clear()
        if self._is_closed:
            self._asked += self._waiting
            self._waiting.clear()
        failed, self._asked = self._asked, deque()
        answers = [partial(asked.fail, trouble) for asked in failed]
        self._tell_next([*self._announcements(), *answers, self._end_if_done])

    def _announcements(self) -> list[Callable[[], None]]:
        listeners = self._listeners if not self._is_closed else []
        return [partial(listener, self._state) for listener in listeners if self._state]

    # The end.

    def _end_if_done(self) -> None:
        if self._is_closed and not self._is_ending and not self._asked and not self._waiting:
            self._is_ending = True
            self._link.end(partial(self._put, self._be_over))
            if self._state is not SessionState.connected:
                self._be_over()

    def _be_over(self) -> None:
        self._is_over = True
        self.was_ended = self._state is SessionState.expired or self._link.has_closed
        self._tell_the_end()

    def _tell_the_end(self) -> None:
        if self._is_over:
            waiting, self._at_the_end = self._at_the_end, []
            for callback in waiting:
                callback()


class _Hearing:
    """The connection's thread puts what it hears into the queue."""

    def __init__(self, owner: ZooKeeper) -> None:
        self._owner = owner

    def connected(self, connection: int, session_id: int, last_zxid: int) -> None:
        owner = self._owner
        owner._put(partial(owner._begin, connection, session_id, last_zxid))

    def suspended(self) -> None:
        self._owner._put(self._owner._suspend)

    def expired(self) -> None:
        self._owner._put(self._owner._expire)

    def watched(self, kind: int, path: str) -> None:
        self._owner._put(partial(self._owner._tell_watches, kind, path))


def _check_chroot(root: str, connect: str) -> None:
    try:
        check_path(root)
    except CoordinationError:
        raise BadValue(f"zookeeper.connect={connect}: no path can be {root}") from None


def _hear_nothing(_answer: object) -> None:
    """Of what is asked only so that something else works."""
