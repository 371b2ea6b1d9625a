"""What must hold of transactions (V14): looked at in answers, in journals, and in what is read.

A client asks for a commit only once all it has written is acknowledged; so of its transaction
readers of committed records see all or nothing, all if it was told so, and nothing if it never
asked, or was refused. What such a reader is served is compared with what is decided by then.
"""

from collections.abc import Sequence
from typing import NamedTuple

from tidelog.transactions.records import decode_key, decode_value
from tidelog.transactions.state import COMPLETE, PREPARED, Producer, Status, Transaction
from tidelog.trials.counts import Counts
from tidelog.trials.decided import Decided
from tidelog.trials.journals import Batches
from tidelog.trials.oracle import Oracle
from tidelog.trials.stamped_log import Stamps
from tidelog.trials.violation import Violation

_COMMITTING = (Status.PrepareCommit, Status.CompleteCommit)


class Written:
    """A transaction, as its client knows it."""

    __slots__ = ("is_asked", "is_committed", "producer", "strays", "values")

    def __init__(self, producer: Producer) -> None:
        self.producer = producer
        self.values: list[int] = []
        self.strays: list[int] = []
        """Values that nobody waits for: of a committed transaction they may be part or not."""
        self.is_asked = False
        """Whether it may have been committed."""
        self.is_committed: bool | None = None
        """As the client was told."""

    def __str__(self) -> str:
        return f"the transaction of {tuple(self.producer)} with m{self.values}"


class _Decision(NamedTuple):
    producer: Producer
    is_commit: bool


class TransactionOracle:
    def __init__(
        self,
        partitions: Sequence[Oracle],
        journal: Oracle,
        batches: Batches,
        stamps: Stamps,
        counts: Counts,
    ) -> None:
        self._decided = [Decided(partition.committed, stamps) for partition in partitions]
        self._journal = journal
        self._batches = batches
        self._counts = counts
        self._seen = 0
        self._states: dict[str, Transaction] = {}
        self._decisions: set[_Decision] = set()
        """Those that are in the journal."""
        self._given: set[Producer] = set()
        self._written: list[Written] = []

    # -- what clients do

    def given(self, producer: Producer) -> None:
        """A client goes on under this; so does no other."""
        if producer in self._given:
            raise Violation("V14", f"two clients are {producer}")
        self._given.add(producer)

    def begin(self, producer: Producer) -> Written:
        written = Written(producer)
        self._written.append(written)
        return written

    def end_answered(
        self, producer: Producer, is_commit: bool, answer: object, _epoch: int
    ) -> None:
        """In the moment a coordinator tells that a transaction has ended."""
        if not isinstance(answer, Producer):
            return
        self.catch_up()
        for possible in (producer, answer):
            if _Decision(possible, is_commit) in self._decisions:
                return
        raise Violation("V14", f"the end of a transaction of {producer} is told and not committed")

    def ended(self, written: Written, *, is_commit: bool) -> None:
        """A client was told so."""
        written.is_committed = is_commit
        if is_commit:
            self._counts.transactions_committed += 1
        else:
            self._counts.transactions_aborted += 1

    def read(self, index: int, start: int, end: int, high_watermark: int, seen: list[int]) -> None:
        """A reader of committed records was served a range."""
        decided = self._decided[index]
        decided.catch_up()
        stable_end = decided.stable_end(high_watermark)
        if end > stable_end:
            raise Violation(
                "V14",
                f"partition {index}: a reader was served up to {end}, and a transaction is open "
                f"from {stable_end} on",
            )
        visible = decided.visible(start, end)
        if seen != visible:
            raise Violation(
                "V14", f"partition {index}: a reader from {start} saw {seen}, not {visible}"
            )

    # -- the journal

    def catch_up(self) -> None:
        committed = self._journal.committed
        for place in range(self._seen, len(committed)):
            for key, value in self._batches.get(committed[place][1]).entries:
                transactional_id = decode_key(key)
                assert transactional_id is not None
                assert value is not None, "nothing is forgotten here"
                transaction = decode_value(transactional_id, value)
                assert transaction is not None
                self._follow(transaction)
        self._seen = len(committed)

    def _follow(self, after: Transaction) -> None:
        before = self._states.get(after.transactional_id)
        self._states[after.transactional_id] = after
        if before is not None and before.status in PREPARED:
            is_same = (before.status in _COMMITTING) == (after.status in _COMMITTING)
            if after.status not in COMPLETE or not is_same:
                raise Violation("V14", f"{after} follows {before}")
        if after.status in PREPARED:
            is_commit = after.status is Status.PrepareCommit
            self._decisions.add(_Decision(after.producer, is_commit))
            has_timed_out = after.updated_ms > after.started_ms + after.timeout_ms
            self._counts.transactions_timed_out += has_timed_out and not is_commit

    # -- the end

    def unended(self) -> str | None:
        """What is still open."""
        self.catch_up()
        for transaction in self._states.values():
            if transaction.status is Status.Ongoing or transaction.status in PREPARED:
                return f"{transaction.transactional_id} is {transaction.status.name}"
        for index, decided in enumerate(self._decided):
            decided.catch_up()
            if decided.open_count():
                return f"partition {index} has {decided.open_count()} open transactions"
        return None

    def look_at_end(self) -> None:
        visible: set[int] = set()
        for decided in self._decided:
            decided.catch_up()
            visible.update(decided.visible(0, decided.end))
        for written in self._written:
            self._look_at(written, visible)

    def _look_at(self, written: Written, visible: set[int]) -> None:
        seen = [value for value in written.values if value in visible]
        if written.is_committed is False or not written.is_asked:
            if seen or any(value in visible for value in written.strays):
                raise Violation("V14", f"{written} was not committed, and m{seen} can be read")
        elif written.is_committed or seen:
            missing = [value for value in written.values if value not in visible]
            if missing:
                raise Violation("V14", f"{written} is committed, and m{missing} cannot be read")
