"""The driver's part of writing exactly once: it decides what becomes of what tasks have prepared.

Each task has written its rows in a transaction of its own, and left it open. One record, committed
by one driver at a time, says which of them count for a batch: that is the moment at which the
batch is written. Everything after it only carries the decision out, and may be done again by
whoever comes next, however often: the same batch, run again, finds it and carries it out.
"""

import time
from dataclasses import replace
from typing import Final

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.base.ids import TopicPartition
from tidelog.client.client import Client
from tidelog.client.configs import Resource, describe_configs
from tidelog.client.coordinators import LATER
from tidelog.client.errors import Unreachable
from tidelog.client.leaders import PAUSE_MS
from tidelog.client.offsets import Committed, committed_by_groups
from tidelog.client.sockets import now_ms, pause_ms
from tidelog.client.transacting import FENCED, OpenTransaction, begin, commit_offsets, end
from tidelog.client.transactions import (
    Transaction,
    TransactionFilter,
    describe_transactions,
    list_transactions,
)
from tidelog.spark.decisions import (
    Decision,
    decision_in,
    end_of,
    group_of,
    group_of_ends,
    prefix_of,
)
from tidelog.spark.series import Numbers, group_of_numbers, numbers_in

_PAUSE_S: Final = 0.2
_TELLING_MS: Final = 1_000
_TRANSACTION_MS: Final = 900_000
"""Kafka's own default, where a broker keeps it to itself."""

Notes = dict[TopicPartition, tuple[int, str]]


