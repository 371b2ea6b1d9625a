"""The driver's part of writing exactly once: it decides what becomes of what tasks have prepared.

Each task has written its rows in a transaction of its own, and left it open. One record, committed
by one driver at a time, says which of them count for a batch: that is the moment at which the
batch is written. Everything after it only carries the decision out, and may be done again by
whoever comes next, however often: the same batch, run again, finds it and carries it out.
"""

import time
from typing import Final

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.client.client import Client
from tidelog.client.configs import Resource, describe_configs
from tidelog.client.errors import Unreachable
from tidelog.client.offsets import committed_by_groups
from tidelog.client.transacting import FENCED, OpenTransaction, begin, commit_offsets, end
from tidelog.client.transactions import TransactionFilter, list_transactions
from tidelog.spark.decisions import Decision, decision_in, group_of, prefix_of

_PAUSE_S: Final = 0.2
_TRANSACTION_MS: Final = 900_000
"""Kafka's own default, where a broker keeps it to itself."""


class Deciding:
    """For one query: a stream, or a series of batch writes."""

    def __init__(self, client: Client, query: str, patience_ms: int) -> None:
        self._client = client
        self._query = query
        self._patience_ms = patience_ms
        self._transaction_ms = transaction_ms_max(client)

    def commit(self, wanted: Decision, *, may_be_done: bool = False) -> Decision:
        """Decides for what was prepared, unless the batch was decided before; what was decided is
        carried out in either case, and returned. A later batch than this must not have been
        decided, unless that may be so because this one was written long ago."""
        driver, known = self._take_over()
        if known is not None and known.batch > wanted.batch:
            if not may_be_done:
                raise _overtaken(self._query, wanted.batch, known.batch)
            self._leave(wanted, but=known)
            return known
        if known is None or known.batch < wanted.batch:
            self._decide(driver, wanted)
            known = wanted
        self._carry_out(known)
        self._leave(wanted, but=known)
        self._sweep(known)
        return known

    def abort(self, unwanted: Decision) -> None:
        """Gives up what was prepared for a batch that has failed, unless it was decided, and what
        tasks have left that did not come to their end."""
        _, known = self._take_over()
        if known is None or known.batch < unwanted.batch:
            self._leave(unwanted, but=None)
        self._sweep(known)

    def _take_over(self) -> tuple[OpenTransaction, Decision | None]:
        """Keeps other drivers of the query from deciding, and only then looks what was decided."""
        driver = begin(self._client, group_of(self._query), self._transaction_ms)
        return driver, last_decision(self._client, self._query, stable_only=True)

    def _decide(self, driver: OpenTransaction, decision: Decision) -> None:
        commit_offsets(self._client, driver, group_of(self._query), decision.offsets())
        end(self._client, driver, is_commit=True)

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

    def _sweep(self, decided: Decision | None) -> None:
        """Aborts what copies of tasks, or earlier runs, have left open: readers would wait."""
        transactions = [] if decided is None else decided.transactions(self._query)
        kept = {one.transactional_id for one in transactions}
        prefix = prefix_of(self._query)
        for one in list_transactions(self._client, TransactionFilter(states=("Ongoing",))):
            if one.transactional_id.startswith(prefix) and one.transactional_id not in kept:
                begin(self._client, one.transactional_id, self._transaction_ms)

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
    group = group_of(query)
    found = committed_by_groups(client, [group], stable_only=stable_only)[group]
    if isinstance(found, KafkaError):
        raise found
    return decision_in(found)


def transaction_ms_max(client: Client) -> int:
    """How long brokers let a transaction be open."""
    broker = Resource("broker", str(min(client.cluster([]).brokers)))
    configs = describe_configs(client, [broker])[broker]
    if isinstance(configs, KafkaError):
        raise configs
    values = {one.name: one.value for one in configs}
    return int(values["transaction.max.timeout.ms"] or _TRANSACTION_MS)


def _overtaken(query: str, batch: int, decided: int) -> KafkaError:
    return KafkaError(
        ErrorCode.invalid_txn_state,
        f"query {query}: batch {batch} is to be written, but batch {decided} was already: another "
        f"driver runs on this checkpoint, or the checkpoint is an older copy",
    )
