"""What clients of a log saw, and whether a log that keeps its promises can have shown it to them.

A history has a row for each operation: when it was asked, when it was answered, what came of it.
`check` looks at every partition by itself, in O(n log n), for the anomalies that `KINDS` names. The
rules are those of Jepsen's Kafka workload without transactions, and two more: offsets follow
real time, and what was read is still there at the end.

An operation that is answered by an error which leaves open whether it happened is `info`, not
`fail`: calling it failed would turn every record that survived into an anomaly.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Literal

Key = tuple[str, int]
Value = str | int
Outcome = Literal["ok", "fail", "info"]
Record = tuple[int, Value]

KINDS: Final = {
    "inconsistent-offsets": "one offset held two different records",
    "duplicate": "a record of an idempotent producer is at two offsets",
    "aborted-read": "a record was read whose writing had certainly failed",
    "unwritten": "a record was read that nobody wrote",
    "lost-write": "a record was skipped by every reader, though some read beyond it",
    "unseen": "an acknowledged record is not in the log at the end",
    "vanished": "a record that somebody read is not in the log at the end",
    "poll-skip": "a reader's next answer left something out",
    "nonmonotonic-poll": "a reader's next answer went back",
    "int-poll-skip": "one answer left something out",
    "int-nonmonotonic-poll": "one answer went back",
    "nonmonotonic-send": "a later record of a producer is before an earlier one",
    "int-nonmonotonic-send": "records sent at once are not in order",
    "real-time-order": "a record is at an offset that was known before it was sent",
    "acknowledged-not-read": "an answer leaves out what was acknowledged before it was asked for",
    "stale-end": "the log was said to end before a record that had been acknowledged",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Send:
    """Records written by one producer, in order. A value occurs in one send only."""

    process: str
    key: Key
    invoked: int
    completed: int
    outcome: Outcome
    values: tuple[Value, ...]
    offsets: tuple[int, ...] = ()
    """Where the records are, if the answer said so."""
    is_durable: bool = True
    """Asked for acks=all: otherwise it may be lost, though never changed once it was read."""
    is_idempotent: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Poll:
    process: str
    key: Key
    invoked: int
    completed: int
    records: tuple[Record, ...]
    outcome: Outcome = "ok"
    start: int | None = None
    """The offset that was asked for, if it is known."""
    is_final: bool = False
    """By a reader that was made after everything had healed, and read all there is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assign:
    """From here on the process reads from somewhere else."""

    process: str
    key: Key
    invoked: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EndOffset:
    """What the end of the log was said to be."""

    process: str
    key: Key
    invoked: int
    completed: int
    offset: int


Operation = Send | Poll | Assign | EndOffset


@dataclass(frozen=True, slots=True, kw_only=True)
class Anomaly:
    kind: str
    key: Key
    offset: int | None
    operations: tuple[Operation, ...]

    def __str__(self) -> str:
        topic, partition = self.key
        at = "" if self.offset is None else f" at offset {self.offset}"
        rows = "".join(f"\n    {operation}" for operation in self.operations)
        return f"{self.kind}: {KINDS[self.kind]}: {topic}-{partition}{at}{rows}"


def check(history: Iterable[Operation]) -> list[Anomaly]:
    """Everything that is wrong with it; empty for a history that may have been."""
    by_key: dict[Key, list[Operation]] = defaultdict(list)
    for operation in history:
        by_key[operation.key].append(operation)
    return [anomaly for key in sorted(by_key) for anomaly in _Partition(by_key[key]).anomalies()]


