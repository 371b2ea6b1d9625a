"""A broker that is about to stop asks the controller to lead its partitions elsewhere.

It asks again for as long as some remain, or the controller does not answer, and stops in any case
when it has asked often enough, or long enough: what it leads then has no leader until its session
is over. A controller that has lost its coordinator, and may be this very broker, never answers: so
who has lost it too does not ask for long.
"""

import logging
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from tidelog.base.control import ControlledShutdownRequest
from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.base.ports import Timer
from tidelog.base.settings import Settings
from tidelog.cluster.fencing import NOT_REGISTERED
from tidelog.cluster.image import NO_CONTROLLER
from tidelog.cluster.surroundings import Surroundings

_log = logging.getLogger(__name__)

ASKED_MS_MAX: Final = 30_000
AWAY_MS_MAX: Final = 3_000
"""For how long it asks while it has no connection to the coordinator."""
LOOK_MS: Final = 500


class Shutdown:
    def __init__(
        self,
        around: Surroundings,
        settings: Settings,
        controller_id: Callable[[], int],
        is_connected: Callable[[], bool],
    ) -> None:
        self._around = around
        self._controller_id = controller_id
        self._is_connected = is_connected
        self._is_wanted = settings.flag("controlled.shutdown.enable")
        self._tries_left = 1 + settings.whole("controlled.shutdown.max.retries")
        self._backoff_ms = settings.whole("controlled.shutdown.retry.backoff.ms")
        self._done: Callable[[], None] | None = None
        self._timer: Timer | None = None

    def start(self, broker_id: int, broker_epoch: int, done: Callable[[], None]) -> None:
        if not self._is_wanted or broker_epoch == NOT_REGISTERED:
            self._around.loop.call_soon(done)
            return
        self._done = done
        now_ms = self._around.clock.monotonic_ms()
        self._look(broker_id, now_ms + ASKED_MS_MAX, now_ms)
        request = ControlledShutdownRequest(broker_id=broker_id, broker_epoch=broker_epoch)
        self._try(request)

    def _try(self, request: ControlledShutdownRequest) -> None:
        if self._done is None:
            return
        self._tries_left -= 1
        controller_id = self._controller_id()
        if controller_id == NO_CONTROLLER:
            error = KafkaError(ErrorCode.not_controller, "no controller is known")
            self._around.loop.call_soon(partial(self._answered, request, error))
        else:
            self._around.peers.send(controller_id, request, partial(self._answered, request))

    def _answered(self, request: ControlledShutdownRequest, response: Any) -> None:
        if self._done is None:
            return
        if isinstance(response, KafkaError):
            why = response.message
        elif response.error_code != ErrorCode.none:
            why = ErrorCode(response.error_code).name
        elif response.remaining:
            why = f"{len(response.remaining)} partitions cannot be led elsewhere"
        else:
            self._end()
            return
        _log.warning("broker=%d is not led away from: %s", request.broker_id, why)
        if self._tries_left:
            at_ms = self._around.clock.monotonic_ms() + self._backoff_ms
            self._around.loop.call_at(at_ms, partial(self._try, request))
        else:
            self._end()

    def _look(self, broker_id: int, deadline_ms: int, connected_ms: int) -> None:
        """Gives up at the deadline, or when there was no connection for too long."""
        now_ms = self._around.clock.monotonic_ms()
        if self._is_connected():
            connected_ms = now_ms
        if now_ms < min(deadline_ms, connected_ms + AWAY_MS_MAX):
            again = partial(self._look, broker_id, deadline_ms, connected_ms)
            self._timer = self._around.loop.call_at(now_ms + LOOK_MS, again)
        else:
            _log.warning("broker=%d is not led away from: no answer in time", broker_id)
            self._end()

    def _end(self) -> None:
        done, self._done = self._done, None
        assert self._timer is not None
        self._timer.cancel()
        if done is not None:
            done()
