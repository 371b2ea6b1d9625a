"""The batches of one partition on their way: those that wait, and those that were sent.

What fails goes back to where it was in the order, and nothing more is sent until everything
that was sent is answered: so a batch never overtakes another, and sequences stay as they are.
"""

from collections import deque
from typing import Final

from tidelog.base.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE
from tidelog.records.batch import sequence_after, stamp_producer

NO_PRODUCER: Final[tuple[int, int]] = (NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
EPOCH_MAX: Final = 32_767


class Batch:
    __slots__ = ("count", "data", "deadline_ms", "number")

    def __init__(self, data: bytearray, count: int, deadline_ms: int) -> None:
        self.data = data
        self.count = count
        self.deadline_ms = deadline_ms
        self.number = 0
        """Its place among all batches of the partition."""


class WriteQueue:
    def __init__(
        self,
        topic: str,
        partition: int,
        producer: tuple[int, int],
        *,
        is_transactional: bool = False,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.producer = producer
        """Id and epoch; the epoch is this partition's own."""
        self._is_transactional = is_transactional
        self.waiting: deque[Batch] = deque()
        self.under_way: list[Batch] = []
        self.not_before_ms = 0
        self.last_problem = "nobody was found to write to"
        self.is_out_of_step = False
        """The leader does not know what was last written: counting must begin anew."""
        self._is_held = False
        self._next_number = 0
        self._next_sequence = 0

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"

    def add(self, batch: Batch) -> None:
        batch.number = self._next_number
        self._next_number += 1
        self._stamp(batch)
        self.waiting.append(batch)

    def next_to_send(self, now_ms: int) -> Batch | None:
        if not self.under_way:
            self._is_held = False
        if not self.waiting or self._is_held or now_ms < self.not_before_ms:
            return None
        return self.waiting[0]

    def sent(self, batch: Batch) -> None:
        assert self.waiting[0] is batch
        self.under_way.append(self.waiting.popleft())

    def settled(self, batch: Batch) -> None:
        self.under_way.remove(batch)

    def failed(self, batch: Batch, why: str, not_before_ms: int) -> None:
        """To be sent again, in its place."""
        self.under_way.remove(batch)
        self.waiting.append(batch)
        self.waiting = deque(sorted(self.waiting, key=lambda one: one.number))
        self._is_held = True
        self.wait(why, not_before_ms)

    def wait(self, why: str, not_before_ms: int) -> None:
        self.last_problem = why
        self.not_before_ms = not_before_ms

    def put_off(self, by_ms: int) -> None:
        """Gives all batches more time."""
        for batch in (*self.waiting, *self.under_way):
            batch.deadline_ms += by_ms

    def is_first(self, batch: Batch) -> bool:
        """Whether all before it are written."""
        others = [*self.waiting, *self.under_way]
        return all(batch.number <= one.number for one in others)

    def begin_anew(self, producer: tuple[int, int]) -> None:
        """Counts from 0 again, as another producer or in a later epoch."""
        assert not self.under_way
        self.producer = producer
        self.is_out_of_step = False
        self._next_sequence = 0
        for batch in self.waiting:
            self._stamp(batch)

    def _stamp(self, batch: Batch) -> None:
        if self.producer == NO_PRODUCER:
            stamp_producer(batch.data, NO_PRODUCER, NO_SEQUENCE)
        else:
            stamp_producer(
                batch.data,
                self.producer,
                self._next_sequence,
                is_transactional=self._is_transactional,
            )
            self._next_sequence = sequence_after(self._next_sequence, batch.count)
