"""Asking coordinators: the brokers that look after groups and transactional ids.

Which broker that is depends on the name, and changes: a question goes to the coordinator of each
name it is about, in one request for all names of one broker, and names whose coordinator has moved
or is still reading its log are looked up and asked about again, until the time for it is over.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.client import apis
from tidelog.client.apis import Api
from tidelog.client.building import Values
from tidelog.client.client import Client
from tidelog.client.errors import Unreachable
from tidelog.client.leaders import PAUSE_MS
from tidelog.client.sockets import now_ms, pause_ms

Kind = Literal["group", "transaction"]
_KINDS: Final[dict[Kind, int]] = {"group": 0, "transaction": 1}
LATER: Final = frozenset(
    (
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.coordinator_not_available,
        ErrorCode.not_coordinator,
        ErrorCode.broker_not_available,
        ErrorCode.concurrent_transactions,
        ErrorCode.unstable_offset_commit,
    )
)
"""What is said while another broker takes over, or something is under way; it passes."""

_REPLACED: Final = (
    ErrorCode.coordinator_not_available,
    ErrorCode.not_coordinator,
    ErrorCode.request_timed_out,
)
"""What a coordinator says that was replaced, or is cut off. Whoever named it may be cut off too,
and would name it for ever."""

_ANSWER_MS: Final = 2_000
"""At first, and each time twice as long."""

_NAMES_MAX: Final = 100
"""In one request, so that a broker is not held up by it, and need not refuse it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    kind: Kind
    api: Api
    values: Callable[[Sequence[str]], Values]
    """The request about some names."""
    rows: Callable[[Any], Iterable[tuple[str, ErrorCode, Any]]]
    """What a response says: of each name a code, and more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What a coordinator says of a name."""

    coordinator: int
    """-1 if none was found."""
    code: ErrorCode
    row: Any = None

    def error(self, what: str) -> KafkaError | None:
        """With the broker's own sentence, where it has one."""
        if self.code is ErrorCode.none:
            return None
        message = getattr(self.row, "error_message", None)
        return KafkaError(self.code, message or f"{what}: {self.code.name.replace('_', ' ')}")


def ask_coordinators(client: Client, question: Question, names: Iterable[str]) -> dict[str, Told]:
    """In the order of the names."""
    wanted = list(dict.fromkeys(names))
    # A change that was not acknowledged in time may have been made.
    retried = LATER if question.api.is_change else LATER | {ErrorCode.request_timed_out}
    deadline_ms = now_ms() + client.timeout_ms
    found: dict[str, Told] = {}
    left = wanted
    while left:
        for some in (left[at : at + _NAMES_MAX] for at in range(0, len(left), _NAMES_MAX)):
            found |= _ask_once(client, question, some, _replaced(found))
        left = [name for name in left if found[name].code in retried]
        if left and now_ms() + PAUSE_MS > deadline_ms:
            break
        if left:
            pause_ms(PAUSE_MS)
    return {name: found[name] for name in wanted}


def ask_every_broker(client: Client, api: Api, values: Values) -> dict[int, Any]:
    """The response of each broker there is; one that still reads its log is waited for, and so is
    one that does not answer, as long as it is in the cluster."""
    deadline_ms = now_ms() + client.timeout_ms
    patience_ms = _ANSWER_MS
    found: dict[int, Any] = {}
    while True:
        left = [broker for broker in sorted(client.cluster([]).brokers) if broker not in found]
        if not left:
            return dict(sorted(found.items()))
        for broker in left:
            with client.within(patience_ms):
                trouble = _ask_broker(client, api, values, broker, found)
            if trouble is not None and now_ms() + PAUSE_MS > deadline_ms:
                raise trouble
        patience_ms *= 2
        if any(broker not in found for broker in left):
            pause_ms(PAUSE_MS)


def _ask_broker(
    client: Client, api: Api, values: Values, broker: int, found: dict[int, Any]
) -> KafkaError | Unreachable | None:
    """What stands in the way of an answer for the moment."""
    try:
        answer = client.ask(api, values, broker)
    except Unreachable as error:
        return error
    except KafkaError as error:
        if error.code is not ErrorCode.broker_not_available:
            raise
        return error
    code: ErrorCode = answer.error_code
    if code is ErrorCode.none:
        found[broker] = answer
        return None
    refusal = KafkaError(code, f"broker {broker}: {code.name.replace('_', ' ')}")
    if code not in LATER:
        raise refusal
    return refusal


def _replaced(found: Mapping[str, Told]) -> dict[str, int]:
    return {name: told.coordinator for name, told in found.items() if told.code in _REPLACED}


def _ask_once(
    client: Client, question: Question, names: Sequence[str], replaced: Mapping[str, int]
) -> dict[str, Told]:
    found, by_broker = _find(client, question.kind, names, replaced)
    for broker, theirs in by_broker.items():
        try:
            answer = client.ask(question.api, question.values(theirs), broker)
        except KafkaError as error:
            if error.code is not ErrorCode.broker_not_available:
                raise
            # It has left the cluster since it was found: another one will take over.
            found |= dict.fromkeys(theirs, Told(coordinator=broker, code=error.code))
        else:
            for name, code, row in question.rows(answer):
                found[name] = Told(coordinator=broker, code=code, row=row)
    return found


def _find(
    client: Client, kind: Kind, names: Sequence[str], replaced: Mapping[str, int]
) -> tuple[dict[str, Told], dict[int, list[str]]]:
    """Names whose coordinator is not known, and those of each coordinator."""
    values = {"key_type": _KINDS[kind], "coordinator_keys": names}
    rows = {row.key: row for row in client.ask(apis.FIND_COORDINATOR, values).coordinators}
    again = [name for name, row in rows.items() if row.node_id == replaced.get(name)]
    if again:
        rows |= _find_elsewhere(client, {**values, "coordinator_keys": again}, replaced)
    unknown: dict[str, Told] = {}
    by_broker: dict[int, list[str]] = {}
    for row in rows.values():
        if row.error_code is ErrorCode.none:
            by_broker.setdefault(row.node_id, []).append(row.key)
        else:
            unknown[row.key] = Told(coordinator=-1, code=row.error_code, row=row)
    return unknown, by_broker


def _find_elsewhere(client: Client, values: Values, replaced: Mapping[str, int]) -> dict[str, Any]:
    """What other brokers say of names, where they name another one."""
    return {
        row.key: row
        for answer in client.ask_each(apis.FIND_COORDINATOR, values)
        for row in answer.coordinators
        if row.error_code is ErrorCode.none and row.node_id != replaced[row.key]
    }
