"""The transactions of all ids that belong to one partition of `__transaction_state`.

Every change is written to the journal first and counts from then on; whoever asked for it is
answered when it is committed. A transaction that is prepared to end is pursued until it has:
markers are written in its partitions, and then it is complete. Whoever leads the partition next
finds what was prepared, and goes on from there (A4).

What producers rely on is written also where nothing changes: that a transaction has ended, or has
a partition. A broker may not know yet that another coordinates the id by now, for which a later
transaction of the same producer is open; it cannot commit anything any more, though.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.base.ids import NO_TIMESTAMP, TopicPartition
from tidelog.base.journal import Committed, Entry, Journal, Origin
from tidelog.transactions import transitions
from tidelog.transactions.ageing import Ageing
from tidelog.transactions.errors import told
from tidelog.transactions.records import decode_key, decode_value, encode_key, encode_value
from tidelog.transactions.requests import Add, Added, Began, Begin, End, Ended, Wanted
from tidelog.transactions.state import PREPARED, Producer, Status, Transaction
from tidelog.transactions.surroundings import Ending, TransactionSurroundings

RETRY_MS: Final = 100
"""How soon what must go on is tried again."""


class TransactionShard:
    def __init__(self, journal: Journal, around: TransactionSurroundings) -> None:
        self._journal = journal
        self._around = around
        self._by_id: dict[str, Transaction] = {}
        self._ongoing: dict[str, None] = {}
        self._ageing = Ageing(self, around)
        self._is_over = False

    # -- what base.journal.Shard asks for

    def replay(self, entry: Entry, _origin: Origin) -> None:
        transactional_id = decode_key(entry.key)
        if transactional_id is None:
            return
        if entry.value is None:
            self._forget(transactional_id)
            return
        transaction = decode_value(transactional_id, entry.value)
        if transaction is not None:
            self._keep(transaction)

    def replay_marker(self, producer_id: int, producer_epoch: int, *, is_commit: bool) -> None:
        """Nothing in this journal is part of a transaction."""

    def start(self) -> None:
        """What was prepared elsewhere goes on here."""
        prepared = [each for each in self._by_id.values() if each.status in PREPARED]
        for transaction in prepared:
            self._journal.settle(partial(self._pursue, transaction))
        self._ageing.start()

    def stop(self) -> None:
        self._is_over = True
        self._ageing.stop()

    def topics_changed(self) -> None:
        """Whoever writes markers sees by himself which partitions there are."""

    # -- asking

    def begin(self, asked: Begin, done: Began) -> None:
        """InitProducerId."""
        try:
            self._check_timeout(asked)
            self._begin(asked, done)
        except KafkaError as error:
            done(told(error))

    def add_partitions(self, asked: Add, done: Added) -> None:
        """AddPartitionsToTxn, and AddOffsetsToTxn."""
        try:
            transaction = self._owned(asked)
            now_ms = self._around.clock.now_ms()
            grown = transitions.with_partitions(
                transaction, asked.partitions, asked.client_version, now_ms
            )
            self._append(grown, _answer(done), must_fit=grown is not transaction)
        except KafkaError as error:
            done(told(error))

    def verify_partitions(
        self, asked: Add, done: Callable[[list[TopicPartition] | KafkaError], None]
    ) -> None:
        """Tells which of some partitions are not part of the open transaction."""

        def settled(error: KafkaError | None) -> None:
            done(missing if error is None else told(error))

        try:
            transaction = self._owned(asked)
            held = frozenset(transaction.partitions)
            missing = [partition for partition in asked.partitions if partition not in held]
            if missing:
                self._journal.settle(settled)
            else:
                self._append(transaction, settled)
        except KafkaError as error:
            done(told(error))

    def end(self, asked: End, done: Ended) -> None:
        """EndTxn. It is answered when the outcome is decided; the markers follow."""
        try:
            transaction = self._find(asked.transactional_id)
            prepared = transitions.ended(
                transaction, asked.producer, asked.client_version, is_commit=asked.is_commit
            )
            if prepared is None:
                self._append(transaction, partial(_tell, done, transaction.producer))
            elif transitions.needs_next_id(prepared):
                self._around.next_producer_id(partial(self._end_rolling, asked, transaction, done))
            else:
                self._prepare(prepared, partial(_tell, done, prepared.producer))
        except KafkaError as error:
            done(told(error))

    def describe(
        self, transactional_id: str, done: Callable[[Transaction | KafkaError], None]
    ) -> None:
        transaction = self._by_id.get(transactional_id)
        if transaction is None:
            what = f"there is no transactional id {transactional_id}"
            done(KafkaError(ErrorCode.transactional_id_not_found, what))
            return
        self._journal.settle(
            lambda error: done(transaction if error is None else told(error)),
        )

    def select(
        self, wanted: Wanted, done: Callable[[list[Transaction] | KafkaError], None]
    ) -> None:
        """ListTransactions."""
        now_ms = self._around.clock.now_ms()
        found = [each for each in self._by_id.values() if wanted.takes(each, now_ms)]
        self._journal.settle(
            lambda error: done(found if error is None else told(error)),
        )

    # -- a producer begins

    def _check_timeout(self, asked: Begin) -> None:
        max_ms = self._around.settings().whole("transaction.max.timeout.ms")
        if not 0 < asked.timeout_ms <= max_ms:
            raise KafkaError(
                ErrorCode.invalid_transaction_timeout,
                f"a transaction of {asked.timeout_ms} ms, where transaction.max.timeout.ms is "
                f"{max_ms}",
            )

    def _begin(self, asked: Begin, done: Began) -> None:
        transaction = self._by_id.get(asked.transactional_id)
        if transaction is None:
            self._around.next_producer_id(partial(self._begin_under, asked, None, done))
            return
        transitions.check_expected(transaction, asked.expected)
        if transaction.status is Status.Ongoing:
            self._prepare(transitions.fenced(transaction), partial(_come_again, transaction, done))
        elif transaction.status in PREPARED:
            _come_again(transaction, done, None)
        elif transitions.needs_new_id(transaction, asked.expected):
            self._around.next_producer_id(partial(self._begin_under, asked, transaction, done))
        else:
            begun = transitions.begun(transaction, asked.expected)
            self._give(replace(begun, timeout_ms=asked.timeout_ms), done)

    def _begin_under(
        self, asked: Begin, before: Transaction | None, done: Began, new_id: int | KafkaError
    ) -> None:
        """There is a producer id, unless things have changed while it was fetched."""
        try:
            if self._is_over:
                raise self._not_here()
            if isinstance(new_id, KafkaError):
                raise new_id
            if self._by_id.get(asked.transactional_id) is not before:
                self._begin(asked, done)
            elif before is None:
                self._give(_new(asked, new_id), done)
            else:
                begun = transitions.begun_anew(before, new_id, asked.expected)
                self._give(replace(begun, timeout_ms=asked.timeout_ms), done)
        except KafkaError as error:
            done(told(error))

    def _give(self, begun: Transaction, done: Began) -> None:
        self._append(begun, partial(_tell, done, begun.producer), must_fit=True)

    # -- a transaction ends

    def _end_rolling(
        self, asked: End, before: Transaction, done: Ended, new_id: int | KafkaError
    ) -> None:
        """The producer id is used up: the next transaction will have another one."""
        try:
            if self._is_over:
                raise self._not_here()
            if isinstance(new_id, KafkaError):
                raise new_id
            if self._by_id.get(asked.transactional_id) is not before:
                self.end(asked, done)
                return
            prepared = transitions.ended(
                before, asked.producer, asked.client_version, is_commit=asked.is_commit
            )
            assert prepared is not None, "it was to be prepared before, and has not changed"
            rolling = replace(prepared, next_producer_id=new_id)
            self._prepare(rolling, partial(_tell, done, transitions.completed(rolling).producer))
        except KafkaError as error:
            done(told(error))

    def _prepare(self, prepared: Transaction, committed: Committed) -> None:
        """Writes down how a transaction ends; from then on that is pursued."""
        if prepared.started_ms == NO_TIMESTAMP:
            prepared = replace(prepared, started_ms=self._around.clock.now_ms())

        def end(error: KafkaError | None) -> None:
            committed(error)
            self._pursue(self._by_id[prepared.transactional_id], error)

        self._append(prepared, end)

    def _pursue(self, prepared: Transaction, error: KafkaError | None) -> None:
        """Has the markers written, as soon as what was prepared is committed."""
        if self._is_over or prepared.status not in PREPARED:
            return
        if error is not None:
            self._later(lambda: self._journal.settle(partial(self._pursue, prepared)))
            return
        ending = Ending(
            producer_id=prepared.producer_id,
            producer_epoch=prepared.producer_epoch,
            coordinator_epoch=self._journal.leader_epoch,
            is_commit=prepared.status is Status.PrepareCommit,
            transaction_version=prepared.client_version,
            partitions=prepared.partitions,
        )
        is_over = partial(self._is_past, prepared)
        self._around.markers.write(ending, is_over, partial(self._marked, prepared, ending))

    def _is_past(self, prepared: Transaction) -> bool:
        return self._is_over or self._by_id.get(prepared.transactional_id) is not prepared

    def _marked(self, prepared: Transaction, ending: Ending, error: KafkaError | None) -> None:
        if error is not None:
            self._shut_out(prepared, ending)
        elif not self._is_past(prepared):
            try:
                self._append(transitions.completed(prepared), lambda _error: None)
            except KafkaError:
                self._later(partial(self._marked, prepared, ending, None))

    def _shut_out(self, prepared: Transaction, ending: Ending) -> None:
        """Another coordinator has taken over, and pursues it. It may be over before this one has
        heard of it, which then leads on in a later epoch and has to end what is left."""
        if self._is_past(prepared):
            return
        if self._journal.leader_epoch > ending.coordinator_epoch:
            self._journal.settle(partial(self._pursue, prepared))
        else:
            self._later(partial(self._shut_out, prepared, ending))

    # -- ageing

    def ongoing(self) -> list[Transaction]:
        return [self._by_id[each] for each in self._ongoing]

    def ids(self) -> list[str]:
        return list(self._by_id)

    def find(self, transactional_id: str) -> Transaction | None:
        return self._by_id.get(transactional_id)

    def abort_timed_out(self, transaction: Transaction) -> None:
        """Aborts a transaction whose producer has not ended it in time, and shuts that out."""
        self._prepare(transitions.fenced(transaction), lambda _error: None)

    def expire(self, transactional_ids: Sequence[str]) -> None:
        """Forgets ids that nobody uses."""
        entries = [Entry(encode_key(each), None) for each in transactional_ids]
        self._journal.append(entries, lambda _error: None, must_fit=False)
        for each in transactional_ids:
            self._forget(each)

    # -- keeping

    def _find(self, transactional_id: str) -> Transaction:
        transaction = self._by_id.get(transactional_id)
        if transaction is None:
            what = f"there is no transactional id {transactional_id}"
            raise KafkaError(ErrorCode.invalid_producer_id_mapping, what)
        return transaction

    def _owned(self, asked: Add) -> Transaction:
        transaction = self._find(asked.transactional_id)
        transitions.check_owner(transaction, asked.producer)
        return transaction

    def _append(
        self, transaction: Transaction, committed: Committed, *, must_fit: bool = False
    ) -> None:
        """What was written once can end, also if batches have to be smaller by now."""
        updated = replace(transaction, updated_ms=self._around.clock.now_ms())
        entry = Entry(encode_key(updated.transactional_id), encode_value(updated))
        held = _Held(committed)
        self._journal.append([entry], held.end, must_fit=must_fit)
        self._keep(updated)
        held.release()

    def _keep(self, transaction: Transaction) -> None:
        self._by_id[transaction.transactional_id] = transaction
        if transaction.status is Status.Ongoing:
            self._ongoing[transaction.transactional_id] = None
        else:
            self._ongoing.pop(transaction.transactional_id, None)

    def _forget(self, transactional_id: str) -> None:
        self._by_id.pop(transactional_id, None)
        self._ongoing.pop(transactional_id, None)

    def _later(self, then: Callable[[], None]) -> None:
        at_ms = self._around.clock.monotonic_ms() + RETRY_MS
        self._around.loop.call_at(at_ms, lambda: None if self._is_over else then())

    def _not_here(self) -> KafkaError:
        what = f"__transaction_state-{self._journal.index} is led elsewhere now"
        return KafkaError(ErrorCode.not_coordinator, what)


class _Held:
    """Holds back that a change is committed until it counts here too."""

    __slots__ = ("_committed", "_error", "_is_ended", "_is_released")

    def __init__(self, committed: Committed) -> None:
        self._committed = committed
        self._error: KafkaError | None = None
        self._is_ended = False
        self._is_released = False

    def end(self, error: KafkaError | None) -> None:
        self._error = error
        self._is_ended = True
        if self._is_released:
            self._committed(error)

    def release(self) -> None:
        self._is_released = True
        if self._is_ended:
            self._committed(self._error)


def _new(asked: Begin, producer_id: int) -> Transaction:
    return Transaction(
        transactional_id=asked.transactional_id,
        producer_id=producer_id,
        producer_epoch=0,
        timeout_ms=asked.timeout_ms,
        status=Status.Empty,
        updated_ms=NO_TIMESTAMP,
    )


def _answer(done: Added) -> Committed:
    return lambda error: done(None if error is None else told(error))


def _tell(
    done: Callable[[Producer | KafkaError], None], producer: Producer, error: KafkaError | None
) -> None:
    done(producer if error is None else told(error))


def _come_again(transaction: Transaction, done: Began, error: KafkaError | None) -> None:
    """What the producer before has left open has to end first."""
    what = f"the last transaction of {transaction.transactional_id} is still ending"
    done(KafkaError(ErrorCode.concurrent_transactions, what) if error is None else told(error))
