"""Being a member: registered for as long as the session lives, and a candidate for controller.

A session that expired takes the registration and the office with it. When there is a new one the
broker registers again, with a new epoch, and takes part in elections again. There is always a
watch on `/controller`, or a look under way that leaves one: so no vacancy is missed.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from tidelog.base.coordination import (
    CoordinationError,
    SessionState,
    Stat,
    Trouble,
    WatchKind,
)
from tidelog.base.errors import BadValue
from tidelog.base.ports import Timer
from tidelog.cluster import paths
from tidelog.cluster.image import BrokerInfo
from tidelog.cluster.leadership import Election, Office, OtherController
from tidelog.cluster.registration import Registered, Registration
from tidelog.cluster.surroundings import Surroundings
from tidelog.cluster.writing import insist

_log = logging.getLogger(__name__)

RETRY_MS: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Events:
    """Who is told what becomes of a member."""

    registering: Callable[[], None]
    registered: Callable[[Registered], None]
    refused: Callable[[Exception], None]
    """It cannot register: another broker has its number, or the tree is another cluster's."""
    expired: Callable[[], None]
    elected: Callable[[Office], None]
    deposed: Callable[[], None]


class Membership:
    def __init__(self, around: Surroundings, session_timeout_ms: int, events: Events) -> None:
        self._around = around
        self._coordination = around.coordination
        self._session_timeout_ms = session_timeout_ms
        self._events = events
        self._broker: BrokerInfo | None = None
        """None until it wants to be a member."""
        self._cluster_id = ""
        self._registration: Registration | None = None
        self._sessions: set[int] = set()
        self._number = 0
        """Of the session, so that what an earlier one asked for is not taken for this one's."""
        self._is_registered = False
        self._is_electing = False
        self._is_in_office = False
        self._is_closed = False
        self.is_connected = True
        """To the coordinator; before the first connection it is not known to be otherwise."""
        self._timer: Timer | None = None
        around.coordination.on_session(self._session_changed)

    def join(self, broker: BrokerInfo, cluster_id: str) -> None:
        self._broker = broker
        self._cluster_id = cluster_id
        self._register()

    def step_down(self) -> None:
        """Another broker is controller, or will be."""
        if self._is_in_office:
            self._is_in_office = False
            self._events.deposed()
            self._look()

    def close(self) -> None:
        self._is_closed = True
        self._end_session()

    # -- the session

    def _session_changed(self, state: SessionState) -> None:
        self.is_connected = state is SessionState.connected
        if self._is_closed or self._broker is None:
            return
        if state is SessionState.expired:
            _log.warning("session expired broker=%d", self._broker.broker_id)
            self._end_session()
            self._events.expired()
        elif state is SessionState.connected and self._registration is None:
            self._register()

    def _end_session(self) -> None:
        self._number += 1
        self._is_registered = self._is_electing = False
        if self._registration is not None:
            self._registration.is_cancelled = True
            self._registration = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._is_in_office:
            self._is_in_office = False
            self._events.deposed()

    # -- registration

    def _register(self) -> None:
        assert self._broker is not None
        session_id = self._coordination.session_id
        past = frozenset(self._sessions - {session_id})
        self._sessions.add(session_id)
        self._registration = Registration(
            self._coordination,
            self._around.clock,
            self._around.loop,
            self._broker,
            self._session_timeout_ms,
        )
        self._events.registering()
        registered = partial(self._registered, self._number)
        self._registration.start(self._cluster_id, past, registered)

    def _registered(self, number: int, result: Registered | CoordinationError | BadValue) -> None:
        if number != self._number:
            return
        if isinstance(result, Registered):
            self._is_registered = True
            self._events.registered(result)
            self._look()
        elif isinstance(result, CoordinationError) and _is_expiry(result):
            _log.info("the session expired while registering")
        elif isinstance(result, CoordinationError) and result.trouble is not Trouble.storage:
            self._again(self._register)
        else:
            self._events.refused(result)

    # -- the controller

    def _look(self) -> None:
        ask = partial(self._coordination.exists, paths.CONTROLLER)
        number = self._number

        def look(done: Callable[[Stat | CoordinationError | None], None]) -> None:
            ask(done, self._controller_moved)

        insist(look, partial(self._looked, number))

    def _controller_moved(self, _kind: WatchKind, _path: str) -> None:
        if self._is_registered:
            self._look()

    def _looked(self, number: int, stat: Stat | CoordinationError | None) -> None:
        """What is seen may be this broker's own: then it stays in office."""
        if number != self._number or not self._is_registered:
            return
        if isinstance(stat, CoordinationError):
            if not _is_expiry(stat):
                self._again(self._look)
            return
        is_own = stat is not None and stat.ephemeral_owner == self._coordination.session_id
        if self._is_in_office and not is_own:
            self._is_in_office = False
            self._events.deposed()
        if not self._is_electing and not self._is_in_office and (stat is None or is_own):
            self._elect()

    def _elect(self) -> None:
        assert self._broker is not None
        self._is_electing = True
        election = Election(self._coordination, self._around.clock, self._broker.broker_id)
        election.start(partial(self._elected, self._number))

    def _elected(
        self, number: int, result: Office | OtherController | CoordinationError | BadValue
    ) -> None:
        if number != self._number:
            return
        self._is_electing = False
        if isinstance(result, Office):
            self._is_in_office = True
            self._events.elected(result)
        elif isinstance(result, BadValue):
            _log.error("there can be no controller: %s", result)
            self._again(self._look)
        elif isinstance(result, CoordinationError) and not _is_expiry(result):
            self._again(self._look)
        else:
            # What happened meanwhile may have been taken for this broker's own.
            self._look()

    def _again(self, action: Callable[[], None]) -> None:
        if self._timer is None:
            at_ms = self._around.clock.monotonic_ms() + RETRY_MS
            self._timer = self._around.loop.call_at(at_ms, partial(self._timed, action))

    def _timed(self, action: Callable[[], None]) -> None:
        self._timer = None
        action()


def _is_expiry(error: CoordinationError) -> bool:
    return error.trouble is Trouble.session_expired
