"""A partition of the explorer as the journal of a coordinator's shard.

Logs of the explorer hold numbers; what a number of a journal stands for is kept beside them, for
all replicas alike, since a batch never changes once it is made. One batch is one record here.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.base.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from tidelog.base.journal import Committed, Entry, Origin, Shard
from tidelog.replication.replica import Replica, Role
from tidelog.trials.leading import Produced

if TYPE_CHECKING:
    from tidelog.trials.process import Process

FIRST_BATCH: Final = 1_000_000_000
"""Numbers of batches begin here: those of clients are below."""
COMMIT_MS_MAX: Final = 1_000


class Batch(NamedTuple):
    entries: tuple[Entry, ...]
    timestamp_ms: int


class Batches:
    """What the numbers in journals stand for."""

    def __init__(self) -> None:
        self._batches: list[Batch] = []

    def add(self, batch: Batch) -> int:
        self._batches.append(batch)
        return FIRST_BATCH + len(self._batches) - 1

    def get(self, number: int) -> Batch:
        return self._batches[number - FIRST_BATCH]


class TrialJournal:
    def __init__(self, process: "Process", index: int, leader_epoch: int) -> None:
        self._process = process
        self.index = index
        self.leader_epoch = leader_epoch

    def append(
        self,
        entries: Sequence[Entry],
        committed: Committed,
        producer: tuple[int, int] | None = None,
        *,
        must_fit: bool = True,
    ) -> Origin:
        del must_fit  # Everything does here.
        assert producer is None, "no offsets are committed in transactions here"
        replica = self._replica()
        if len(replica.isr.isr) < replica.min_isr:
            raise KafkaError(ErrorCode.not_enough_replicas, "too few are in sync")
        now_ms = self._process.world.loop.clock.now_ms()
        number = self._process.world.batches.add(Batch(tuple(entries), now_ms))
        offset = self._process.leading.append(self.index, number)
        self.settle(committed)
        return Origin(offset, now_ms, NO_PRODUCER_ID, NO_PRODUCER_EPOCH)

    def settle(self, committed: Committed) -> None:
        process = self._process
        try:
            replica = self._replica()
        except KafkaError as error:
            committed(error)
            return
        end = process.copies[self.index].log.log_end_offset
        if replica.high_watermark >= end:
            committed(None)
            return
        waiting = _Waiting(committed)
        process.after(COMMIT_MS_MAX, waiting.late)
        process.leading.wait(self.index, end - 1, waiting.answered)

    def _replica(self) -> Replica:
        copy = self._process.copies.get(self.index)
        if copy is None or copy.replica.role is not Role.leader:
            raise KafkaError(ErrorCode.not_leader_or_follower, "another one leads")
        if copy.replica.leader_epoch != self.leader_epoch:
            raise KafkaError(ErrorCode.not_leader_or_follower, "it is led in another epoch")
        return copy.replica


class _Waiting:
    """Calls back once, whatever comes first."""

    __slots__ = ("_committed",)

    def __init__(self, committed: Committed) -> None:
        self._committed: Committed | None = committed

    def answered(self, answer: Produced) -> None:
        self._end(KafkaError(ErrorCode(answer.error), "not committed") if answer.error else None)

    def late(self) -> None:
        self._end(KafkaError(ErrorCode.request_timed_out, "not all in sync had it in time"))

    def _end(self, error: KafkaError | None) -> None:
        committed, self._committed = self._committed, None
        if committed is not None:
            committed(error)


def replay(batches: Batches, records: Sequence[tuple[int, int]], shard: Shard) -> None:
    """All that is in a journal, into a shard."""
    for offset, (_, number) in enumerate(records):
        batch = batches.get(number)
        for entry in batch.entries:
            shard.replay(entry, Origin(offset, batch.timestamp_ms))
