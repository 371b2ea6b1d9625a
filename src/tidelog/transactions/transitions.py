"""What becomes of a transactional id, as functions from one value of it to the next.

Nothing here has effects: what may not be raises the error that a client knows, everything else is
the value to be written down. The rules are those of Kafka, for producers of both kinds: in the
older protocol an epoch lasts until somebody takes over, from version 2 on every end of a
transaction raises it, so that nothing that was sent for one can count for the next (X30).
"""

from collections.abc import Sequence
from dataclasses import replace

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.base.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_TIMESTAMP, TopicPartition
from tidelog.transactions.state import (
    COMPLETE,
    EPOCH_MAX,
    EPOCH_RAISED_FROM,
    PREPARED,
    Producer,
    Status,
    Transaction,
)

# -- a producer begins


def check_expected(transaction: Transaction, expected: Producer | None) -> None:
    """A producer that names itself goes on only if nobody has taken its place: it has the id, or
    had the one before it until its epochs were used up. What is open is its own, or not for it to
    abort: that would shut out whoever has taken its place."""
    if expected is None or expected == transaction.producer:
        return
    if transaction.status is Status.Ongoing:
        raise _fenced(transaction, expected)
    if expected.producer_id == transaction.producer_id:
        return
    is_rotated = expected.producer_id == transaction.previous_producer_id
    if not (is_rotated and expected.epoch >= EPOCH_MAX - 1):
        raise _fenced(transaction, expected)


def needs_new_id(transaction: Transaction, expected: Producer | None) -> bool:
    """Whether the epochs of a producer id are used up for who begins now: also for one that was
    shut out by the last of them, which is given to nobody."""
    is_its_own = expected is not None and (
        expected.epoch == transaction.producer_epoch
        or (transaction.producer_epoch == EPOCH_MAX and expected.epoch == transaction.last_epoch)
    )
    return transaction.is_exhausted and (expected is None or is_its_own)


def begun_anew(
    transaction: Transaction, producer_id: int, expected: Producer | None
) -> Transaction:
    """Under another producer id."""
    last = NO_PRODUCER_EPOCH if expected is None else expected.epoch
    return _empty(transaction, Producer(producer_id, 0), last)


def begun(transaction: Transaction, expected: Producer | None) -> Transaction:
    """In the next epoch, or in the present one if that was given out for the same request."""
    epoch = transaction.producer_epoch
    if expected is None:
        last = NO_PRODUCER_EPOCH
    elif expected.epoch == epoch:
        last = epoch
    elif expected.epoch == transaction.last_epoch:
        again = _empty(transaction, transaction.producer, transaction.last_epoch)
        return replace(again, previous_producer_id=transaction.previous_producer_id)
    else:
        raise _fenced(transaction, expected)
    assert not transaction.is_exhausted, "no epoch is left"
    return _empty(transaction, Producer(transaction.producer_id, epoch + 1), last)


def _empty(transaction: Transaction, producer: Producer, last_epoch: int) -> Transaction:
    return replace(
        transaction,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        last_epoch=last_epoch,
        previous_producer_id=transaction.producer_id,
        next_producer_id=NO_PRODUCER_ID,
        status=Status.Empty,
        partitions=(),
        started_ms=NO_TIMESTAMP,
        client_version=0,
    )


# -- partitions are added


def check_owner(transaction: Transaction, producer: Producer) -> None:
    """Refuses whoever is not the producer now. While a transaction is ending, who is next is not
    there yet: it is to come again."""
    if transaction.status in PREPARED:
        raise _still_ending(transaction)
    if producer.producer_id != transaction.producer_id:
        raise _other_id(transaction, producer)
    _check_epoch(transaction, producer)


def _check_epoch(transaction: Transaction, producer: Producer) -> None:
    """The last epoch is given to nobody, so nobody has it."""
    if not producer.epoch == transaction.producer_epoch < EPOCH_MAX:
        raise _fenced(transaction, producer)


def with_partitions(
    transaction: Transaction, partitions: Sequence[TopicPartition], client_version: int, now_ms: int
) -> Transaction:
    """Goes on, or begins, with more partitions; the same value if it has them all."""
    is_ongoing = transaction.status is Status.Ongoing
    held = dict.fromkeys(transaction.partitions if is_ongoing else ())
    if is_ongoing and all(partition in held for partition in partitions):
        return transaction
    return replace(
        transaction,
        status=Status.Ongoing,
        partitions=(*held, *(p for p in dict.fromkeys(partitions) if p not in held)),
        started_ms=transaction.started_ms if is_ongoing else now_ms,
        client_version=client_version,
    )


# -- it ends


def ended(
    transaction: Transaction, producer: Producer, client_version: int, *, is_commit: bool
) -> Transaction | None:
    """The transaction prepared to end; None if it has ended so already. An id of which the epochs
    are used up gets no other one here: see `needs_next_id`."""
    if client_version >= EPOCH_RAISED_FROM:
        return _ended_raising(transaction, producer, client_version, is_commit=is_commit)
    if producer.producer_id != transaction.producer_id:
        raise _other_id(transaction, producer)
    _check_epoch(transaction, producer)
    if transaction.status is Status.Ongoing:
        return _prepared(transaction, is_commit=is_commit, client_version=client_version)
    _check_same_end(transaction, is_commit=is_commit)
    return None


