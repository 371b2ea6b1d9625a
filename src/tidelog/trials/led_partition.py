"""A partition of a simulated broker, as production code for transactions sees the real one."""

from typing import TYPE_CHECKING, Final

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.base.ids import TopicPartition
from tidelog.base.log_settings import LogSettings
from tidelog.log.producers import FRESH, Producers
from tidelog.records.batch import TRANSACTIONAL
from tidelog.records.control import read_end_transaction
from tidelog.replication.replica import Replica, Role
from tidelog.serving.acks import Committed
from tidelog.serving.guards import Guards
from tidelog.slow_appends import Appended, Own
from tidelog.trials.leading import TOPIC, Produced
from tidelog.trials.stamped_log import Stamp, StampedLog

if TYPE_CHECKING:
    from tidelog.trials.process import Process

_SETTINGS: Final = LogSettings()


class LedPartition:
    """Its own log and its own acknowledgements too, as far as they are asked for."""

    def __init__(self, process: "Process", index: int) -> None:
        self._process = process
        self._index = index
        self._copy = process.copies[index]
        self.name = TopicPartition(TOPIC, index)
        self.guards = Guards()
        self.settings = _SETTINGS
        self.is_busy = False

    @property
    def log(self) -> "LedPartition":
        return self

    @property
    def acks(self) -> "LedPartition":
        return self

    # -- who leads

    @property
    def _replica(self) -> Replica:
        return self._copy.replica

    @property
    def is_led(self) -> bool:
        return self._replica.role is Role.leader

    @property
    def leader_epoch(self) -> int:
        return self._replica.leader_epoch

    @property
    def high_watermark(self) -> int:
        return self._replica.high_watermark

    def not_led(self) -> KafkaError:
        return KafkaError(ErrorCode.not_leader_or_follower, f"{self.name} is led elsewhere")

    def check_writable(self) -> None:
        if not self.is_led:
            raise self.not_led()
        if len(self._replica.isr.isr) < self._replica.min_isr:
            raise KafkaError(ErrorCode.not_enough_replicas, "too few are in sync")

    # -- its log

    @property
    def stamped(self) -> StampedLog:
        log = self._copy.log
        assert isinstance(log, StampedLog)
        return log

    @property
    def producers(self) -> Producers:
        return self.stamped.producers

    @property
    def log_end_offset(self) -> int:
        return self.stamped.log_end_offset

    def append(self, value: int) -> int:
        """A batch of a producer; gives the offset that it has, or had already."""
        stamp = self._process.world.stamps.get(value)
        assert isinstance(stamp, Stamp)
        found = self.producers.check(*stamp.producer, stamp.sequence, 0, TRANSACTIONAL)
        return self._process.leading.append(self._index, value) if found == FRESH else found

    def append_own(self, batch: bytearray, leader_epoch: int) -> int:
        """A marker."""
        assert leader_epoch == self.leader_epoch
        marker = read_end_transaction(batch)
        assert marker is not None
        self.producers.check_epoch(marker.producer_id, marker.producer_epoch)
        self.producers.check_coordinator(marker.producer_id, marker.coordinator_epoch)
        number = self._process.world.stamps.add_marker(marker)
        return self._process.leading.append(self._index, number)

    def append_slowly(self, batch: Own, done: Appended) -> None:
        raise AssertionError(f"nothing is written beside the loop here: {batch}, {done}")

    def appended(self, _size: int) -> None:
        """Followers have been woken in the append."""

    def refuse_if_too_few(self) -> None:
        """Nothing is written beside the loop here: there are as many as when that was checked."""

    # -- its acknowledgements

    def wait(self, end_offset: int, committed: Committed) -> None:
        def end(answer: Produced) -> None:
            error = KafkaError(ErrorCode(answer.error), "not committed") if answer.error else None
            committed(error)

        self._process.leading.wait(self._index, end_offset - 1, end)
