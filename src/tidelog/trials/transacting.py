"""What a simulated broker does for transactions, with the production code wherever there is any.

As leader it has batches verified and takes them, writes markers, and serves readers of committed
records; as coordinator it sends markers and is asked by leaders. Between brokers all of that
travels as simulated messages, markers and questions each over connections of their own.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.base.ids import TopicPartition
from tidelog.handlers.transactional import ask_shard
from tidelog.marker_appends import Marker, append_marker
from tidelog.marker_sending import Lot, MarkerSender, Results
from tidelog.records.control import EndTransaction
from tidelog.replication.replica import Role
from tidelog.transactions.requests import Add
from tidelog.transactions.shard import TransactionShard
from tidelog.transactions.surroundings import Ending
from tidelog.trials.leading import Produced
from tidelog.trials.led_partition import LedPartition
from tidelog.trials.model_log import Record
from tidelog.trials.network import Channel, Reply
from tidelog.verification import Codes, Question, Verification

if TYPE_CHECKING:
    from tidelog.trials.process import Process


class ProduceInTransaction(NamedTuple):
    partition: int
    value: int
    question: Question


class ReadCommitted(NamedTuple):
    partition: int
    offset: int


class Found(NamedTuple):
    """Records up to the last stable offset, with what a reader has to leave out of them."""

    records: list[Record]
    aborted: list[tuple[int, int]]
    high_watermark: int


class WriteMarkers(NamedTuple):
    lot: Lot


class Questions(NamedTuple):
    asked: Sequence[tuple[Question, Add]]


class Transacting:
    def __init__(self, process: "Process") -> None:
        self._process = process
        self._partitions: dict[int, LedPartition] = {}
        self._channels: dict[tuple[type, int], Channel] = {}
        loop, clock = process.loop, process.world.loop.clock
        self._verification = Verification(loop, clock, self)
        self.markers = MarkerSender(loop, clock, lambda: process.metadata.image, self._deliver)

    def receive(self, request: Any, reply: Reply) -> None:
        if isinstance(request, ProduceInTransaction):
            self._produce(request, reply)
        elif isinstance(request, ReadCommitted):
            reply(self._read(request))
        elif isinstance(request, WriteMarkers):
            _Writing(self, request.lot, reply)
        else:
            _Answering(self._process, request.asked, reply)

    def partition(self, index: int) -> LedPartition:
        found = self._partitions.get(index)
        if found is None:
            if index not in self._process.copies:
                raise KafkaError(ErrorCode.not_leader_or_follower, "no replica is here")
            found = self._partitions[index] = LedPartition(self._process, index)
        return found

    def forget(self, index: int) -> None:
        """There is no replica here any more."""
        self._partitions.pop(index, None)

    # -- batches and readers

    def _produce(self, request: ProduceInTransaction, reply: Reply) -> None:
        try:
            partition = self.partition(request.partition)
            partition.check_writable()
        except KafkaError as error:
            reply(Produced(error.code))
            return
        append = partial(self._append, partition, request, reply)
        self._verification.admit(partition, request.question, append)

    def _append(
        self,
        partition: LedPartition,
        request: ProduceInTransaction,
        reply: Reply,
        error: KafkaError | None,
    ) -> None:
        try:
            if error is not None:
                raise error
            if not partition.is_led:
                raise partition.not_led()
            offset = partition.append(request.value)
        except KafkaError as refused:
            reply(Produced(refused.code))
            return
        self._process.leading.wait(request.partition, offset, reply)

    def _read(self, request: ReadCommitted) -> Found | None:
        copy = self._process.copies.get(request.partition)
        if copy is None or copy.replica.role is Role.nobody:
            return None
        log = self.partition(request.partition).stamped
        watermark = copy.replica.high_watermark
        end = log.last_stable_offset(watermark)
        records = log.records[request.offset : end]
        return Found(records, log.aborted_between(request.offset, end), watermark)

    # -- other brokers

    def _ask(self, broker_id: int, request: WriteMarkers | Questions, done: Any) -> None:
        if broker_id == self._process.number:
            self.receive(request, done)
            return
        key = (type(request), broker_id)
        channel = self._channels.get(key)
        if channel is None:
            channel = Channel(self._process.world.network, self._process, broker_id)
            self._channels[key] = channel
        channel.call(request, partial(_told, done))

    def _deliver(
        self, broker_id: int, lot: Lot, done: Callable[[Results | KafkaError], None]
    ) -> None:
        self._ask(broker_id, WriteMarkers(lot), done)

    def coordinator_of(self, _transactional_id: str) -> int | None:
        world = self._process.world
        assert world.transaction_journal is not None
        return world.leader_known_to(self._process.number, world.transaction_journal)

    def ask(
        self,
        broker_id: int,
        asked: Sequence[tuple[Question, Add]],
        done: Callable[[Sequence[Codes] | KafkaError], None],
    ) -> None:
        self._ask(broker_id, Questions(asked), done)


def _told(done: Callable[[Any], None], answer: Any | None) -> None:
    lost = KafkaError(ErrorCode.network_exception, "the connection was lost")
    done(lost if answer is None else answer)


class _Writing:
    """Markers that are being written here, until the last is committed or refused."""

    def __init__(self, transacting: Transacting, lot: Lot, reply: Reply) -> None:
        self._reply = reply
        self._results: dict[tuple[int, TopicPartition], ErrorCode] = {}
        self._undone = sum(len(partitions) for _, partitions in lot)
        for ending, partitions in lot:
            for name in partitions:
                self._write(transacting, ending, name)

    def _write(self, transacting: Transacting, ending: Ending, name: TopicPartition) -> None:
        done = partial(self._end, (ending.producer_id, name))
        try:
            partition = transacting.partition(name.partition)
            partition.check_writable()
        except KafkaError as error:
            done(error)
            return
        end = EndTransaction(
            producer_id=ending.producer_id,
            producer_epoch=ending.producer_epoch,
            committed=ending.is_commit,
            coordinator_epoch=ending.coordinator_epoch,
        )
        marker = Marker(
            end=end, transaction_version=ending.transaction_version, on_append=_nobody_hears
        )
        append_marker(partition, marker, 0, done)

    def _end(self, key: tuple[int, TopicPartition], error: KafkaError | None) -> None:
        self._results[key] = ErrorCode.none if error is None else error.code
        self._undone -= 1
        if not self._undone:
            self._reply(self._results)


def _nobody_hears() -> None:
    """Of markers in partitions that are no journals."""


class _Answering:
    """Questions of a leader to the coordinator that is here, until the last has its answer."""

    def __init__(
        self, process: "Process", asked: Sequence[tuple[Question, Add]], reply: Reply
    ) -> None:
        self._reply = reply
        self._answers: list[Codes | None] = [None] * len(asked)
        index = process.world.transaction_journal
        assert index is not None
        for number, (question, add) in enumerate(asked):
            done = partial(self._end, number)
            try:
                shard = process.coordinating.find(index)
            except KafkaError as error:
                done(dict.fromkeys(add.partitions, error.code))
                continue
            assert isinstance(shard, TransactionShard)
            ask_shard(shard, add, done, verify=not question.is_adding)

    def _end(self, number: int, codes: Codes) -> None:
        self._answers[number] = codes
        if all(answer is not None for answer in self._answers):
            self._reply(self._answers)