def _ended_raising(
    transaction: Transaction, producer: Producer, client_version: int, *, is_commit: bool
) -> Transaction | None:
    """A repeated request has the epoch before the present one. One in the present epoch is about
    a transaction that has nothing in it yet, which can only be aborted, and not before the last
    one has ended: its producer is told who it is before that."""
    if transaction.status in PREPARED and producer == completed(transaction).producer:
        raise _still_ending(transaction)
    is_rolled = _is_rolled_over(transaction, producer)
    if producer.producer_id != transaction.producer_id and not is_rolled:
        raise _other_id(transaction, producer)
    is_repeated = is_rolled or _is_raised(transaction, producer)
    if is_repeated and transaction.status in (*PREPARED, *COMPLETE):
        _check_same_end(transaction, is_commit=is_commit)
        return None
    if transaction.status in PREPARED:
        raise _fenced(transaction, producer)
    _check_epoch(transaction, producer)
    if transaction.status is not Status.Ongoing and is_commit:
        raise _wrong_state(transaction, "committed")
    return _prepared(transaction, is_commit=is_commit, client_version=client_version)


def _is_raised(transaction: Transaction, producer: Producer) -> bool:
    """Whether a producer asks again whose request has raised its epoch. The last epoch is given
    to nobody: who was shut out by it has to begin anew."""
    return (
        transaction.raises_epoch
        and transaction.producer_epoch == producer.epoch + 1
        and (
            transaction.producer_epoch < EPOCH_MAX or transaction.next_producer_id != NO_PRODUCER_ID
        )
    )


def _is_rolled_over(transaction: Transaction, producer: Producer) -> bool:
    """Whether a producer asks again whose request has used up the last epoch of its id."""
    return (
        transaction.raises_epoch
        and transaction.status in COMPLETE
        and producer.producer_id == transaction.previous_producer_id != transaction.producer_id
        and producer.epoch == EPOCH_MAX - 1
        and transaction.producer_epoch == 0
    )


def _check_same_end(transaction: Transaction, *, is_commit: bool) -> None:
    """Refuses to end otherwise what has ended, or to say that it has while it still does."""
    status = transaction.status
    ends_so = (
        (Status.PrepareCommit, Status.CompleteCommit)
        if is_commit
        else (Status.PrepareAbort, Status.CompleteAbort)
    )
    if status not in ends_so:
        raise _wrong_state(transaction, "committed" if is_commit else "aborted")
    if status in PREPARED:
        raise _still_ending(transaction)


def needs_next_id(prepared: Transaction) -> bool:
    """Whether raising the epoch at this end has used up the producer id."""
    return prepared.raises_epoch and prepared.producer_epoch >= EPOCH_MAX


def _prepared(transaction: Transaction, *, is_commit: bool, client_version: int) -> Transaction:
    is_raised = client_version >= EPOCH_RAISED_FROM
    epoch = transaction.producer_epoch
    is_ongoing = transaction.status is Status.Ongoing
    return replace(
        transaction,
        status=Status.PrepareCommit if is_commit else Status.PrepareAbort,
        partitions=transaction.partitions if is_ongoing else (),
        started_ms=transaction.started_ms if is_ongoing else NO_TIMESTAMP,
        producer_epoch=epoch + is_raised,
        last_epoch=epoch if is_raised else transaction.last_epoch,
        client_version=client_version,
    )


def fenced(transaction: Transaction) -> Transaction:
    """Aborts an ongoing one and shuts its producer out by a higher epoch, which nobody is given."""
    assert transaction.status is Status.Ongoing
    return _prepared(transaction, is_commit=False, client_version=EPOCH_RAISED_FROM)


def completed(transaction: Transaction) -> Transaction:
    """All partitions have the marker."""
    assert transaction.status in PREPARED
    is_commit = transaction.status is Status.PrepareCommit
    is_rolled = transaction.next_producer_id != NO_PRODUCER_ID
    return replace(
        transaction,
        status=Status.CompleteCommit if is_commit else Status.CompleteAbort,
        partitions=(),
        producer_id=transaction.next_producer_id if is_rolled else transaction.producer_id,
        producer_epoch=0 if is_rolled else transaction.producer_epoch,
        last_epoch=transaction.last_epoch,
        previous_producer_id=transaction.producer_id,
        next_producer_id=NO_PRODUCER_ID,
    )


# -- what clients are told


def _fenced(transaction: Transaction, producer: Producer) -> KafkaError:
    return KafkaError(
        ErrorCode.producer_fenced,
        f"{transaction.transactional_id} is in epoch {transaction.producer_epoch} of producer "
        f"{transaction.producer_id}, not in epoch {producer.epoch} of {producer.producer_id}",
    )


def _still_ending(transaction: Transaction) -> KafkaError:
    return KafkaError(
        ErrorCode.concurrent_transactions,
        f"the last transaction of {transaction.transactional_id} is still ending",
    )


def _other_id(transaction: Transaction, producer: Producer) -> KafkaError:
    return KafkaError(
        ErrorCode.invalid_producer_id_mapping,
        f"{transaction.transactional_id} belongs to producer {transaction.producer_id}, not "
        f"{producer.producer_id}",
    )


def _wrong_state(transaction: Transaction, wanted: str) -> KafkaError:
    return KafkaError(
        ErrorCode.invalid_txn_state,
        f"the transaction of {transaction.transactional_id} is {transaction.status.name} and "
        f"cannot be {wanted}",
    )
