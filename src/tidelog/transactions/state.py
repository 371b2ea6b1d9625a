"""A transactional id as its coordinator keeps it: whose it is now, and where its transaction is.

    Empty ----------> Ongoing ----------> PrepareCommit ----------> CompleteCommit
      ^  a partition     ^    EndTxn            all partitions have the marker   |
      |  is added        |                                                       |
      +-- InitProducerId +---------- the next transaction -----------------------+

and the same with abort instead of commit. Once a transaction is prepared its outcome does not
change any more, whoever coordinates it. Values never change: a transition makes another one.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple

from tidelog.base.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_TIMESTAMP, TopicPartition

EPOCH_MAX: Final = (1 << 15) - 1
EPOCH_RAISED_FROM: Final = 2
"""The version of transactions from which each ends with a higher epoch than it had."""


class Status(IntEnum):
    """With the numbers and names of Kafka."""

    Empty = 0
    Ongoing = 1
    PrepareCommit = 2
    PrepareAbort = 3
    CompleteCommit = 4
    CompleteAbort = 5
    Dead = 6
    PrepareEpochFence = 7


PREPARED: Final = (Status.PrepareCommit, Status.PrepareAbort)
COMPLETE: Final = (Status.CompleteCommit, Status.CompleteAbort)
IDLE: Final = (Status.Empty, *COMPLETE)
SHOWN: Final = tuple(status for status in Status if status is not Status.PrepareEpochFence)
"""Those that an id can be seen in."""


class Producer(NamedTuple):
    """The id a producer writes under, and the epoch that tells it from those before it."""

    producer_id: int
    epoch: int


NO_PRODUCER: Final = Producer(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    transactional_id: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    status: Status
    updated_ms: int
    started_ms: int = NO_TIMESTAMP
    partitions: tuple[TopicPartition, ...] = ()
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    """The id that takes the place of one whose epochs are used up, once the markers are written."""
    client_version: int = 0
    """The version of transactions in which the producer began or ended it."""
    last_epoch: int = NO_PRODUCER_EPOCH
    """Of the same producer, before the present one was given out. It is not in the journal."""

    @property
    def producer(self) -> Producer:
        return Producer(self.producer_id, self.producer_epoch)

    @property
    def is_exhausted(self) -> bool:
        """The last epoch is left for fencing whoever has the one before it."""
        return self.producer_epoch >= EPOCH_MAX - 1

    @property
    def raises_epoch(self) -> bool:
        return self.client_version >= EPOCH_RAISED_FROM

    def has_timed_out(self, now_ms: int) -> bool:
        return self.status is Status.Ongoing and now_ms > self.started_ms + self.timeout_ms
