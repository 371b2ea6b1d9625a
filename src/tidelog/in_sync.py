"""Keeping in-sync sets: who falls out is taken out, what a machine proposes is written down.

A change is written to the partition's state node on condition that nobody else has changed it
(I4). Who is written in counts from the moment it is proposed, who is written out until it is
known to be done. Changes are announced to the controller, which tells everybody else.
"""

import logging
from collections.abc import Callable
from functools import partial

from tidelog.base.ids import TopicIdPartition
from tidelog.base.ports import Clock, Loop
from tidelog.base.settings import Settings
from tidelog.cluster.image import PartitionInfo
from tidelog.cluster.isr_change import expanded, shrunk
from tidelog.cluster.isr_writes import Gone, IsrWriter, Refused, Wrote
from tidelog.partition import Partition
from tidelog.partitions import Partitions
from tidelog.replication.isr import Committed, PendingExpand
from tidelog.replication.replica import Role

_log = logging.getLogger("tidelog.in_sync")


class InSync:
    def __init__(
        self,
        partitions: Partitions,
        settings: Callable[[], Settings],
        clock: Clock,
        loop: Loop,
    ) -> None:
        self._partitions = partitions
        self._settings = settings
        self._clock = clock
        self._loop = loop
        self._writer: IsrWriter | None = None
        self._announce: Callable[[str, int], None] = lambda _topic, _index: None
        self._is_stopped = False
        self.shrinks = 0
        self.expands = 0

    def start(self, writer: IsrWriter, announce: Callable[[str, int], None]) -> None:
        self._writer = writer
        self._announce = announce
        self._look_later()

    def stop(self) -> None:
        self._is_stopped = True

    @property
    def lag_ms_max(self) -> int:
        return self._settings().whole("replica.lag.time.max.ms")

    def _look_later(self) -> None:
        delay_ms = max(1, self.lag_ms_max // 2)
        self._loop.call_at(self._clock.monotonic_ms() + delay_ms, self._look)

    def _look(self) -> None:
        """Every half of the longest lag (I2)."""
        if self._is_stopped:
            return
        now_ms, lag_ms_max = self._clock.monotonic_ms(), self.lag_ms_max
        for partition in self._partitions:
            if partition.is_led:
                partition.replica.lag_ms_max = lag_ms_max
                partition.replica.expire(now_ms)
                partition.replica.reconsider(now_ms)
                partition.check_in_sync()
        self._look_later()

    def brokers_changed(self) -> None:
        """Followers may have asked before it was known that they are back."""
        now_ms = self._clock.monotonic_ms()
        for partition in self._partitions:
            if partition.is_led:
                partition.replica.reconsider(now_ms)
                partition.check_in_sync()

    def proposed(self, partition: Partition) -> None:
        """Writes what the machine proposes, once. What a replica of before has under way, which was
        removed here meanwhile, is waited for."""
        name = TopicIdPartition(partition.topic_id, partition.topic, partition.index)
        if self._writer is None or self._writer.is_writing(name):
            return
        before, after = partition.state, _after(partition)
        assert before is not None
        self._writer.write(name, before, after, partial(self._ended, partition, before))

    def _ended(
        self, partition: Partition, before: PartitionInfo, end: Wrote | Refused | Gone
    ) -> None:
        if not partition.is_led:
            now = self._partitions.held(partition.topic_id, partition.index)
            if now is not None and now.is_led:
                now.check_in_sync()
            return
        if partition.leader_epoch != before.leader_epoch:
            partition.check_in_sync()
            return
        match end:
            case Wrote(state=state):
                self._count(before, state)
                _log.info(
                    "isr partition=%s epoch=%d isr=%s was=%s elr=%s",
                    partition.name,
                    state.leader_epoch,
                    list(state.isr),
                    list(before.isr),
                    list(state.elr),
                )
                partition.isr_written(state)
                self._announce(partition.topic, partition.index)
            case Refused(state=state):
                partition.isr_written(state)
            case Gone(state=state):
                _log.warning("deposed partition=%s epoch=%d", partition.name, before.leader_epoch)
                partition.resign()
                if state is not None:
                    # What was said of the epoch before may still come, with a smaller set.
                    partition.state = state
                self._partitions.set_led(partition)
                return
        partition.replica.reconsider(self._clock.monotonic_ms())
        partition.check_in_sync()

    def _count(self, before: PartitionInfo, after: PartitionInfo) -> None:
        if len(after.isr) < len(before.isr):
            self.shrinks += 1
        elif len(after.isr) > len(before.isr):
            self.expands += 1


def _after(partition: Partition) -> PartitionInfo:
    """The state with the in-sync set that the machine wants."""
    replica, state = partition.replica, partition.state
    assert replica.role is Role.leader
    assert state is not None
    min_isr = partition.log.settings.min_insync_replicas
    match replica.isr:
        case PendingExpand(added=member, added_epoch=epoch):
            return expanded(state, member, epoch, min_isr)
        case Committed():
            raise AssertionError("nothing is proposed")
        case pending:
            return shrunk(state, pending.removed, min_isr)
