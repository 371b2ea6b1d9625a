"""Whether what a producer writes belongs to a transaction that is open.

A batch that comes late, when its transaction is over, would begin one that nobody ends, and readers
of committed records would wait for it for ever (X30). So before a partition takes the first batch
of a transaction its coordinator is asked, and for producers of the newer kind told: it adds the
partition. Until there is an answer, and no longer than that, what the same producer sends to the
same partition waits in its order; others do not. A marker that comes meanwhile may have ended the
transaction after the coordinator was asked: then it is asked again, and whatever came since waits
behind what came before.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.base.ids import TopicPartition
from tidelog.base.ports import Clock, Loop
from tidelog.log.producers import Producers
from tidelog.serving.guards import Guards
from tidelog.transactions.requests import Add
from tidelog.transactions.state import Producer

TRANSACTIONS_MAX: Final = 500
"""In one request."""
RETRY_MS: Final = 20
RETRIES_MAX: Final = 5
_ASKED_AGAIN: Final = (ErrorCode.concurrent_transactions, ErrorCode.operation_not_attempted)
"""So often: while the transaction before is still ending, or if another partition of the same
question, which the coordinator has not heard of yet, was in the way."""

Verified = Callable[[KafkaError | None], None]
Codes = Mapping[TopicPartition, ErrorCode]


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Whether a partition is in a transaction, or that it is to be added."""

    transactional_id: str
    producer: Producer
    is_adding: bool


class Coordinators(Protocol):
    """The coordinators of transactions, here and elsewhere."""

    def coordinator_of(self, transactional_id: str) -> int | None:
        """The broker; None or negative if there is none now."""

    def ask(
        self,
        broker_id: int,
        asked: Sequence[tuple[Question, Add]],
        done: Callable[[Sequence[Codes] | KafkaError], None],
    ) -> None:
        """About several transactions at once; `done` once, with an answer for each."""


class Log(Protocol):
    @property
    def producers(self) -> Producers: ...


class Guarded(Protocol):
    """A partition, as far as verification goes."""

    @property
    def name(self) -> TopicPartition: ...

    @property
    def log(self) -> Log: ...

    @property
    def guards(self) -> Guards: ...


class _Errand:
    __slots__ = ("done", "partition", "question", "tries")

    def __init__(
        self, question: Question, partition: TopicPartition, done: Callable[[ErrorCode], None]
    ) -> None:
        self.question = question
        self.partition = partition
        self.done = done
        self.tries = 0


class Verification:
    def __init__(self, loop: Loop, clock: Clock, coordinators: Coordinators) -> None:
        self._loop = loop
        self._clock = clock
        self._coordinators = coordinators
        self._queues: dict[tuple[Guarded, Producer], deque[Verified]] = {}
        self._waiting: dict[int, list[_Errand]] = {}
        self._busy: set[int] = set()

    def admit(self, partition: Guarded, question: Question, verified: Verified) -> None:
        """Tells, maybe at once, whether a batch may be appended; if so it must be at once."""
        key = partition, question.producer
        queue = self._queues.get(key)
        if queue is not None:
            queue.append(verified)
        elif self._is_known_open(partition, question.producer):
            verified(None)
        else:
            self._queues[key] = deque([verified])
            self._ask(partition, question)

    def _is_known_open(self, partition: Guarded, producer: Producer) -> bool:
        """Not while a marker waits for its turn, which will end it."""
        has_open = partition.log.producers.has_open(*producer)
        return has_open and producer.producer_id not in partition.guards

    def _ask(self, partition: Guarded, question: Question) -> None:
        guard = partition.guards.set(question.producer.producer_id)
        done = partial(self._answered, partition, question, guard)
        self._put(_Errand(question, partition.name, done))

    def _answered(
        self, partition: Guarded, question: Question, guard: object, code: ErrorCode
    ) -> None:
        """Tells those who wait, one by one: more may come while they are told."""
        producer_id, guards = question.producer.producer_id, partition.guards
        error = None
        if code is not ErrorCode.none:
            what = f"{partition.name}: not in an open transaction of {question.transactional_id}"
            error = KafkaError(code, what)
        elif question.is_adding:
            partition.log.producers.begins_anew(producer_id)
        key = partition, question.producer
        queue = self._queues[key]
        while queue and (error is not None or guards.stands(producer_id, guard)):
            queue.popleft()(error)
        if queue:
            self._ask(partition, question)
            return
        del self._queues[key]
        guards.lift(producer_id, guard)

    # -- asking coordinators

    def _put(self, errand: _Errand) -> None:
        broker_id = self._coordinators.coordinator_of(errand.question.transactional_id)
        if broker_id is None or broker_id < 0:
            self._loop.call_soon(partial(errand.done, ErrorCode.coordinator_not_available))
            return
        self._waiting.setdefault(broker_id, []).append(errand)
        if broker_id not in self._busy:
            self._busy.add(broker_id)
            self._loop.call_soon(partial(self._send, broker_id))

    def _send(self, broker_id: int) -> None:
        """Of one transactional id no two questions go in one request: the answers name it only."""
        lot: dict[str, list[_Errand]] = {}
        left: list[_Errand] = []
        for errand in self._waiting.pop(broker_id, ()):
            same = lot.get(errand.question.transactional_id)
            if same is None and len(lot) < TRANSACTIONS_MAX:
                lot[errand.question.transactional_id] = [errand]
            elif same is not None and same[0].question == errand.question:
                same.append(errand)
            else:
                left.append(errand)
        if left:
            self._waiting[broker_id] = left
        if not lot:
            self._busy.discard(broker_id)
            return
        errands = list(lot.values())
        asked = [(each[0].question, _add(each)) for each in errands]
        self._coordinators.ask(broker_id, asked, partial(self._told, broker_id, errands))

    def _told(
        self, broker_id: int, errands: list[list[_Errand]], answer: Sequence[Codes] | KafkaError
    ) -> None:
        for number, same in enumerate(errands):
            for errand in same:
                if isinstance(answer, KafkaError):
                    code = ErrorCode.network_exception
                else:
                    code = answer[number].get(errand.partition, ErrorCode.unknown_server_error)
                self._take(errand, code)
        self._loop.call_soon(partial(self._send, broker_id))

    def _take(self, errand: _Errand, code: ErrorCode) -> None:
        if code in _ASKED_AGAIN and errand.tries < RETRIES_MAX:
            errand.tries += 1
            at_ms = self._clock.monotonic_ms() + RETRY_MS
            self._loop.call_at(at_ms, partial(self._put, errand))
        else:
            errand.done(code)


def _add(errands: Sequence[_Errand]) -> Add:
    question = errands[0].question
    return Add(
        transactional_id=question.transactional_id,
        producer=question.producer,
        partitions=tuple(dict.fromkeys(errand.partition for errand in errands)),
        client_version=2 if question.is_adding else 0,
    )