class Deciding:
    """For one query: a stream, or a series of batch writes."""

    def __init__(self, client: Client, query: str, patience_ms: int) -> None:
        self._client = client
        self._query = query
        self._patience_ms = patience_ms
        self._transaction_ms = transaction_ms_max(client)

    def commit(self, wanted: Decision, *, in_series: bool = False) -> Decision:
        """Decides for what was prepared, unless the batch was decided before; what was decided is
        carried out in either case, and returned. A later batch than this must not have been
        decided, but in a series of batch writes this one may have been written long ago: then
        its tasks have found that out, and prepared nothing."""
        driver, known = self._take_over()
        numbers = self._numbers(known, stable_only=True) if in_series else None
        if known is not None and known.batch > wanted.batch:
            if numbers is None:
                raise _overtaken(self._query, wanted.batch, known.batch)
            if wanted.tasks or wanted.batch not in numbers:
                raise _out_of_order(self._query, wanted.batch, known.batch)
            return known
        if known is None or known.batch < wanted.batch:
            self._complete(known)
            self._check_open(wanted)
            self._decide(driver, wanted, known, numbers)
            known = wanted
        self._carry_out(known)
        self._leave(wanted, but=known)
        self._sweep(known)
        return known

    def abort(self, unwanted: Decision) -> None:
        """Gives up what was prepared for a batch that has failed, unless it was decided, and what
        tasks have left that did not come to their end. Some may still be at it: those that have
        begun are shut out, those that begin later find that their run was given up."""
        driver, known = self._take_over()
        self._note(driver, group_of_ends(self._query), end_of(unwanted.run))
        self._complete(known)
        if known is not None and known.batch < unwanted.batch:
            # It is over: its tasks' names may be those of tasks that have failed now.
            known = None
        if known is None:
            self._leave(unwanted, but=None)
        self._sweep(known, given_up=unwanted.run)

    def _take_over(self) -> tuple[OpenTransaction, Decision | None]:
        """Keeps other drivers of the query from deciding, and only then looks what was decided."""
        driver = begin(self._client, group_of(self._query), self._transaction_ms)
        return driver, last_decision(self._client, self._query, stable_only=True)

    def _check_open(self, prepared: Decision) -> None:
        """Nothing must be decided that can no longer be carried out."""
        expected = {one.transactional_id: one for one in prepared.transactions(self._query)}
        found = describe_transactions(self._client, expected)
        gone = [name for name, one in expected.items() if not _is_open(one, found[name])]
        if gone:
            raise KafkaError(
                ErrorCode.invalid_txn_state,
                f"query {self._query}, batch {prepared.batch}: what {', '.join(gone)} wrote was "
                f"given up before all of the batch was written, so none of it is: it took longer "
                f"than transaction.max.timeout.ms ({self._transaction_ms}), or another driver "
                f"runs on this checkpoint",
            )

    def _numbers(self, known: Decision | None, *, stable_only: bool) -> Numbers:
        """Which were written of a series. Of what was before the first note nobody knows better
        than that it was written."""
        found = _committed(self._client, group_of_numbers(self._query), stable_only=stable_only)
        numbers = numbers_in(one.metadata for one in found.values())
        if known is None or known.batch in numbers:
            return numbers
        return numbers.with_range(known.batch if found else 0, known.batch)

    def _decide(
        self,
        driver: OpenTransaction,
        wanted: Decision,
        known: Decision | None,
        numbers: Numbers | None,
    ) -> None:
        """All at once, and only if no other driver has taken over; who looks sees it then."""
        group = group_of(self._query)
        if numbers is not None:
            noted = numbers.with_range(wanted.batch, wanted.batch)
            commit_offsets(self._client, driver, group_of_numbers(self._query), noted.offsets())
        commit_offsets(self._client, driver, group, wanted.offsets())
        # Whoever takes that down is the group's coordinator. The one that was asked before may have
        # been replaced without knowing it, and then told of what was decided until then.
        is_known = last_decision(self._client, self._query) == known
        if numbers is not None:
            is_known = is_known and self._numbers(known, stable_only=False) == numbers
        if not is_known:
            raise KafkaError(
                ErrorCode.invalid_txn_state,
                f"query {self._query}, batch {wanted.batch}: a decision was made that the "
                "coordinator did not know of when it was asked; run the batch again",
            )
        self._end_note(driver, group)

    def _note(self, driver: OpenTransaction, group: str, offsets: Notes) -> None:
        commit_offsets(self._client, driver, group, offsets)
        self._end_note(driver, group)

    def _end_note(self, driver: OpenTransaction, group: str) -> None:
        end(self._client, driver, is_commit=True)
        _committed(self._client, group, stable_only=True)

    def _carry_out(self, decision: Decision) -> None:
        lost = []
        for transaction in decision.transactions(self._query):
            try:
                self._end(transaction, is_commit=True)
            except KafkaError as error:
                if error.code not in FENCED:
                    raise
                lost.append(transaction.transactional_id)
        if lost:
            raise KafkaError(
                ErrorCode.invalid_txn_state,
                f"query {self._query}, batch {decision.batch}: it was decided to commit what "
                f"{', '.join(lost)} wrote, but that had been given up by then: its rows are lost. "
                f"A driver must come back within transaction.max.timeout.ms",
            )

    def _complete(self, decision: Decision | None) -> None:
        """Carries out what is left to do of an earlier decision. Who made it may be gone, and in a
        series of batch writes nobody need come back to it; once another one is made, or what is
        open is given up, half of its rows would be lost."""
        if decision is None or not decision.tasks:
            return
        expected = decision.transactions(self._query)
        found = describe_transactions(self._client, [one.transactional_id for one in expected])
        left = tuple(
            task
            for task, one in zip(decision.tasks, expected, strict=True)
            if _is_open(one, found[one.transactional_id])
        )
        self._carry_out(replace(decision, tasks=left))

    def _leave(self, prepared: Decision, but: Decision | None) -> None:
        """Aborts what was prepared and is not part of another decision."""
        kept = [] if but is None else but.transactions(self._query)
        for transaction in prepared.transactions(self._query):
            if transaction not in kept:
                try:
                    self._end(transaction, is_commit=False)
                except KafkaError as error:
                    if error.code not in FENCED:
                        raise

    def _sweep(self, decided: Decision | None, given_up: str | None = None) -> None:
        """Aborts what copies of tasks, or earlier runs, have left open: readers would wait. Of a
        run that was given up it shuts out tasks that have not come to write anything, too."""
        transactions = [] if decided is None else decided.transactions(self._query)
        kept = {one.transactional_id for one in transactions}
        prefixes = {"Ongoing": prefix_of(self._query)}
        if given_up is not None:
            prefixes["Empty"] = prefix_of(self._query, given_up)
        for one in list_transactions(self._client, TransactionFilter(states=tuple(prefixes))):
            name = one.transactional_id
            if name.startswith(prefixes[one.state]) and name not in kept:
                begin(self._client, name, self._transaction_ms)

    def _end(self, transaction: OpenTransaction, *, is_commit: bool) -> None:
        """Until it is answered, however long brokers are away."""
        deadline = time.monotonic() + self._patience_ms / 1000
        while True:
            try:
                end(self._client, transaction, is_commit=is_commit)
                return
            except (Unreachable, KafkaError) as error:
                is_final = isinstance(error, KafkaError) and error.code in FENCED
                if is_final or time.monotonic() > deadline:
                    raise
                time.sleep(_PAUSE_S)


