"""ListTransactions, API 66: the transactional ids that this broker coordinates.

All of them, or those of some states or producers, those that have lasted longer than so many
milliseconds, or those whose name matches a pattern as a whole.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.groups.topic_patterns import check_pattern, matching
from tidelog.handlers.api import Api, Node, Request
from tidelog.handlers.building import Values
from tidelog.handlers.rows import Answering, Rows, answer_in_slices
from tidelog.transactions.requests import Wanted
from tidelog.transactions.shard import TransactionShard
from tidelog.transactions.state import SHOWN, Transaction

PATTERN_BYTES_MAX: Final = 32 << 10
_STATUSES: Final = {status.name: status for status in SHOWN}


def handle(node: Node, request: Request) -> None:
    answer_in_slices(node, request, _answering(node, request))


def _answering(node: Node, request: Request) -> Answering:
    body = request.body
    rows = Rows(request, "transaction_states")
    unknown = [name for name in body.state_filters if name not in _STATUSES]
    answer: dict[str, Any] = {"unknown_state_filters": unknown, "transaction_states": rows}
    coordinator = node.coordinators.transactions
    if coordinator.is_loading:
        return {**answer, "error_code": ErrorCode.coordinator_load_in_progress}
    pattern = getattr(body, "transactional_id_pattern", None)
    try:
        if pattern:
            check_pattern(pattern, PATTERN_BYTES_MAX)
    except KafkaError as error:
        return {**answer, "error_code": error.code}
    for shard in coordinator.shards():
        found: list[Transaction] = []
        refusals: list[ErrorCode] = []
        yield partial(_select, shard, _wanted(body), found, refusals)
        if refusals:
            return {**answer, "transaction_states": (), "error_code": refusals[0]}
        names = [transaction.transactional_id for transaction in found]
        shown = frozenset(matching(pattern, names) if pattern else names)
        for transaction in found:
            if transaction.transactional_id in shown:
                rows.put(_row(transaction))
            yield None
    return {**answer, "error_code": ErrorCode.none}


def _select(
    shard: TransactionShard,
    wanted: Wanted,
    found: list[Transaction],
    refusals: list[ErrorCode],
    then: Callable[[], None],
) -> None:
    """A shard that is led elsewhere by now has nothing to say: its new leader does. One that cannot
    tell now must not pass for one that has nothing."""

    def selected(result: list[Transaction] | KafkaError) -> None:
        if not isinstance(result, KafkaError):
            found.extend(result)
        elif result.code is not ErrorCode.not_coordinator:
            refusals.append(result.code)
        then()

    shard.select(wanted, selected)


def _wanted(body: Any) -> Wanted:
    statuses = [_STATUSES[name] for name in body.state_filters if name in _STATUSES]
    return Wanted(
        statuses=frozenset(statuses) if body.state_filters else None,
        producer_ids=frozenset(body.producer_id_filters),
        duration_ms=getattr(body, "duration_filter", -1),
    )


def _row(transaction: Transaction) -> Values:
    return {
        "transactional_id": transaction.transactional_id,
        "producer_id": transaction.producer_id,
        "transaction_state": transaction.status.name,
    }


API = Api(key=66, first=0, last=2, handle=handle)
