"""What a log knows of its producers: the idempotence window and the open transactions.

For each producer id the epoch and the last five batches are kept. A batch that repeats one
of them is answered with the offset it already has; one out of sequence or of an older
epoch is refused. `check` looks and changes nothing; `append` is called once the batch is in
the log, by leaders, followers and recovery alike, so that all of them come to the same
state (A3). A snapshot of it is taken whenever a segment is rolled.
"""

from bisect import bisect_left, insort
from struct import Struct
from typing import Final

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.base.ids import NO_PRODUCER_EPOCH, NO_SEQUENCE, NO_TIMESTAMP
from tidelog.log.txn_index import AbortedTransaction
from tidelog.records.batch import SEQUENCE_LIMIT, TRANSACTIONAL, sequence_after

WINDOW: Final = 5
NO_TRANSACTION: Final = -1
FRESH: Final = -1
SEQUENCE_MAX: Final = SEQUENCE_LIMIT - 1
_NEVER_SEEN: Final = -2
_BATCH: Final = Struct("=qqq")
_SLOT: Final = _BATCH.size
_RING: Final = WINDOW * _SLOT
_LAST_SLOT: Final = _RING - _SLOT
_NO_BATCHES: Final = _BATCH.pack(FRESH, FRESH, FRESH) * WINDOW
_pack_batch: Final = _BATCH.pack_into


class Producer:
    """One producer. Its last batches are in a ring of (last sequence, first offset, last
    offset), packed in one buffer, because there may be many producers."""

    __slots__ = (
        "_ring",
        "_slot",
        "coordinator_epoch",
        "epoch",
        "last_offset",
        "last_timestamp",
        "next_sequence",
        "seen_offset",
        "silent_since_ms",
        "txn_first_offset",
    )

    def __init__(self, epoch: int = NO_PRODUCER_EPOCH) -> None:
        self.coordinator_epoch = -1
        self.last_timestamp: int = NO_TIMESTAMP
        self.txn_first_offset = NO_TRANSACTION
        self.seen_offset = _NEVER_SEEN
        """What was its last one when somebody looked, and since when it is."""
        self.silent_since_ms = 0
        self._forget(epoch)

    def _forget(self, epoch: int) -> None:
        self.epoch = epoch
        self.next_sequence = 0
        self.last_offset = -1
        self._slot = 0
        self._ring = bytearray(_NO_BATCHES)

    @property
    def last_sequence(self) -> int:
        return NO_SEQUENCE if self.last_offset < 0 else (self.next_sequence - 1) & SEQUENCE_MAX

    @property
    def last_offset_delta(self) -> int:
        if self.last_offset < 0:
            return 0
        _, first_offset, last_offset = _BATCH.unpack_from(self._ring, (self._slot or _RING) - _SLOT)
        return int(last_offset - first_offset)

    def remember(
        self, last_sequence: int, first_offset: int, last_offset: int, timestamp: int
    ) -> None:
        slot = self._slot
        _pack_batch(self._ring, slot, last_sequence, first_offset, last_offset)
        self._slot = slot + _SLOT if slot < _LAST_SLOT else 0
        self.last_timestamp = timestamp
        self.last_offset = last_offset
        self.next_sequence = (last_sequence + 1) & SEQUENCE_MAX

    def find(self, first_sequence: int, last_sequence: int) -> int:
        """The first offset of the remembered batch with exactly these sequences, or FRESH."""
        for last, first_offset, last_offset in _BATCH.iter_unpack(self._ring):
            delta = last_offset - first_offset
            if last == last_sequence == sequence_after(first_sequence, delta):
                return int(first_offset)
        return FRESH

    def change_epoch(self, epoch: int) -> None:
        if epoch != self.epoch:
            self._forget(epoch)