def last_decision(client: Client, query: str, *, stable_only: bool = False) -> Decision | None:
    """One that is being made is waited for, or does not count yet."""
    return decision_in(_committed(client, group_of(query), stable_only=stable_only))


def check_run(client: Client, query: str, run: str) -> None:
    """Raises if it was given up."""
    ends = _committed(client, group_of_ends(query), stable_only=False)
    if run in [one.metadata for one in ends.values()]:
        raise KafkaError(ErrorCode.invalid_txn_state, f"query {query}: run {run} was given up")


def _committed(client: Client, group: str, *, stable_only: bool) -> dict[TopicPartition, Committed]:
    found = committed_by_groups(client, [group], stable_only=stable_only)[group]
    if isinstance(found, KafkaError):
        raise found
    return found


def _is_open(expected: OpenTransaction, found: Transaction | KafkaError) -> bool:
    if isinstance(found, KafkaError):
        if found.code in FENCED:
            return False
        raise found
    is_same = (found.producer_id, found.producer_epoch) == expected.producer
    return is_same and found.state == "Ongoing"


def transaction_ms_max(client: Client) -> int:
    """How long brokers let a transaction be open, as the first of them says that answers: any may
    be away, and be counted among them until its session is over."""
    deadline_ms = now_ms() + client.timeout_ms
    patience_ms = _TELLING_MS
    trouble: Exception = KafkaError(ErrorCode.broker_not_available, "there are no brokers")
    while now_ms() <= deadline_ms:
        for broker in sorted(client.cluster([]).brokers):
            try:
                with client.within(patience_ms):
                    return _transaction_ms_of(client, broker)
            except (Unreachable, KafkaError) as error:
                if isinstance(error, KafkaError) and error.code not in LATER:
                    raise
                trouble = error
        patience_ms *= 2
        pause_ms(PAUSE_MS)
    raise trouble


def _transaction_ms_of(client: Client, broker: int) -> int:
    resource = Resource("broker", str(broker))
    configs = describe_configs(client, [resource])[resource]
    if isinstance(configs, KafkaError):
        raise configs
    values = {one.name: one.value for one in configs}
    return int(values["transaction.max.timeout.ms"] or _TRANSACTION_MS)


def _out_of_order(series: str, number: int, decided: int) -> KafkaError:
    return KafkaError(
        ErrorCode.invalid_txn_state,
        f"series {series}: number {number} is not written and cannot be, since number {decided} "
        "was: the numbers of a series must grow, and one writer at a time may write to it",
    )


def _overtaken(query: str, batch: int, decided: int) -> KafkaError:
    return KafkaError(
        ErrorCode.invalid_txn_state,
        f"query {query}: batch {batch} is to be written, but batch {decided} was already: another "
        f"driver runs on this checkpoint, or the checkpoint is an older copy",
    )
