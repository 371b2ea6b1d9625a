"""Where the partitions of a simulated broker start: leaders delete records, followers hear of it.

The production code that moves log starts, and that waits for replicas to have them (S5), around
model logs.
"""

from functools import partial
from typing import TYPE_CHECKING, NamedTuple, cast

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.log import retention
from tidelog.log.partition_log import PartitionLog
from tidelog.replication.replica import Role
from tidelog.serving.low_waiters import LowWaiters
from tidelog.trials.exchange import Copy
from tidelog.trials.leading import Produced
from tidelog.trials.network import Reply

if TYPE_CHECKING:
    from tidelog.trials.process import Process

SAVING_MS_MAX = 10


class DeleteRecords(NamedTuple):
    partition: int
    before: int


class LogStarts:
    def __init__(self, process: "Process") -> None:
        self._process = process
        self._waiting: dict[int, LowWaiters] = {}

    def delete(self, index: int, before: int, reply: Reply) -> None:
        process = self._process
        copy = process.copies.get(index)
        if copy is None or copy.replica.role is not Role.leader:
            reply(Produced(ErrorCode.not_leader_or_follower))
            return
        log = cast("PartitionLog", copy.log)
        was = log.log_start_offset
        try:
            start = retention.delete_records(log, before, copy.replica.high_watermark)
        except KafkaError as error:
            reply(Produced(error.code))
            return
        if start > was:
            process.world.counts.log_starts_moved += 1
            process.trace("deletes", index, "what lies below %d", start)
        process.touched(index)
        process.leading.wake(index)
        delay_ms = int(process.world.disk_draws.random() * SAVING_MS_MAX)
        process.after(delay_ms, partial(self._saved, index, copy, start, reply))

    def _saved(self, index: int, copy: Copy, start: int, reply: Reply) -> None:
        copy.log.save_start()
        waiting = self._waiting.setdefault(index, LowWaiters())
        waiting.wait(start, partial(self._answer, copy, start, reply))
        if copy.replica.role is Role.leader:
            waiting.reached(copy.replica.low_watermark())
        else:
            self.led_elsewhere(index)

    def fetched(self, index: int) -> None:
        """A follower says where its log starts."""
        waiting = self._waiting.get(index)
        if waiting:
            waiting.reached(self._process.copies[index].replica.low_watermark())

    def led_elsewhere(self, index: int) -> None:
        waiting = self._waiting.pop(index, None)
        if waiting:
            waiting.refuse(KafkaError(ErrorCode.not_leader_or_follower, "it is led elsewhere"))

    def _answer(self, copy: Copy, start: int, reply: Reply, error: KafkaError | None) -> None:
        if error is None:
            self._process.deleted(copy, start)
        reply(Produced(ErrorCode.none if error is None else error.code, start))