class Producers:
    def __init__(self) -> None:
        self.by_id: dict[int, Producer] = {}
        self.newcomers: set[int] = set()
        """Those without a batch here that must begin with sequence 0: their transaction does."""
        self._open: list[int] = []
        """Where the open transactions begin."""
        self.undecided: list[tuple[int, int]] = []
        """Where those begin and end whose marker is not committed."""
        self.first_unstable_offset: int | None = None
        """Where the first transaction begins whose outcome readers must not rely on yet."""

    def check(
        self, producer_id: int, epoch: int, first_sequence: int, delta: int, attributes: int
    ) -> int:
        """FRESH if the batch may be appended, or the offset it already has. Changes nothing."""
        producer = self.by_id.get(producer_id)
        if producer is None:
            if first_sequence and producer_id in self.newcomers:
                raise _out_of_order(producer_id, first_sequence, "0")
            return FRESH
        if epoch != producer.epoch:
            if epoch < producer.epoch:
                raise _stale_epoch(producer_id, epoch, producer.epoch)
            if first_sequence:
                raise _out_of_order(producer_id, first_sequence, f"0 in new epoch {epoch}")
        elif first_sequence != producer.next_sequence:
            found = producer.find(first_sequence, sequence_after(first_sequence, delta))
            if found == FRESH:
                raise _out_of_order(producer_id, first_sequence, str(producer.next_sequence))
            return found
        if producer.txn_first_offset != NO_TRANSACTION and not attributes & TRANSACTIONAL:
            raise KafkaError(
                ErrorCode.invalid_txn_state,
                f"producer {producer_id} has an open transaction and sent a batch outside it",
            )
        return FRESH

    def check_epoch(self, producer_id: int, epoch: int) -> None:
        """Refuses a producer that another one has taken the place of."""
        producer = self.by_id.get(producer_id)
        if producer is not None and epoch < producer.epoch:
            raise _stale_epoch(producer_id, epoch, producer.epoch)

    def check_coordinator(self, producer_id: int, coordinator_epoch: int) -> None:
        """Refuses a marker of a coordinator that another one has taken the place of."""
        producer = self.by_id.get(producer_id)
        if producer is not None and coordinator_epoch < producer.coordinator_epoch:
            raise KafkaError(
                ErrorCode.transaction_coordinator_fenced,
                f"coordinator epoch {coordinator_epoch} of producer {producer_id} is older than "
                f"{producer.coordinator_epoch}",
            )

    def append(
        self,
        producer_id: int,
        epoch: int,
        first_sequence: int,
        offsets: tuple[int, int],
        timestamp: int,
        attributes: int,
    ) -> None:
        """Notes a data batch that is in the log, with its first and last offset."""
        first_offset, last_offset = offsets
        producer = self.by_id.get(producer_id)
        if producer is None:
            producer = self.by_id[producer_id] = Producer()
            self.newcomers.discard(producer_id)
        if epoch != producer.epoch:
            producer.change_epoch(epoch)
        producer.last_timestamp = timestamp
        if first_sequence != NO_SEQUENCE:
            last_sequence = (first_sequence + last_offset - first_offset) & SEQUENCE_MAX
            producer.remember(last_sequence, first_offset, last_offset, timestamp)
        if attributes & TRANSACTIONAL and producer.txn_first_offset == NO_TRANSACTION:
            producer.txn_first_offset = first_offset
            insort(self._open, first_offset)
            self._find_unstable()

    def end_transaction(
        self, producer_id: int, epoch: int, marker: tuple[int, int, bool], timestamp: int
    ) -> AbortedTransaction | None:
        """Notes a marker that is in the log: its offset, its coordinator's epoch, and whether
        it aborts. Returns the entry for the transaction index, if there is to be one."""
        offset, coordinator_epoch, is_abort = marker
        producer = self.by_id.get(producer_id)
        if producer is None:
            producer = self.by_id[producer_id] = Producer()
            self.newcomers.discard(producer_id)
        first_offset = producer.txn_first_offset
        producer.change_epoch(epoch)
        producer.coordinator_epoch = coordinator_epoch
        producer.last_timestamp = timestamp
        producer.txn_first_offset = NO_TRANSACTION
        if first_offset == NO_TRANSACTION:
            return None
        del self._open[bisect_left(self._open, first_offset)]
        insort(self.undecided, (first_offset, offset))
        self._find_unstable()
        if not is_abort:
            return None
        stable = self._open[0] if self._open else offset + 1
        return AbortedTransaction(producer_id, first_offset, offset, stable)

    def committed_up_to(self, high_watermark: int) -> None:
        """Transactions whose marker is below the high watermark are decided for every reader."""
        if self.undecided:
            self.undecided = [t for t in self.undecided if t[1] >= high_watermark]
            self._find_unstable()

    def _find_unstable(self) -> None:
        firsts = self._open[:1] + [first for first, _ in self.undecided[:1]]
        self.first_unstable_offset = min(firsts, default=None)

    def has_open(self, producer_id: int, epoch: int) -> bool:
        """Whether a producer has an open transaction under that epoch."""
        producer = self.by_id.get(producer_id)
        return (
            producer is not None
            and producer.txn_first_offset != NO_TRANSACTION
            and producer.epoch == epoch
        )

    def begins_anew(self, producer_id: int) -> None:
        """A producer begins a transaction here whose sequences begin at 0. If nothing is known of
        it, a batch in the middle must not pass for the first, which may have been refused."""
        if producer_id not in self.by_id:
            self.newcomers.add(producer_id)

    def epoch_of(self, producer_id: int) -> int:
        producer = self.by_id.get(producer_id)
        return NO_PRODUCER_EPOCH if producer is None else producer.epoch

    def restore(self, producer_id: int, producer: Producer) -> None:
        self.by_id[producer_id] = producer
        if producer.txn_first_offset != NO_TRANSACTION:
            insort(self._open, producer.txn_first_offset)
            self._find_unstable()

    def expire(self, now_ms: int, expiration_ms: int) -> None:
        """Forgets producers that have been silent for so long and have nothing open. Their records
        may be of long ago, and what they have just sent may come once more: so the time counts
        from when they were first seen to have sent nothing more."""
        for producer_id, producer in list(self.by_id.items()):
            if producer.seen_offset != producer.last_offset:
                producer.seen_offset = producer.last_offset
                producer.silent_since_ms = now_ms
            silent_ms = now_ms - max(producer.last_timestamp, producer.silent_since_ms)
            if producer.txn_first_offset == NO_TRANSACTION and silent_ms >= expiration_ms:
                del self.by_id[producer_id]

    def last_offsets(self) -> list[int]:
        """The last data offset of each producer: compaction keeps those batches, if empty."""
        return [p.last_offset for p in self.by_id.values() if p.last_offset >= 0]

    def raised_epochs(self) -> list[tuple[int, int]]:
        """The epochs that a marker has raised and no data has come with: compaction keeps it."""
        return [(id_, p.epoch) for id_, p in self.by_id.items() if p.last_offset < 0]


def _stale_epoch(producer_id: int, epoch: int, current: int) -> KafkaError:
    return KafkaError(
        ErrorCode.invalid_producer_epoch,
        f"epoch {epoch} of producer {producer_id} is older than {current}",
    )


def _out_of_order(producer_id: int, sequence: int, expected: str) -> KafkaError:
    return KafkaError(
        ErrorCode.out_of_order_sequence_number,
        f"sequence {sequence} of producer {producer_id} where {expected} is next",
    )
