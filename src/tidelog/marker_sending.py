"""Markers of transactions that end, on their way from the coordinator to the leaders.

Each marker goes to whoever leads its partition now, together with others for the same broker, one
request at a time to each. What is refused or lost is tried again, wherever the partition is led by
then, until it is written. A partition that is not there for a while is taken for deleted.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, Protocol

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.base.ids import TopicPartition
from tidelog.base.ports import Clock, Loop
from tidelog.cluster.image import NO_LEADER, Image
from tidelog.transactions.surroundings import Ending

PARTITIONS_MAX: Final = 1000
"""In one request."""
RETRY_MS: Final = 50
RETRY_MS_MAX: Final = 1_000
GONE_AFTER_MS: Final = 3_000
"""A broker may learn of a new topic a little later than others do."""
_FENCED: Final = (
    ErrorCode.transaction_coordinator_fenced,
    ErrorCode.invalid_producer_epoch,
    ErrorCode.producer_fenced,
)

Lot = Sequence[tuple[Ending, Sequence[TopicPartition]]]
"""Markers for the partitions of one broker."""
Results = Mapping[tuple[int, TopicPartition], ErrorCode]
"""By producer id and partition."""


class Delivery(Protocol):
    def __call__(
        self, broker_id: int, lot: Lot, done: Callable[[Results | KafkaError], None]
    ) -> None:
        """Has a broker write markers; `done` once, with what came of each, or why nobody knows."""


class _Task:
    """An ending, and where its marker is still missing."""

    __slots__ = ("done", "ending", "is_over", "missing")

    def __init__(
        self, ending: Ending, is_over: Callable[[], bool], done: Callable[[KafkaError | None], None]
    ) -> None:
        self.ending = ending
        self.is_over = is_over
        self.done = done
        self.missing = dict.fromkeys(ending.partitions)

    def written(self, partition: TopicPartition) -> None:
        if partition in self.missing:
            del self.missing[partition]
            if not self.missing and not self.is_over():
                self.done(None)

    def fail(self, error: KafkaError) -> None:
        if self.missing:
            self.missing.clear()
            if not self.is_over():
                self.done(error)


class _Errand:
    """One marker for one partition."""

    __slots__ = ("absent_since_ms", "partition", "pause_ms", "task")

    def __init__(self, task: _Task, partition: TopicPartition) -> None:
        self.task = task
        self.partition = partition
        self.pause_ms = RETRY_MS
        self.absent_since_ms: int | None = None

    @property
    def is_idle(self) -> bool:
        return self.partition not in self.task.missing or self.task.is_over()


class MarkerSender:
    """The port `transactions.surroundings.Markers`."""

    def __init__(
        self, loop: Loop, clock: Clock, image: Callable[[], Image], deliver: Delivery
    ) -> None:
        self._loop = loop
        self._clock = clock
        self._image = image
        self._deliver = deliver
        self._waiting: dict[int, list[_Errand]] = {}
        self._busy: set[int] = set()

    def write(
        self, ending: Ending, is_over: Callable[[], bool], done: Callable[[KafkaError | None], None]
    ) -> None:
        task = _Task(ending, is_over, done)
        if not ending.partitions:
            done(None)
        for partition in ending.partitions:
            self._route(_Errand(task, partition))

    def _route(self, errand: _Errand) -> None:
        if errand.is_idle:
            return
        leader = self._leader_of(errand.partition)
        if leader is None:
            self._missed(errand)
        elif leader < 0:
            self._again(errand)
        else:
            errand.absent_since_ms = None
            self._waiting.setdefault(leader, []).append(errand)
            if leader not in self._busy:
                self._busy.add(leader)
                self._loop.call_soon(partial(self._send, leader))

    def _leader_of(self, partition: TopicPartition) -> int | None:
        """None if there is no such partition; negative while nobody leads it, or nobody can say
        who does: a topic that cannot be read now is not deleted."""
        image = self._image()
        topic = image.topics.get(partition.topic)
        if topic is None and partition.topic in image.unreadable:
            return NO_LEADER
        if topic is None or partition.partition >= len(topic.partitions):
            return None
        return topic.partitions[partition.partition].leader

    def _missed(self, errand: _Errand) -> None:
        now_ms = self._clock.monotonic_ms()
        if errand.absent_since_ms is None:
            errand.absent_since_ms = now_ms
        if now_ms - errand.absent_since_ms >= GONE_AFTER_MS:
            errand.task.written(errand.partition)
        else:
            self._again(errand)

    def _again(self, errand: _Errand) -> None:
        at_ms = self._clock.monotonic_ms() + errand.pause_ms
        errand.pause_ms = min(2 * errand.pause_ms, RETRY_MS_MAX)
        self._loop.call_at(at_ms, partial(self._route, errand))

    def _send(self, broker_id: int) -> None:
        waiting = [each for each in self._waiting.pop(broker_id, []) if not each.is_idle]
        sent, left = waiting[:PARTITIONS_MAX], waiting[PARTITIONS_MAX:]
        if left:
            self._waiting[broker_id] = left
        if not sent:
            self._busy.discard(broker_id)
            return
        lot: dict[_Task, list[TopicPartition]] = {}
        for errand in sent:
            lot.setdefault(errand.task, []).append(errand.partition)
        self._deliver(
            broker_id,
            [(task.ending, partitions) for task, partitions in lot.items()],
            partial(self._delivered, broker_id, sent),
        )

    def _delivered(
        self, broker_id: int, sent: list[_Errand], results: Results | KafkaError
    ) -> None:
        for errand in sent:
            code = ErrorCode.network_exception
            if not isinstance(results, KafkaError):
                key = (errand.task.ending.producer_id, errand.partition)
                code = results.get(key, ErrorCode.unknown_server_error)
            self._take(errand, code)
        self._loop.call_soon(partial(self._send, broker_id))

    def _take(self, errand: _Errand, code: ErrorCode) -> None:
        if code is ErrorCode.none:
            errand.task.written(errand.partition)
        elif code in _FENCED:
            errand.task.fail(KafkaError(code, f"{errand.partition} has a later marker"))
        else:
            self._again(errand)
