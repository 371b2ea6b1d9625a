"""Ending a transaction in one partition that is led here: its marker, appended in its turn.

What a producer has sent before comes before the marker, also if it is still being written beside
the loop. A batch whose transaction is being verified has to be verified anew once the marker is
here: the transaction it was to belong to may be over (X30).
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

from tidelog.base.errors import KafkaError
from tidelog.base.log_settings import LogSettings
from tidelog.base.settings.kinds import LONG_MAX
from tidelog.log.producers import Producers
from tidelog.records.control import EndTransaction, encode_end_transaction
from tidelog.serving.acks import Committed
from tidelog.serving.guards import Guards
from tidelog.slow_appends import Appended, Own

EPOCH_RAISED_FROM: Final = 2
"""The version of transactions from which each ends with a higher epoch than it had."""


class Log(Protocol):
    @property
    def settings(self) -> LogSettings: ...

    @property
    def producers(self) -> Producers: ...

    @property
    def log_end_offset(self) -> int: ...

    def append_own(self, batch: bytearray, leader_epoch: int) -> int: ...


class Acks(Protocol):
    def wait(self, end_offset: int, committed: Committed) -> None: ...


class Marked(Protocol):
    """A partition, as far as markers go."""

    @property
    def log(self) -> Log: ...

    @property
    def acks(self) -> Acks: ...

    @property
    def guards(self) -> Guards: ...

    @property
    def is_led(self) -> bool: ...

    @property
    def is_busy(self) -> bool: ...

    @property
    def leader_epoch(self) -> int: ...

    @property
    def high_watermark(self) -> int: ...

    def append_slowly(self, batch: Own, done: Appended) -> None: ...

    def appended(self, size: int) -> None: ...

    def refuse_if_too_few(self) -> None: ...

    def not_led(self) -> KafkaError: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Marker:
    end: EndTransaction
    transaction_version: int
    on_append: Callable[[], None]
    """Told when it is in the log, if it was not there before."""


def append_marker(partition: Marked, marker: Marker, now_ms: int, done: Committed) -> None:
    """Tells `done` when the marker is committed, or why that will not be."""
    partition.guards.marker_comes(marker.end.producer_id)
    batch = encode_end_transaction(marker.end, timestamp=now_ms)
    append = partial(_append, partition, marker, batch)
    if partition.is_busy or partition.log.settings.flush_messages < LONG_MAX:
        # What comes before it is in the log comes behind it: not of the transaction that ends.
        partition.guards.marker_waits(marker.end.producer_id)
        appended = partial(_appended_slowly, partition, marker.end.producer_id, done)
        partition.append_slowly(Own(append, len(batch)), appended)
        return
    try:
        offset = append()
    except KafkaError as error:
        done(error)
        return
    partition.appended(len(batch))
    _wait(partition, done, offset)


def _append(partition: Marked, marker: Marker, batch: bytearray) -> int:
    """From version 2 on an epoch that the log has says that the marker was here: one that comes
    twice must not end what has begun since."""
    log, end = partition.log, marker.end
    is_known = log.producers.epoch_of(end.producer_id) == end.producer_epoch
    if marker.transaction_version >= EPOCH_RAISED_FROM and is_known:
        return log.log_end_offset
    offset = log.append_own(batch, partition.leader_epoch)
    marker.on_append()
    return offset


def _appended_slowly(
    partition: Marked, producer_id: int, done: Committed, offset: int | KafkaError, _time_ms: int
) -> None:
    partition.guards.marker_waited(producer_id)
    _wait(partition, done, offset)


def _wait(partition: Marked, done: Committed, offset: int | KafkaError) -> None:
    if isinstance(offset, KafkaError):
        done(offset)
    elif not partition.is_led:
        done(partition.not_led())
    elif partition.high_watermark >= partition.log.log_end_offset:
        done(None)
    else:
        partition.acks.wait(partition.log.log_end_offset, done)
        # There may be too few since it was its turn to wait: whoever asked must come again.
        partition.refuse_if_too_few()
