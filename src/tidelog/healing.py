"""What becomes of a replica in which a batch is found that has rotted on its disk (F12).

The bad batch is never sent. If others are in sync they have it: this replica stops leading, has
the controller ask it what it can do, and says that it cannot serve, so that it leaves the in-sync
set and another leads. Then, and not before, it drops the damaged segment and all behind it, and
fetches that from the leader. Who is alone in the set goes on leading: nobody else has what it has.
A follower notices nothing of what has rotted unless it has to be cut there; then it does the same.
So does a replica that a start finds without its first segments while others are in sync: it fetches
all of it again. If it led them before that they would take what is missing for deleted, and delete
it too.
"""

import logging
from collections.abc import Callable

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.cluster.image import NO_LEADER, PartitionInfo
from tidelog.log.files import LOG
from tidelog.log.segment import Segment
from tidelog.log.truncation import cut_damaged
from tidelog.log.unverified import Stretch, Unverified
from tidelog.partition import Partition
from tidelog.partitions import Partitions

_log = logging.getLogger("tidelog.healing")


class Healing:
    def __init__(self, partitions: Partitions, ask_again: Callable[[], None]) -> None:
        """`ask_again` has the controller tell this broker anew what it shall do."""
        self._partitions = partitions
        self._ask_again = ask_again

    def took_note(
        self, partition: Partition, unverified: Unverified, found: Stretch | None
    ) -> None:
        """Notes what was found in a part of a partition's log, and begins to heal it if need be."""
        if found is not None and unverified.note(found):
            _log.error(
                "damaged partition=%s file=%s position=%d from_offset=%d",
                partition.name,
                _path_of(partition, unverified),
                found.bad,
                found.next_offset,
            )
        if unverified.is_damaged:
            self.consider(partition)

    def consider(self, partition: Partition) -> None:
        """A part of its log could not be served: it gives way if others have it."""
        segment = _first_damaged(partition)
        if segment is not None and partition.is_led and len(partition.replica.isr.isr) > 1:
            self._give_way(partition, segment)

    def cannot_be_cut(self, partition: Partition) -> None:
        """It was to be cut where nothing is found any more: it follows nobody before it has
        dropped more than that."""
        segments = partition.log.segments
        there = segments.all[segments.at(partition.replica.cut_offset)]
        self._give_way(partition, _first_damaged(partition) or there)

    def _give_way(self, partition: Partition, segment: Segment) -> None:
        _log.error("resigned partition=%s why=others have what is damaged here", partition.name)
        partition.damaged = segment
        partition.resign()
        self._partitions.set_led(partition)
        self._ask_again()


def check_sound(partition: Partition, info: PartitionInfo, broker_id: int) -> None:
    """Refuses what a damaged replica cannot do: lead others, or be in sync. Where it alone is left
    it leads, and where nobody leads it may be needed: then only the damaged batch is refused. A
    controller that does not know yet who else is in sync finds out when it is refused."""
    if partition.damaged is None:
        return
    is_old = partition.state is not None and _age(info) < _age(partition.state)
    if not is_old and (info.leader == NO_LEADER or info.isr == (broker_id,)):
        partition.damaged = None
    elif is_old or broker_id in info.isr:
        raise KafkaError(
            ErrorCode.kafka_storage_error,
            f"{partition.name} is damaged here, and is to be fetched from others",
        )


def _age(info: PartitionInfo) -> tuple[int, int]:
    return info.leader_epoch, info.state_version


def heal(partition: Partition, now_ms: int) -> None:
    """Before it follows, out of the in-sync set: drops what is damaged, to fetch it again."""
    segment, partition.damaged = partition.damaged, None
    log = partition.log
    if segment is None or segment not in log.segments.all:
        return
    end = log.log_end_offset
    try:
        cut_damaged(log, segment, now_ms)
    except KafkaError as error:
        _log.error("not healed partition=%s why=%s", partition.name, error.message)
    partition.was_cut()
    _log.info("cut to heal partition=%s end=%d to=%d", partition.name, end, log.log_end_offset)


def _first_damaged(partition: Partition) -> Segment | None:
    segments = partition.log.segments.all
    return next((s for s in segments if s.unverified is not None and s.unverified.is_damaged), None)


def _path_of(partition: Partition, unverified: Unverified) -> str:
    """Of the segment, unless it was deleted or compacted meanwhile."""
    segments = partition.log.segments.all
    return next((s.path(LOG) for s in segments if s.unverified is unverified), "")
