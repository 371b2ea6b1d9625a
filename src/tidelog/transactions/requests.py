"""What is asked of a coordinator of transactions."""

from collections.abc import Callable
from dataclasses import dataclass

from tidelog.base.errors import KafkaError
from tidelog.base.ids import TopicPartition
from tidelog.transactions.state import Producer, Status, Transaction


@dataclass(frozen=True, slots=True, kw_only=True)
class Begin:
    """InitProducerId: a producer takes a transactional id over, or goes on with it."""

    transactional_id: str
    timeout_ms: int
    expected: Producer | None = None
    """What the producer has been until now, if it goes on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Add:
    """AddPartitionsToTxn: partitions that the transaction will write to, or should have."""

    transactional_id: str
    producer: Producer
    partitions: tuple[TopicPartition, ...]
    client_version: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """EndTxn, from whichever connection knows these three."""

    transactional_id: str
    producer: Producer
    is_commit: bool
    client_version: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """ListTransactions: all, unless something is named. A duration is how long it has lasted."""

    statuses: frozenset[Status] | None = None
    producer_ids: frozenset[int] = frozenset()
    duration_ms: int = -1

    def takes(self, transaction: Transaction, now_ms: int) -> bool:
        return (
            (self.statuses is None or transaction.status in self.statuses)
            and (not self.producer_ids or transaction.producer_id in self.producer_ids)
            and (self.duration_ms < 0 or now_ms - transaction.started_ms > self.duration_ms)
        )


Began = Callable[[Producer | KafkaError], None]
Added = Callable[[KafkaError | None], None]
Ended = Callable[[Producer | KafkaError], None]
"""Told under what to go on."""
