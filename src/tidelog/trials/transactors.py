"""Transactional clients: they take an id over, write in several partitions, commit, abort, fail.

One that pauses goes on when its transaction has timed out or another has taken its id, as if
nothing had happened; one that crashes comes back and takes the id over from itself; some batches
are sent that nobody waits for. Those of the older protocol add partitions themselves and stay in
their epoch; for the newer ones leaders add them, and every end raises the epoch.
"""

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.base.ids import TopicPartition
from tidelog.transactions.requests import Add, Begin, End
from tidelog.transactions.state import EPOCH_RAISED_FROM, Producer
from tidelog.trials.clients import RETRY_MS, VALUES_EACH
from tidelog.trials.coordinated import Coordinated
from tidelog.trials.lanes import ABORTABLE, FENCED, Lane
from tidelog.trials.leading import TOPIC
from tidelog.trials.stamped_log import Stamp
from tidelog.trials.transacting import ProduceInTransaction
from tidelog.trials.transaction_oracle import TransactionOracle, Written
from tidelog.verification import Question

if TYPE_CHECKING:
    from tidelog.trials.world import World

TIMEOUT_MS: Final = 600
REST_MS: Final = 200


class Transactor(Coordinated):
    def __init__(
        self, world: "World", index: int, number: int, name: str, oracle: TransactionOracle
    ) -> None:
        super().__init__(world, index)
        self._random = world.transactor_draws.random
        self._oracle = oracle
        self._name = name
        self._is_newer = world.options.newer_transactions
        self._version = EPOCH_RAISED_FROM if self._is_newer else 0
        self._value = VALUES_EACH * number
        self._sequences: dict[int, int] = {}
        self._producer: Producer | None = None
        self._written = Written(Producer(-1, -1))
        self._lanes = 0
        self._trouble: ErrorCode | None = None
        self._is_unsettled = False
        """Whether something was sent of which nobody knows what became of it."""

    # -- becoming a producer

    def start(self) -> None:
        begin = Begin(transactional_id=self._name, timeout_ms=TIMEOUT_MS, expected=self._producer)
        self.to_coordinator(lambda shard, reply: shard.begin(begin, reply), self._began)

    def _began(self, answer: Producer | KafkaError | ErrorCode | None) -> None:
        if isinstance(answer, Producer):
            self._is_unsettled = False
            self._go_on_as(answer)
        elif _code(answer) in FENCED:
            self._fenced()
        else:
            self.later(RETRY_MS, self.start)

    def _go_on_as(self, producer: Producer) -> None:
        if producer != self._producer:
            self._oracle.given(producer)
            self._producer = producer
            self._sequences = {}
        self.later(self.think_ms(), self._transact)

    def _fenced(self) -> None:
        """Another one has the id, or the transaction has taken too long."""
        self.world.counts.transactions_fenced += 1
        self._crash()

    def _crash(self) -> None:
        self._producer = None
        self.later(int(self._random() * REST_MS), self.start)

    # -- a transaction

    def _transact(self) -> None:
        if self.is_stopped:
            return
        producer = self._producer
        assert producer is not None
        self._written = self._oracle.begin(producer)
        self._trouble = None
        count = self.world.options.partitions
        first, wanted = int(self._random() * count), 1 + int(self._random() * 3)
        indexes = [(first + step) % count for step in range(min(wanted, count))]
        if self._is_newer:
            self._write(indexes)
        else:
            self._add(indexes)

    def _add(self, indexes: list[int]) -> None:
        assert self._producer is not None
        add = Add(
            transactional_id=self._name,
            producer=self._producer,
            partitions=tuple(TopicPartition(TOPIC, index) for index in indexes),
        )
        done = partial(self._added, indexes)
        self.to_coordinator(lambda shard, reply: shard.add_partitions(add, _some(reply)), done)

    def _added(self, indexes: list[int], answer: KafkaError | ErrorCode | None) -> None:
        code = _code(answer)
        if code is ErrorCode.none:
            self._write(indexes)
        elif code in FENCED:
            self._fenced()
        elif code in ABORTABLE:
            self._end(is_commit=False)
        else:
            self.later(RETRY_MS, partial(self._add, indexes))

    def _write(self, indexes: list[int]) -> None:
        self._lanes = len(indexes)
        for index in indexes:
            self._send(Lane(self, index, 1 + int(self._random() * 2)))

    def _send(self, lane: Lane) -> None:
        self.world.counts.operations += 1
        value = self._new_value(lane.index)
        self._written.values.append(value)
        lane.begin(value)

    def _new_value(self, index: int) -> int:
        assert self._producer is not None
        self._value += 1
        sequence = self._sequences.get(index, 0)
        self._sequences[index] = sequence + 1
        self.world.stamps.put(self._value, Stamp(self._producer, sequence))
        return self._value

    def produce(self, index: int, value: int, done: Any) -> bool:
        """Whether it could be sent."""
        stamp = self.world.stamps.get(value)
        leader = self.world.leader_known_to(self._any_broker(), index)
        if leader < 0 or not isinstance(stamp, Stamp):
            return False
        question = Question(
            transactional_id=self._name, producer=stamp.producer, is_adding=self._is_newer
        )
        self.ask(leader, ProduceInTransaction(index, value, question), done)
        return True

    def went_on(self, lane: Lane, code: ErrorCode) -> None:
        """A lane has its record acknowledged, or is stuck."""
        if code is not ErrorCode.none:
            self._is_unsettled = True
            if self._trouble is None or code in FENCED:
                self._trouble = code
        elif lane.left and self._trouble is None:
            lane.left -= 1
            self._send(lane)
            return
        self._lanes -= 1
        if not self._lanes:
            self._decide()

    @property
    def is_in_trouble(self) -> bool:
        return self._trouble is not None

    # -- its end

    def _decide(self) -> None:
        if self._trouble is not None:
            if self._trouble in FENCED:
                self._fenced()
            else:
                self._end(is_commit=False)
            return
        drawn = self._random()
        is_commit = drawn < 0.65
        if 0.6 < drawn < 0.7:
            pause_ms = int(self._random() * 3 * TIMEOUT_MS)
            self.later(pause_ms, partial(self._end, is_commit=is_commit))
        elif drawn > 0.93:
            self._crash()
        else:
            if 0.45 < drawn < 0.6 or 0.7 < drawn < 0.8:
                self._stray()
            self._end(is_commit=is_commit)

    def _stray(self) -> None:
        """Sends something late, and does not wait for it."""
        index = int(self._random() * self.world.options.partitions)
        value = self._new_value(index)
        self._written.strays.append(value)
        self.world.abandoned.add(value)
        self._is_unsettled = True
        delay_ms = int(self._random() * REST_MS)
        self.later(delay_ms, lambda: self.produce(index, value, lambda _answer: None))

    def _end(self, *, is_commit: bool) -> None:
        if self.is_stopped:
            return
        assert self._producer is not None
        self.world.counts.operations += 1
        self._ask_to_end(self._producer, is_commit, is_first=True)

    def _ask_to_end(self, producer: Producer, is_commit: bool, is_first: bool) -> None:
        self._written.is_asked |= is_commit
        end = End(
            transactional_id=self._name,
            producer=producer,
            is_commit=is_commit,
            client_version=self._version,
        )
        look = partial(self._oracle.end_answered, producer, is_commit)
        done = partial(self._ended, producer, is_commit, is_first)
        self.to_coordinator(lambda shard, reply: shard.end(end, reply), done, look)

    def _ended(
        self,
        producer: Producer,
        is_commit: bool,
        is_first: bool,
        answer: Producer | KafkaError | ErrorCode | None,
    ) -> None:
        if isinstance(answer, Producer):
            self._oracle.ended(self._written, is_commit=is_commit)
            if self.world.tracing is not None:
                verdict = "committed" if is_commit else "aborted"
                self.world.tracing(f"{self._name}: {self._written} is {verdict}")
            if self._is_unsettled and not self._is_newer:
                self.start()
            else:
                self._is_unsettled = False
                self._go_on_as(answer)
            return
        code = _code(answer)
        if code in FENCED or code in ABORTABLE:
            if is_first:
                self._written.is_asked = False
            self._fenced()
        else:
            again = partial(self._ask_to_end, producer, is_commit, is_first=False)
            self.later(RETRY_MS, again)


def _some(reply: Any) -> Any:
    """Nothing to complain of is an answer too."""
    return lambda error: reply(ErrorCode.none if error is None else error)


def _code(answer: KafkaError | ErrorCode | None) -> ErrorCode:
    if answer is None:
        return ErrorCode.network_exception
    return answer.code if isinstance(answer, KafkaError) else answer
