"""A simulated ZooKeeper session: requests travel to the ensemble, answers and watches back.

Both ways take a seeded time and keep their order. What may go wrong does, when a test says so
or as often as `CoordinationFaults` say: the connection is lost before or after a request was
done, the session expires, the process dies. As with the real client, what was under way is
answered with `connection_loss` or `session_expired`, of which neither says whether it was done;
what is asked while suspended waits; watches that fire meanwhile are told first after the
connection is back; and after an expiry a new session begins by itself.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

from tidelog.base.coordination import (
    CoordinationError,
    Done,
    Node,
    Operation,
    SessionState,
    Stat,
    Trouble,
    Watch,
    WatchKind,
    Written,
)
from tidelog.world.sim.ensemble import SimEnsemble
from tidelog.world.sim.loop import SimLoop

Answer = TypeVar("Answer")


@dataclass(slots=True, kw_only=True)
class CoordinationFaults:
    """How often things go wrong, a request at a time, and how long they take."""

    lost_before: float = 0.0
    """The connection is lost, and the request was not done."""
    lost_after: float = 0.0
    """The connection is lost, and the request was done."""
    expires: float = 0.0
    delay_ms_max: int = 3
    """One way."""
    away_ms_max: int = 500
    """From the loss of a connection to the next one, and from an expiry to the next session."""
    session_timeout_ms: int = 18_000


class LeftWatch:
    """A watch as a request leaves it. If the answer is lost, it is not told: the client keeps
    only watches of which it knows that they were left."""

    __slots__ = ("is_known", "watch")

    def __init__(self, watch: Watch) -> None:
        self.watch = watch
        self.is_known = True

    def __call__(self, kind: WatchKind, path: str) -> None:
        if self.is_known:
            self.watch(kind, path)


class Told(NamedTuple):
    """A watch with what it is told."""

    left: LeftWatch
    kind: WatchKind
    path: str

    def repeats(self, other: "Told | None") -> bool:
        """The same callback left twice is one watch."""
        return (
            other is not None
            and other.left.is_known
            and other.left.watch == self.left.watch
            and other[1:] == self[1:]
        )


class Request(Generic[Answer]):
    __slots__ = ("_done", "_perform", "left_watch", "path")

    def __init__(self, path: str, done: Done[Answer], perform: Callable[[int], Answer]) -> None:
        self.path = path
        self.left_watch: LeftWatch | None = None
        self._done = done
        self._perform = perform

    def perform(self, session_id: int) -> Callable[[], None]:
        """Does it at the ensemble; gives back what tells the answer."""
        try:
            return partial(self._done, self._perform(session_id))
        except CoordinationError as error:
            return partial(self._done, error)

    def fail(self, trouble: Trouble) -> None:
        if self.left_watch is not None:
            self.left_watch.is_known = False
        self._done(CoordinationError(trouble, self.path))


class News(NamedTuple):
    """On its way here: the answer to a request, a watch, or a state of the session."""

    tell: Callable[[], None]
    request: Request[Any] | None = None
    watch: Told | None = None


class SimCoordination:
    def __init__(
        self, loop: SimLoop, ensemble: SimEnsemble, faults: CoordinationFaults | None = None
    ) -> None:
        self._loop = loop
        self._ensemble = ensemble
        self._draws = loop.choices.stream("coordination")
        self._random = self._draws.random
        self.faults = CoordinationFaults() if faults is None else faults
        self._listeners: list[Callable[[SessionState], None]] = []
        self._state = SessionState.connected
        self._waiting: deque[Request[Any]] = deque()
        """Asked while there is no connection."""
        self._leaving: deque[Request[Any]] = deque()
        self._arriving: deque[News] = deque()
        self._missed: list[News] = []
        """Watches that fired while there was no connection."""
        self._is_closed = False
        self._is_dead = False
        self._session_id = ensemble.begin_session(self._tell)

    # The port.

    @property
    def session_id(self) -> int:
        return self._session_id

    def get(self, path: str, done: Done[Node], watch: Watch | None = None) -> None:
        self._read(self._ensemble.get, path, done, watch)

    def children(self, path: str, done: Done[list[str]], watch: Watch | None = None) -> None:
        self._read(self._ensemble.children, path, done, watch)

    def exists(self, path: str, done: Done[Stat | None], watch: Watch | None = None) -> None:
        self._read(self._ensemble.exists, path, done, watch)

    def write(self, operations: Sequence[Operation], done: Done[list[Written]]) -> None:
        wanted = tuple(operations)
        path = wanted[0].path if wanted else "/"
        write = self._ensemble.write
        self._ask(Request(path, done, lambda session_id: write(session_id, wanted)))

    def on_session(self, listener: Callable[[SessionState], None]) -> None:
        self._listeners.append(listener)

    def close(self) -> None:
        self._ask(Request("/", _hear_nothing, self._ensemble.end_session))
        self._is_closed = True

    # What tests use: faults.

    def lose_connection(self, *, done: int | None = None, away_ms: int | None = None) -> None:
        """Of the requests on their way, the first `done` (drawn, if not given) are still done;
        nobody is told. A connection that is away for as long as the session's timeout costs the
        session."""
        if self._state is not SessionState.connected or self._is_dead:
            return
        self._perform_some(done)
        if away_ms is None:
            away_ms = self._draws.randint(1, self.faults.away_ms_max)
        if away_ms >= self.faults.session_timeout_ms:
            self._time_out()
        self._break_off(SessionState.suspended, Trouble.connection_loss)
        self._loop.after(away_ms, self._reconnect)

    def expire(self) -> None:
        """The ensemble ends the session; it is known here at once, or when the connection is
        back."""
        if self._is_closed:
            return
        self._ensemble.end_session(self._session_id)
        if self._state is SessionState.connected and not self._is_dead:
            self._learn_of_expiry()

    def die(self) -> None:
        """The process is gone: nothing is told here any more, and the session times out."""
        self._perform_some(None)
        self._is_dead = True
        for queue in (self._waiting, self._leaving, self._arriving):
            queue.clear()
        self._time_out()

    # Inside: what travels.

    def _read(
        self,
        look: Callable[[int, str, Watch | None], Answer],
        path: str,
        done: Done[Answer],
        watch: Watch | None,
    ) -> None:
        left = None if watch is None else LeftWatch(watch)
        request = Request(path, done, lambda session_id: look(session_id, path, left))
        request.left_watch = left
        self._ask(request)

    def _ask(self, request: Request[Any]) -> None:
        if self._is_dead:
            return
        if self._state is SessionState.expired:
            self._bring(News(partial(request.fail, Trouble.session_expired), request))
        elif self._state is SessionState.suspended:
            self._waiting.append(request)
        else:
            self._send(request)

    def _send(self, request: Request[Any]) -> None:
        self._leaving.append(request)
        self._loop.after(self._delay_ms(), self._arrive)

    def _arrive(self) -> None:
        """A request, the first that left, is at the ensemble."""
        if not self._leaving:
            return
        fate, faults = self._random(), self.faults
        if fate < faults.lost_before:
            self.lose_connection(done=0)
        elif fate < faults.lost_before + faults.lost_after:
            self.lose_connection(done=1)
        else:
            request = self._leaving.popleft()
            self._bring(News(request.perform(self._session_id), request))
            if self._random() < faults.expires:
                self.expire()

    def _tell(self, watch: Watch, kind: WatchKind, path: str) -> None:
        assert isinstance(watch, LeftWatch)
        told = Told(watch, kind, path)
        is_away = self._state is SessionState.suspended
        if any(told.repeats(news.watch) for news in (self._missed if is_away else self._arriving)):
            return
        news = News(partial(watch, kind, path), watch=told)
        if is_away:
            self._missed.append(news)
        else:
            self._bring(news)

    def _announce(self, state: SessionState) -> None:
        for listener in self._listeners if not self._is_closed else ():
            self._bring(News(partial(listener, state)))

    def _bring(self, news: News) -> None:
        if not self._is_dead:
            self._arriving.append(news)
            self._loop.after(self._delay_ms(), self._deliver)

    def _deliver(self) -> None:
        """In order, whichever timer fires first."""
        if self._arriving:
            self._arriving.popleft().tell()

    def _delay_ms(self) -> int:
        return int(self._random() * (self.faults.delay_ms_max + 1))

    # Inside: what breaks.

    def _perform_some(self, count: int | None) -> None:
        """Requests that reach the ensemble although their answers do not come back."""
        if count is None:
            count = self._draws.randint(0, len(self._leaving))
        for request in list(self._leaving)[:count]:
            request.perform(self._session_id)

    def _break_off(self, state: SessionState, trouble: Trouble) -> None:
        """Whatever was under way is answered with a trouble."""
        self._state = state
        arriving, self._arriving = self._arriving, deque()
        self._missed += [news for news in arriving if news.watch is not None]
        for news in arriving:
            if news.request is None and news.watch is None:
                self._bring(news)
        self._announce(state)
        lost = [news.request for news in arriving if news.request is not None]
        for request in [*lost, *self._leaving]:
            self._bring(News(partial(request.fail, trouble), request))
        self._leaving.clear()

    def _time_out(self) -> None:
        end = partial(self._ensemble.end_session, self._session_id)
        self._loop.after(self.faults.session_timeout_ms, end)

    def _reconnect(self) -> None:
        if self._is_dead:
            return
        if not self._ensemble.has_session(self._session_id):
            self._learn_of_expiry()
            return
        self._go_on()

    def _learn_of_expiry(self) -> None:
        self._leaving += self._waiting
        self._waiting.clear()
        self._break_off(SessionState.expired, Trouble.session_expired)
        self._missed.clear()
        self._loop.after(self._draws.randint(1, self.faults.away_ms_max), self._begin_anew)

    def _begin_anew(self) -> None:
        if not self._is_dead and not self._is_closed:
            self._session_id = self._ensemble.begin_session(self._tell)
            self._go_on()

    def _go_on(self) -> None:
        """Watches that were missed are told before any answer of the new connection."""
        self._state = SessionState.connected
        self._announce(SessionState.connected)
        missed, self._missed = self._missed, []
        for news in missed:
            self._bring(news)
        waiting, self._waiting = self._waiting, deque()
        for request in waiting:
            self._send(request)


def _hear_nothing(_answer: CoordinationError | None) -> None:
    """Of a session that was closed nothing more is told."""
