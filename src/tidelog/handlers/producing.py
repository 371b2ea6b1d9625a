"""What becomes of the batches of a Produce request, and waiting for those that are not done yet."""

from functools import partial
from typing import Final

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.base.ports import Timer
from tidelog.handlers.api import Node, Request
from tidelog.handlers.verifying import verify
from tidelog.partition import Partition
from tidelog.serving.acks import Committed
from tidelog.slow_appends import Appended
from tidelog.wire.produce import ProduceRequest
from tidelog.wire.produce_answer import ProduceAnswer, RecordsRefused

Result = ProduceAnswer
"""Error code, first offset, time of the append if that is the records' time, log start offset,
and a sentence where there is an error."""

Undone = tuple[
    list[tuple[int, Partition, memoryview]],
    list[tuple[int, Partition]],
    list[tuple[int, Partition, memoryview]],
]
"""Batches that are slow to append, that are to be committed, and that are to be verified first, by
their places among the results."""

ALL: Final = -1
ACKS: Final = (ALL, 0, 1)
NOTHING: Final = -1
ATTRIBUTES: Final = 22
"""Where in a batch the lower byte of its attributes is."""


def refusal(error: KafkaError) -> Result:
    why = RecordsRefused(error.message, error.records) if error.records else error.message
    return int(error.code), NOTHING, NOTHING, NOTHING, why


class Producing:
    """A request with batches that are not done yet, until the last of them is. Who wants them
    committed waits no longer than he said; they may be committed all the same."""

    __slots__ = ("_is_over", "_node", "_request", "_results", "_timer", "_undone")
    __deletable__ = ("_request",)
    """For mypyc, which otherwise takes it for granted."""

    def __init__(self, node: Node, request: Request, results: list[Result]) -> None:
        self._node = node
        self._request = request
        self._results = results
        self._undone: set[int] = set()
        self._is_over = False
        self._timer: Timer | None = None

    def wait(self, undone: Undone) -> None:
        self._begin_timer()
        self._take_up(undone)

    def _begin_timer(self) -> None:
        produce: ProduceRequest = self._request.body
        if produce.acks == ALL:
            ends_at = self._node.clock.monotonic_ms() + max(0, produce.timeout_ms)
            self._timer = self._node.loop.call_at(ends_at, self._give_up)

    def _take_up(self, undone: Undone) -> None:
        node = self._node
        slow, uncommitted, unverified = undone
        self._undone |= {row[0] for row in uncommitted}
        self._undone |= {row[0] for row in (*slow, *unverified)}
        for at, partition in uncommitted:
            partition.acks.wait(partition.log.log_end_offset, self._commit_of(at))
        for at, partition, batch in slow:
            partition.append_slowly(node.buffers.lasting(batch), self._append_of(at, partition))
        for at, partition, batch in unverified:
            append = partial(self._append_verified, at, partition, node.buffers.lasting(batch))
            verify(node, self._request, partition, batch, append)

    def _append_verified(
        self, at: int, partition: Partition, batch: memoryview, error: KafkaError | None
    ) -> None:
        end = self._append_of(at, partition)
        if error is not None:
            end(error, NOTHING)
        elif not partition.is_led:
            end(partition.not_led(), NOTHING)
        else:
            try:
                self._append(partition, batch, end)
            except KafkaError as refused:
                end(refused, NOTHING)

    def _append(self, partition: Partition, batch: memoryview, end: Appended) -> None:
        if partition.is_slow(batch):
            partition.append_slowly(batch, end)
        else:
            now_ms = self._node.clock.now_ms()
            is_broker_time = partition.log.settings.timestamp_type_log_append
            end(partition.append(batch, now_ms), now_ms if is_broker_time else NOTHING)

    def _append_of(self, at: int, partition: Partition) -> Appended:
        def end(offset: int | KafkaError, time_ms: int) -> None:
            if self._is_over:
                return  # The answer may be half made, and what it says of this one stands.
            log = partition.log
            if isinstance(offset, KafkaError):
                self._results[at] = refusal(offset)
                self._done(at)
                return
            self._results[at] = 0, offset, time_ms, log.log_start_offset, None
            if self._request.body.acks == ALL and partition.high_watermark < log.log_end_offset:
                if partition.is_led:
                    partition.acks.wait(log.log_end_offset, self._commit_of(at))
                    # There may be too few since the request was taken.
                    partition.refuse_if_too_few()
                    return
                self._results[at] = refusal(partition.not_led())
            self._done(at)

        return end

    def _commit_of(self, at: int) -> Committed:
        def end(error: KafkaError | None) -> None:
            if error is not None and at in self._undone:
                self._results[at] = refusal(error)
            self._done(at)

        return end

    def _done(self, at: int) -> None:
        self._undone.discard(at)
        if not self._undone and not self._is_over:
            self._end()

    def _give_up(self) -> None:
        late = KafkaError(
            ErrorCode.request_timed_out,
            f"not all replicas in sync had it after {self._request.body.timeout_ms} ms",
        )
        for at in self._undone:
            self._results[at] = refusal(late)
        self._undone.clear()
        self._end()

    def _end(self) -> None:
        self._is_over = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._answer()
        # Partitions know this until what it waited for is committed. What was sent is not kept.
        del self._request

    def _answer(self) -> None:
        self._request.answer(self._results)
