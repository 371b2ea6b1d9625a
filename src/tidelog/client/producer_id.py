"""The number under which an idempotent writer's batches count, given out by any broker."""

from typing import Any, Final

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.base.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from tidelog.client import apis
from tidelog.client.client import Client
from tidelog.client.leaders import PAUSE_MS
from tidelog.client.sockets import now_ms, pause_ms

_TRANSACTION_MS: Final = 60_000
"""Asked for by the protocol, also of those who have no transactions."""
_STARTING: Final = (
    ErrorCode.coordinator_load_in_progress,
    ErrorCode.coordinator_not_available,
    ErrorCode.not_coordinator,
    ErrorCode.request_timed_out,
)


def new_producer(client: Client) -> tuple[int, int]:
    """A producer id that nobody else has, and its first epoch."""
    values = {
        "transactional_id": None,
        "transaction_timeout": _TRANSACTION_MS,
        "producer_id": NO_PRODUCER_ID,
        "producer_epoch": NO_PRODUCER_EPOCH,
    }
    deadline_ms = now_ms() + client.timeout_ms
    while True:
        answer: Any = client.ask(apis.INIT_PRODUCER_ID, values)
        code: ErrorCode = answer.error_code
        if code is ErrorCode.none:
            return answer.producer_id, answer.producer_epoch
        if code not in _STARTING or now_ms() + PAUSE_MS > deadline_ms:
            raise KafkaError(code, f"no producer id was given: {code.name.replace('_', ' ')}")
        pause_ms(PAUSE_MS)
