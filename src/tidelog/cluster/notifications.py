"""What brokers announce to the controller through the tree: ISRs they changed, disks they lost.

ISR changes are collected: a task that runs every 2.5 s announces them when the last change is
5 s old or the last announcement a minute, so that a follower that comes and goes does not make
the controller tell everybody each time. The texts are Kafka's.
"""

import logging
from collections.abc import Iterable
from functools import partial
from typing import Final

from tidelog.base.coordination import (
    Coordination,
    CoordinationError,
    Create,
    Operation,
    Trouble,
    Written,
)
from tidelog.base.errors import BadValue
from tidelog.base.ports import Clock, Loop, Timer
from tidelog.cluster import fields, paths
from tidelog.cluster.realm import PartitionName
from tidelog.cluster.writing import insist

_log = logging.getLogger(__name__)

CHECKED_EVERY_MS: Final = 2500
QUIET_MS: Final = 5000
"""How old the last change is when it is announced."""
ANNOUNCED_EVERY_MS: Final = 60_000
"""How old the last announcement is when changes are announced however new they are."""
PARTITIONS_MAX: Final = 3000
"""In one announcement, as in Kafka."""
_LOG_DIR_FAILED: Final = 1


class Announcer:
    def __init__(self, coordination: Coordination, loop: Loop, clock: Clock) -> None:
        self._coordination = coordination
        self._loop = loop
        self._clock = clock
        self._changed: dict[PartitionName, None] = {}
        self._changed_ms = 0
        self._announced_ms: int | None = None
        self._timer: Timer | None = None
        self._is_closed = False

    def isr_changed(self, name: PartitionName) -> None:
        """The task runs only while there is something to announce."""
        self._changed[name] = None
        self._changed_ms = self._clock.monotonic_ms()
        if self._timer is None and not self._is_closed:
            self._arm()

    def log_dir_failed(self, broker_id: int) -> None:
        event = Create(
            path=paths.LOG_DIR_EVENT_PREFIX, data=encode_log_dir_event(broker_id), sequence=True
        )
        self._write([event])

    def close(self) -> None:
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()

    def _arm(self) -> None:
        at_ms = self._clock.monotonic_ms() + CHECKED_EVERY_MS
        self._timer = self._loop.call_at(at_ms, self._check)

    def _check(self) -> None:
        self._timer = None
        now_ms = self._clock.monotonic_ms()
        last_ms = self._announced_ms
        is_due = now_ms - self._changed_ms >= QUIET_MS or (
            last_ms is None or now_ms - last_ms >= ANNOUNCED_EVERY_MS
        )
        if is_due:
            self._announced_ms = now_ms
            self._announce()
        else:
            self._arm()

    def _announce(self) -> None:
        changed, self._changed = sorted(self._changed), {}
        for at in range(0, len(changed), PARTITIONS_MAX):
            data = encode_isr_change(changed[at : at + PARTITIONS_MAX])
            self._write([Create(path=paths.ISR_CHANGE_PREFIX, data=data, sequence=True)])

    def _write(self, operations: list[Operation]) -> None:
        """Twice does no harm. A session that is over needs no announcement: the broker's return
        makes the controller look at all it holds."""

        def wrote(result: list[Written] | CoordinationError) -> None:
            if isinstance(result, CoordinationError):
                level = logging.INFO if _is_over(result) else logging.ERROR
                _log.log(level, "%s was not announced: %s", operations[0].path, result)

        insist(partial(self._coordination.write, operations), wrote)


def _is_over(error: CoordinationError) -> bool:
    return error.trouble is Trouble.session_expired


def encode_isr_change(names: Iterable[PartitionName]) -> bytes:
    partitions = [{"topic": topic, "partition": index} for topic, index in names]
    return fields.encode({"version": 1, "partitions": partitions})


def decode_isr_change(data: bytes) -> list[PartitionName]:
    found = fields.decode(data).get("partitions")
    if not isinstance(found, list) or not all(isinstance(item, dict) for item in found):
        raise BadValue("partitions is not a list of partitions")
    return [(fields.text(item, "topic"), fields.whole(item, "partition", 0)) for item in found]


def encode_log_dir_event(broker_id: int) -> bytes:
    return fields.encode({"version": 1, "broker": broker_id, "event": _LOG_DIR_FAILED})


def decode_log_dir_event(data: bytes) -> int:
    """The broker."""
    return fields.whole(fields.decode(data), "broker", 0)
