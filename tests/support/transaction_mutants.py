"""Rules of transactions switched off, one by one (V14, H8, X30)."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from tidelog import marker_appends
from tidelog.base.errors import KafkaError
from tidelog.base.journal import Committed, Entry
from tidelog.log.producers import FRESH, Producers
from tidelog.marker_sending import MarkerSender
from tidelog.serving.guards import Guards
from tidelog.transactions import transitions
from tidelog.transactions.ageing import Ageing
from tidelog.transactions.records import encode_key, encode_value
from tidelog.transactions.shard import TransactionShard
from tidelog.transactions.state import Transaction
from tidelog.transactions.surroundings import Ending
from tidelog.verification import Guarded, Question, Verification, Verified


def take_what_is_known_for_new(monkeypatch: pytest.MonkeyPatch) -> None:
    """A3: a batch whose answer was lost comes again, and is appended again."""
    check = Producers.check

    def check_only(self: Producers, *batch: int) -> int:
        check(self, *batch)
        return FRESH

    monkeypatch.setattr(Producers, "check", check_only)


# -- markers


def forget_the_marker_of_a_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    write = MarkerSender.write

    def forget(
        self: MarkerSender,
        ending: Ending,
        is_over: Callable[[], bool],
        done: Callable[[KafkaError | None], None],
    ) -> None:
        write(self, replace(ending, partitions=ending.partitions[:1]), is_over, done)

    monkeypatch.setattr(MarkerSender, "write", forget)


def give_a_partition_the_wrong_marker(monkeypatch: pytest.MonkeyPatch) -> None:
    write = MarkerSender.write

    def divide(
        self: MarkerSender,
        ending: Ending,
        is_over: Callable[[], bool],
        done: Callable[[KafkaError | None], None],
    ) -> None:
        first, rest = ending.partitions[:1], ending.partitions[1:]
        right = replace(ending, partitions=first)
        wrong = replace(ending, partitions=rest, is_commit=not ending.is_commit)
        write(self, right, is_over, lambda _error: write(self, wrong, is_over, done))

    monkeypatch.setattr(MarkerSender, "write", divide)


def mark_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """A marker that comes again ends what has begun since."""
    monkeypatch.setattr(marker_appends, "EPOCH_RAISED_FROM", 99)


def leave_the_guards(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was verified before a marker came is taken after it."""
    monkeypatch.setattr(Guards, "marker_comes", lambda *_arguments: None)


def take_markers_of_any_coordinator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Producers, "check_coordinator", lambda *_arguments: None)


# -- who may write


def fence_nobody_at_the_coordinator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transitions, "_check_epoch", lambda *_arguments: None)


def verify_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def admit(
        _self: Verification, _partition: Guarded, _question: Question, verified: Verified
    ) -> None:
        verified(None)

    monkeypatch.setattr(Verification, "admit", admit)


# -- what readers see


def show_open_transactions(monkeypatch: pytest.MonkeyPatch) -> None:
    def find(self: Producers) -> None:
        self.first_unstable_offset = min((first for first, _ in self.undecided), default=None)

    monkeypatch.setattr(Producers, "_find_unstable", find)


def trust_uncommitted_markers(monkeypatch: pytest.MonkeyPatch) -> None:
    def find(self: Producers) -> None:
        self.first_unstable_offset = min(self._open, default=None)

    monkeypatch.setattr(Producers, "_find_unstable", find)


# -- the coordinator


def answer_before_it_is_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    def append(
        self: TransactionShard, transaction: Transaction, committed: Committed, **_fit: bool
    ) -> None:
        updated = replace(transaction, updated_ms=self._around.clock.now_ms())
        entry = Entry(encode_key(updated.transactional_id), encode_value(updated))
        self._journal.append([entry], lambda _error: None)
        self._keep(updated)
        committed(None)

    monkeypatch.setattr(TransactionShard, "_append", append)


def complete_before_the_markers(monkeypatch: pytest.MonkeyPatch) -> None:
    write = MarkerSender.write

    def hurry(
        self: MarkerSender,
        ending: Ending,
        _is_over: Callable[[], bool],
        done: Callable[[KafkaError | None], None],
    ) -> None:
        write(self, ending, lambda: False, lambda _error: None)
        done(None)

    monkeypatch.setattr(MarkerSender, "write", hurry)


def pursue_nothing_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TransactionShard, "start", lambda self: self._ageing.start())


def let_transactions_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Ageing, "_abort", lambda _self: None)


def raise_no_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    """A producer that is shut out keeps its epoch, and so does not notice."""

    def fenced(transaction: Transaction) -> Transaction:
        return transitions._prepared(transaction, is_commit=False, client_version=0)

    monkeypatch.setattr(transitions, "fenced", fenced)
