"""What a broker does when a controller tells it something.

Requests are let through by `fencing` or refused, and acted on one at a time, in the order they
came in. Those that come while the broker registers wait until it knows its own epoch: a controller
may see the registration before the broker does. A request that a bug has spoilt is answered with
an error, so that it comes again and the next ones are heard.
"""

import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from tidelog.base.control import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    ControlRequest,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    ReplicaStatesRequest,
    StopReplicaRequest,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)
from tidelog.base.errors import ErrorCode
from tidelog.cluster.config_following import ConfigFollowing
from tidelog.cluster.controller import Controller
from tidelog.cluster.fencing import FencedRequest, Fencing, refused
from tidelog.cluster.host import Host
from tidelog.cluster.registration import Registered
from tidelog.cluster.standing import Standing
from tidelog.cluster.view import View

_log = logging.getLogger(__name__)


class Obeying:
    def __init__(self, standing: Standing, following: ConfigFollowing, host: Host) -> None:
        self._standing = standing
        self._following = following
        self._host = host
        self._view = View(standing.image)
        self.fencing = Fencing()
        self._parked: list[Callable[[], None]] | None = None
        """Not None while the broker registers."""
        self._waiting: deque[tuple[FencedRequest, Callable[[Any], None]]] = deque()
        self._under_way: Callable[[Any], None] | None = None
        """How the request that is acted on is to be answered."""
        self._knows_metadata = False
        self._knows_states = False
        self._told: Callable[[], None] = lambda: None

    def when_told(self, done: Callable[[], None]) -> None:
        """Once this incarnation was told everything for the first time."""
        self._told = done

    # -- the session

    def registering(self) -> None:
        if self._parked is None:
            self._parked = []

    def registered(self, registered: Registered) -> None:
        self.fencing.saw_controller(registered.controller_epoch)
        self.fencing.registered(registered.broker.epoch)
        self._release()

    def expired(self) -> None:
        self.fencing.expired()
        self._knows_metadata = self._knows_states = False
        self._release()
        self._host.resign()

    def refused(self, error: Exception) -> None:
        """After an expiry; the host has resigned then."""
        _log.error("this broker is not in the cluster any more: %s", error)
        self._release()

    def _release(self) -> None:
        parked, self._parked = self._parked, None
        for handle in parked or ():
            handle()

    # -- requests

    def handle(
        self, request: ControlRequest, controller: Controller | None, done: Callable[[Any], None]
    ) -> None:
        if isinstance(request, ControlledShutdownRequest):
            _shut_down(request, controller, done)
        elif self._parked is not None:
            self._parked.append(partial(self.handle, request, controller, done))
        else:
            self._waiting.append((request, done))
            self._go_on()

    def _go_on(self) -> None:
        while self._waiting and self._under_way is None:
            request, done = self._waiting.popleft()
            self._under_way = obeyed = partial(self._obeyed, request, done)
            try:
                self._obey(request, obeyed)
            except Exception:
                if self._under_way is obeyed:
                    obeyed(refused(request, ErrorCode.unknown_server_error))
                raise

    def _obey(self, request: FencedRequest, done: Callable[[Any], None]) -> None:
        code = self.fencing.refusal(request)
        if code is not None:
            done(refused(request, code))
            return
        match request:
            case UpdateMetadataRequest():
                done(self._update(request))
            case LeaderAndIsrRequest() if self.fencing.is_late(request):
                done(LeaderAndIsrResponse(error_code=ErrorCode.none))
            case LeaderAndIsrRequest():
                led = partial(self._led, request, done)
                self._host.leader_and_isr(self.fencing.without_removed(request), led)
            case StopReplicaRequest():
                self.fencing.note_removed(request)
                self._host.stop_replica(request, done)
            case ReplicaStatesRequest():
                done(self._host.replica_states(request))

    def _led(
        self,
        request: LeaderAndIsrRequest,
        done: Callable[[Any], None],
        response: LeaderAndIsrResponse,
    ) -> None:
        self._knows_states |= request.is_full and self._is_of_this_session(request)
        done(response)

    def _obeyed(self, request: FencedRequest, done: Callable[[Any], None], response: Any) -> None:
        """A session that ended meanwhile has undone it."""
        self._under_way = None
        if response.error_code == ErrorCode.none and not self._is_of_this_session(request):
            response = refused(request, ErrorCode.stale_broker_epoch)
        if self._knows_metadata and self._knows_states:
            told, self._told = self._told, lambda: None
            told()
        done(response)
        self._go_on()

    def _is_of_this_session(self, request: FencedRequest) -> bool:
        return request.broker_epoch == self.fencing.broker_epoch

    def _update(self, request: UpdateMetadataRequest) -> UpdateMetadataResponse:
        if not self.fencing.is_late(request):
            change = self._view.update(request)
            self._knows_metadata |= request.is_full
            self._following.topics_appeared(topic.name for topic in change.created)
            self._standing.tell(change)
        return UpdateMetadataResponse(error_code=ErrorCode.none)


def _shut_down(
    request: ControlledShutdownRequest, controller: Controller | None, done: Callable[[Any], None]
) -> None:
    if controller is None or not controller.is_active:
        done(ControlledShutdownResponse(error_code=ErrorCode.not_controller))
    else:
        controller.wishes.shut_down(request.broker_id, request.broker_epoch, done)