class _Partition:
    """The operations on one partition, and the log they let us conclude."""

    def __init__(self, operations: list[Operation]) -> None:
        self._key = operations[0].key
        self._operations = sorted(operations, key=lambda operation: operation.invoked)
        self._sends = [one for one in self._operations if isinstance(one, Send)]
        self._polls = [one for one in self._operations if isinstance(one, Poll)]
        self._writers: dict[Value, Send] = {}
        self._readers: dict[Value, Poll] = {}
        self._seen: dict[int, dict[Value, Operation]] = defaultdict(dict)
        """By offset, what is known to have been there, and from whom."""
        self._places: dict[Value, list[int]] = defaultdict(list)
        self._note_sends_and_polls()
        self._offsets = sorted(self._seen)
        self._index = {offset: index for index, offset in enumerate(self._offsets)}

    def _note_sends_and_polls(self) -> None:
        for send in self._sends:
            for value in send.values:
                assert value not in self._writers, f"{value} is sent once only"
                self._writers[value] = send
        for poll in self._polls:
            for offset, value in poll.records:
                if poll.outcome == "ok":
                    self._readers.setdefault(value, poll)
                self._note(offset, value, poll)
        for send in self._sends:
            if self._is_committed(send) and send.is_durable:
                for offset, value in zip(send.offsets, send.values, strict=False):
                    self._note(offset, value, send)

    def _note(self, offset: int, value: Value, source: Operation) -> None:
        if value not in self._seen[offset]:
            self._seen[offset][value] = source
            self._places[value].append(offset)

    def _is_committed(self, send: Send) -> bool:
        if send.outcome == "info":
            return any(value in self._readers for value in send.values)
        return send.outcome == "ok"

    def anomalies(self) -> Iterator[Anomaly]:
        yield from self._two_at_one_offset()
        yield from self._one_at_two_offsets()
        yield from self._reads_of_what_was_not_written()
        yield from self._lost_writes()
        yield from self._missing_at_the_end()
        yield from self._order_of_polls()
        yield from self._order_of_sends()
        yield from self._left_out_of_answers()
        yield from self._against_real_time()

    def _anomaly(self, kind: str, offset: int | None, *operations: Operation | None) -> Anomaly:
        told = tuple(operation for operation in operations if operation is not None)
        return Anomaly(kind=kind, key=self._key, offset=offset, operations=told)

    def _two_at_one_offset(self) -> Iterator[Anomaly]:
        for offset in self._offsets:
            if len(self._seen[offset]) > 1:
                yield self._anomaly("inconsistent-offsets", offset, *self._seen[offset].values())

    def _one_at_two_offsets(self) -> Iterator[Anomaly]:
        for value, places in self._places.items():
            writer = self._writers.get(value)
            if len(places) > 1 and (writer is None or writer.is_idempotent):
                sources = [self._seen[offset][value] for offset in places]
                yield self._anomaly("duplicate", max(places), writer, *sources)

    def _reads_of_what_was_not_written(self) -> Iterator[Anomaly]:
        for value, reader in self._readers.items():
            writer = self._writers.get(value)
            if writer is None:
                yield self._anomaly("unwritten", self._places[value][0], reader)
            elif writer.outcome == "fail":
                yield self._anomaly("aborted-read", self._places[value][0], writer, reader)

    def _lost_writes(self) -> Iterator[Anomaly]:
        """Only what is before something that was read can be called lost while the log grows."""
        bound = max((min(self._places[value]) for value in self._readers), default=-1)
        for send in self._sends:
            if not (send.is_durable and self._is_committed(send)):
                continue
            for value in send.values:
                places = self._places.get(value)
                if places and max(places) <= bound and value not in self._readers:
                    yield self._anomaly("lost-write", max(places), send)

    def _missing_at_the_end(self) -> Iterator[Anomaly]:
        finals: dict[str, set[Value]] = defaultdict(set)
        for poll in self._polls:
            if poll.is_final:
                finals[poll.process].update(value for _, value in poll.records)
        for found in finals.values():
            for send in self._sends:
                if send.outcome == "ok" and send.is_durable and not found.issuperset(send.values):
                    yield self._anomaly("unseen", min(send.offsets, default=None), send)
            for value, reader in self._readers.items():
                if value not in found:
                    yield self._anomaly("vanished", self._places[value][0], reader)

    def _order_of_polls(self) -> Iterator[Anomaly]:
        before: dict[str, Poll] = {}
        for one in self._operations:
            if isinstance(one, Assign):
                before.pop(one.process, None)
            elif isinstance(one, Poll) and one.records:
                yield from self._steps("int-", [offset for offset, _ in one.records], one)
                last = before.get(one.process)
                if last is not None:
                    ends = [last.records[-1][0], one.records[0][0]]
                    yield from self._steps("", ends, last, one)
                before[one.process] = one

    def _steps(self, prefix: str, offsets: list[int], *polls: Poll) -> Iterator[Anomaly]:
        for offset, following in pairwise(offsets):
            step = self._index[following] - self._index[offset]
            if step != 1:
                kind = f"{prefix}{'poll-skip' if step > 1 else 'nonmonotonic-poll'}"
                yield self._anomaly(kind, following, *polls)

    def _order_of_sends(self) -> Iterator[Anomaly]:
        before: dict[str, Send] = {}
        for send in self._sends:
            if send.outcome != "ok" or not send.is_idempotent or not send.offsets:
                continue
            for offset, following in pairwise(send.offsets):
                if following <= offset:
                    yield self._anomaly("int-nonmonotonic-send", following, send)
            last = before.get(send.process)
            if last is not None and send.offsets[0] <= last.offsets[-1]:
                yield self._anomaly("nonmonotonic-send", send.offsets[0], last, send)
            before[send.process] = send

    def _left_out_of_answers(self) -> Iterator[Anomaly]:
        acknowledged = {
            offset: send
            for send in self._sends
            if send.outcome == "ok" and send.is_durable
            for offset in send.offsets
        }
        for poll in self._polls:
            if poll.start is None or not poll.records or poll.outcome != "ok":
                continue
            told = {offset for offset, _ in poll.records}
            first, last = bisect_left(self._offsets, poll.start), self._index[max(told)]
            for offset in self._offsets[first:last]:
                send = acknowledged.get(offset)
                if offset not in told and send is not None and send.completed < poll.invoked:
                    yield self._anomaly("acknowledged-not-read", offset, send, poll)
                    break

    def _against_real_time(self) -> Iterator[Anomaly]:
        """Goes through all moments in order, knowing at each how far the log was known to reach."""
        known: tuple[int, Operation | None] = (-1, None)
        acknowledged: tuple[int, Operation | None] = (-1, None)
        for _, is_answer, number in self._moments():
            one = self._operations[number]
            if is_answer:
                reached = (self._reached(one), one)
                known = max(known, reached, key=lambda pair: pair[0])
                if isinstance(one, Send):
                    acknowledged = max(acknowledged, reached, key=lambda pair: pair[0])
            elif isinstance(one, Send):
                place = min(self._places_of(one), default=None)
                if place is not None and place <= known[0]:
                    yield self._anomaly("real-time-order", place, known[1], one)
            elif isinstance(one, EndOffset) and one.offset <= acknowledged[0]:
                yield self._anomaly("stale-end", one.offset, acknowledged[1], one)

    def _moments(self) -> list[tuple[int, bool, int]]:
        """An answer at the very time of a question counts as after it: nothing is known then."""
        moments = []
        for number, one in enumerate(self._operations):
            if not isinstance(one, Assign):
                moments += [(one.invoked, False, number), (one.completed, True, number)]
        return sorted(moments)

    def _reached(self, one: Operation) -> int:
        """The last offset that is certain to exist once this was answered."""
        if isinstance(one, Poll):
            return max((offset for offset, _ in one.records), default=-1)
        if isinstance(one, Send) and one.outcome == "ok" and one.is_durable:
            return max(one.offsets, default=-1)
        return -1

    def _places_of(self, send: Send) -> list[int]:
        if not send.is_durable or send.outcome == "fail":
            return []
        if send.outcome == "ok" and send.offsets:
            return list(send.offsets)
        return [offset for value in send.values for offset in self._places.get(value, ())]
