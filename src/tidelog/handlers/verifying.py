"""The transaction of a produced batch, looked at before the batch is appended (X30).

Only the first batch of a transaction in a partition costs a question to the coordinator. What the
coordinator says against it is told to the producer in the words that its version knows; where it
could not be asked, the producer is to come again.
"""

from typing import Final

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.handlers.api import Node, Request
from tidelog.partition import Partition
from tidelog.records.batch import MAGIC, MAGIC_POSITION, read_header
from tidelog.transactions.state import Producer
from tidelog.verification import Question, Verified

ADDING_FROM: Final = 12
"""The version of Produce from which the broker adds the partition to the transaction."""
_ABORTABLE_FROM: Final = 11
_COME_AGAIN: Final = (
    ErrorCode.not_coordinator,
    ErrorCode.coordinator_not_available,
    ErrorCode.coordinator_load_in_progress,
    ErrorCode.network_exception,
    ErrorCode.operation_not_attempted,
)


def must_be_verified(node: Node, request: Request, partition: Partition, batch: memoryview) -> bool:
    """Whether a transactional batch may be the first of its transaction in a partition."""
    if batch[MAGIC_POSITION] != MAGIC:
        return False
    if request.version < ADDING_FROM and not is_wanted(node):
        return False
    header = read_header(batch)
    has_open = partition.log.producers.has_open(header.producer_id, header.producer_epoch)
    return not has_open or header.producer_id in partition.guards


def is_wanted(node: Node) -> bool:
    return node.settings.flag("transaction.partition.verification.enable")


def verify(
    node: Node, request: Request, partition: Partition, batch: memoryview, verified: Verified
) -> None:
    """Tells, now or later, whether a batch may be appended."""
    transactional_id = request.body.transactional_id
    header = read_header(batch)
    if not transactional_id:
        what = f"{partition.name}: a transactional batch without a transactional id"
        verified(KafkaError(ErrorCode.invalid_txn_state, what))
        return

    def tell(error: KafkaError | None) -> None:
        verified(None if error is None else _told(error, request.version))

    question = Question(
        transactional_id=transactional_id,
        producer=Producer(header.producer_id, header.producer_epoch),
        is_adding=request.version >= ADDING_FROM,
    )
    node.verification.admit(partition, question, tell)


def _told(error: KafkaError, version: int) -> KafkaError:
    code = error.code
    if code in _COME_AGAIN or (code is ErrorCode.concurrent_transactions and version < ADDING_FROM):
        code = ErrorCode.not_enough_replicas
    elif code is ErrorCode.producer_fenced:
        code = ErrorCode.invalid_producer_epoch
    elif code is ErrorCode.transaction_abortable and version < _ABORTABLE_FROM:
        code = ErrorCode.invalid_txn_state
    return KafkaError(code, error.message)
