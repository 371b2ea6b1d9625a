"""The records of a transaction for one partition: each is sent until it is acknowledged or refused.

The lanes of a transaction go on beside each other; when one of them is stuck the others end too.
"""

from typing import TYPE_CHECKING, Any, Final, Protocol

from tidelog.base.errors import ErrorCode
from tidelog.trials.clients import RETRY_MS
from tidelog.trials.leading import Produced

if TYPE_CHECKING:
    from tidelog.trials.world import World

ATTEMPTS_MAX: Final = 12
FENCED: Final = (
    ErrorCode.producer_fenced,
    ErrorCode.invalid_producer_epoch,
    ErrorCode.invalid_producer_id_mapping,
)
ABORTABLE: Final = (ErrorCode.transaction_abortable, ErrorCode.invalid_txn_state)


class Sender(Protocol):
    """Whose transaction it is."""

    world: "World"
    is_stopped: bool

    @property
    def is_in_trouble(self) -> bool: ...

    def later(self, delay_ms: int, then: Any) -> None: ...

    def produce(self, index: int, value: int, done: Any) -> bool:
        """Whether it could be sent."""

    def went_on(self, lane: "Lane", code: ErrorCode) -> None:
        """A lane has its record acknowledged, or is stuck."""


class Lane:
    """The records of a transaction for one partition, one after the other."""

    __slots__ = ("_attempts", "_client", "_known_end", "_value", "index", "left")

    def __init__(self, client: Sender, index: int, count: int) -> None:
        self._client = client
        self._attempts = 0
        self._known_end = 0
        self._value = 0
        self.index = index
        self.left = count - 1

    def begin(self, value: int) -> None:
        self._value = value
        self._attempts = 0
        self._known_end = self._client.world.oracles[self.index].known_end
        self._attempt()

    def _attempt(self) -> None:
        client = self._client
        if client.is_stopped:
            return
        self._attempts += 1
        if client.is_in_trouble or self._attempts > ATTEMPTS_MAX:
            self._give_up(ErrorCode.request_timed_out)
        elif not client.produce(self.index, self._value, self._answered):
            client.later(RETRY_MS, self._attempt)

    def _give_up(self, code: ErrorCode) -> None:
        self._client.world.abandoned.add(self._value)
        self._client.went_on(self, code)

    def _answered(self, answer: Produced | None) -> None:
        world = self._client.world
        code = ErrorCode.network_exception if answer is None else ErrorCode(answer.error)
        if code is ErrorCode.none:
            assert answer is not None
            world.counts.acknowledged += 1
            world.oracles[self.index].acked(answer.offset, self._value, self._known_end)
            self._client.went_on(self, code)
        elif code in FENCED or code in ABORTABLE:
            self._give_up(code)
        else:
            self._client.later(RETRY_MS, self._attempt)
