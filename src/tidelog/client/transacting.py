"""Taking part in transactions: beginning one, adding to it what is written, and ending it.

Whoever knows a transaction's id, producer id and epoch may end it, on any connection, and again:
so each of these requests is asked until it is answered, also by the next coordinator. They are
asked in the versions in which the client says what belongs to a transaction, and its epoch stays
the same when it ends.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tidelog.base.errors import ErrorCode
from tidelog.base.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, TopicPartition
from tidelog.client import apis
from tidelog.client.apis import Api
from tidelog.client.building import Values
from tidelog.client.client import Client
from tidelog.client.coordinators import Question, ask_coordinators

FENCED: Final = frozenset(
    (
        ErrorCode.producer_fenced,
        ErrorCode.invalid_producer_epoch,
        ErrorCode.invalid_producer_id_mapping,
        ErrorCode.invalid_txn_state,
        ErrorCode.transactional_id_not_found,
    )
)
"""What is said where another one has begun under the same id, or it has ended otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTransaction:
    transactional_id: str
    producer_id: int
    epoch: int

    @property
    def producer(self) -> tuple[int, int]:
        return self.producer_id, self.epoch

    def fields(self) -> dict[str, Any]:
        return {
            "transactional_id": self.transactional_id,
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
        }


def begin(client: Client, transactional_id: str, timeout_ms: int) -> OpenTransaction:
    """Fences whoever used the id before, and aborts what he left open."""
    values = {
        "transactional_id": transactional_id,
        "transaction_timeout": timeout_ms,
        "producer_id": NO_PRODUCER_ID,
        "producer_epoch": NO_PRODUCER_EPOCH,
    }
    answer = _ask(client, transactional_id, apis.INIT_PRODUCER_ID, values, "begun", _own_code)
    return OpenTransaction(
        transactional_id=transactional_id,
        producer_id=answer.producer_id,
        epoch=answer.producer_epoch,
    )


def add_partition(client: Client, transaction: OpenTransaction, one: TopicPartition) -> None:
    """Before anything is written to it."""
    fields = {
        **transaction.fields(),
        "topics": [{"name": one.topic, "partitions": [one.partition]}],
    }
    values = {f"v3_and_below_{name}": value for name, value in fields.items()}
    name = transaction.transactional_id
    _ask(client, name, apis.ADD_PARTITIONS_TO_TXN, values, f"extended to {one}", _added_code)


def commit_offsets(
    client: Client,
    transaction: OpenTransaction,
    group_id: str,
    offsets: Mapping[TopicPartition, tuple[int, str]],
) -> None:
    """Offsets and what is noted with them, which count when the transaction is committed."""
    name = transaction.transactional_id
    values = {**transaction.fields(), "group_id": group_id}
    _ask(client, name, apis.ADD_OFFSETS_TO_TXN, values, f"extended to group {group_id}", _own_code)
    question = Question(
        kind="group",
        api=apis.TXN_OFFSET_COMMIT,
        values=lambda _: {
            **values,
            "generation_id": -1,
            "member_id": "",
            "group_instance_id": None,
            "topics": _offset_rows(offsets),
        },
        rows=lambda answer: [(group_id, _committed_code(answer), answer)],
    )
    told = ask_coordinators(client, question, [group_id])[group_id]
    error = told.error(f"{name}: offsets of group {group_id} were not committed")
    if error is not None:
        raise error


def end(client: Client, transaction: OpenTransaction, *, is_commit: bool) -> None:
    """Ends it, or finds that it has ended so. Raises a KafkaError with a code of `FENCED` if it
    ended otherwise, or somebody else goes by its id now."""
    values = {**transaction.fields(), "committed": is_commit}
    name = transaction.transactional_id
    what = "committed" if is_commit else "aborted"
    _ask(client, name, apis.END_TXN, values, what, _own_code)


def _ask(
    client: Client,
    name: str,
    api: Api,
    values: Values,
    what: str,
    code: Callable[[Any], ErrorCode],
) -> Any:
    question = Question(
        kind="transaction",
        api=api,
        values=lambda _: values,
        rows=lambda answer: [(name, code(answer), answer)],
    )
    told = ask_coordinators(client, question, [name])[name]
    error = told.error(f"{name} was not {what}")
    if error is not None:
        raise error
    return told.row


def _own_code(answer: Any) -> ErrorCode:
    code: ErrorCode = answer.error_code
    return code


def _added_code(answer: Any) -> ErrorCode:
    topics = answer.results_by_topic_v3_and_below
    return _first([row.partition_error_code for one in topics for row in one.results_by_partition])


def _committed_code(answer: Any) -> ErrorCode:
    return _first([row.error_code for topic in answer.topics for row in topic.partitions])


def _first(codes: Sequence[ErrorCode]) -> ErrorCode:
    return next((code for code in codes if code is not ErrorCode.none), ErrorCode.none)


def _offset_rows(offsets: Mapping[TopicPartition, tuple[int, str]]) -> list[dict[str, Any]]:
    topics: dict[str, list[dict[str, Any]]] = {}
    for one, (offset, metadata) in offsets.items():
        row = {
            "partition_index": one.partition,
            "committed_offset": offset,
            "committed_leader_epoch": -1,
            "committed_metadata": metadata,
        }
        topics.setdefault(one.topic, []).append(row)
    return [{"name": topic, "partitions": rows} for topic, rows in topics.items()]
