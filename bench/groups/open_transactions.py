"""Whether a thousand open transactions are in the way of those who read another topic.

Fetches of ten partitions, each of which finds a record, by readers of all and of committed records:
with nothing open, with a thousand transactions open in other partitions, with them ended again,
and so on. The CPU of a fetch and how long it takes are compared within each pair.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from time import time
from typing import Any

from bench.groups.crowd import Link
from bench.groups.place import Place
from bench.load.contest import Figure, Loads, Row, rows, tell
from bench.load.frames import FETCH, Frame, Topic, batch, fetch
from bench.load.generator import Load, Stream
from bench.load.scenarios import (
    CPU_OF_REQUESTS,
    IN_FLIGHT,
    P50,
    one_record,
    settle,
    wanting,
)
from tidelog.base.errors import ErrorCode
from tidelog.records.reference import Record, encode_batch

TRANSACTIONS, PARTITIONS, FETCHED_PARTITIONS = 1000, 10, 10
WANTED = "<= 1.05"
_PRODUCE, _INIT_PRODUCER_ID, _ADD_PARTITIONS, _END_TXN = 0, 22, 24, 26
_TIMEOUT_MS = 900_000
_READERS = {"all records": 0, "committed records": 1}
_OPEN, _NONE = "1,000 open", "none open"


@dataclass(slots=True)
class Transaction:
    transactional_id: str
    producer_id: int
    epoch: int
    sequence: int = 0


class Transactions:
    """Producers with ids of their own, and what they have open."""

    def __init__(self, link: Link, topic: Topic) -> None:
        self._link, self._topic = link, topic
        self._all: list[Transaction] = []
        self._is_open = False

    def become(self, *, is_open: bool) -> None:
        if is_open != self._is_open:
            self._begin() if is_open else self._end()
            self._is_open = is_open

    def _begin(self) -> None:
        """Each writes a record to one of the partitions."""
        if not self._all:
            self._all = [self._new(f"bench-{number}") for number in range(TRANSACTIONS)]
        for number, one in enumerate(self._all):
            self._write(one, number % PARTITIONS)

    def _end(self) -> None:
        for one in self._all:
            values = {**_named(one), "committed": True}
            _check("EndTxn", self._link.ask(_END_TXN, 3, values).error_code)

    def _new(self, name: str) -> Transaction:
        values = {
            "transactional_id": name,
            "transaction_timeout": _TIMEOUT_MS,
            "producer_id": -1,
            "producer_epoch": -1,
        }
        answer = self._link.ask(_INIT_PRODUCER_ID, 4, values)
        _check("InitProducerId", answer.error_code)
        return Transaction(name, answer.producer_id, answer.producer_epoch)

    def _write(self, one: Transaction, partition: int) -> None:
        topics = [{"name": self._topic.name, "partitions": [partition]}]
        fields = {f"v3_and_below_{name}": value for name, value in _named(one).items()}
        code = ErrorCode.concurrent_transactions
        while code is ErrorCode.concurrent_transactions:
            # Markers of the one before may still be on their way.
            added = self._link.ask(
                _ADD_PARTITIONS, 3, {**fields, "v3_and_below_topics": topics}
            ).results_by_topic_v3_and_below
            code = added[0].results_by_partition[0].partition_error_code
        _check("AddPartitionsToTxn", code)
        written = self._link.ask(_PRODUCE, 9, self._production(one, partition))
        _check("Produce", written.responses[0].partition_responses[0].error_code)
        one.sequence += 1

    def _production(self, one: Transaction, partition: int) -> dict[str, Any]:
        data = encode_batch(
            [Record(offset=0, timestamp=int(time() * 1000), value=bytes(100))],
            producer_id=one.producer_id,
            producer_epoch=one.epoch,
            base_sequence=one.sequence,
            transactional=True,
        )
        rows = [{"index": partition, "records": bytes(data)}]
        return {
            "transactional_id": one.transactional_id,
            "acks": -1,
            "timeout": 30_000,
            "topic_data": [{"name": self._topic.name, "partition_data": rows}],
        }


def open_transactions(place: Place) -> list[Row]:
    frames = _fetches(place)
    loads: dict[str, Loads] = {reader: {_OPEN: [], _NONE: []} for reader in frames}
    for frame in frames.values():
        _measured(place, frame)
    with place.link() as link:
        transactions = Transactions(link, place.side.new_topic(PARTITIONS))
        for number in range(place.effort.rounds):
            tell(f"open transactions, round {number + 1}")
            # Each round begins as the last one ended.
            for state in ((_OPEN, _NONE), (_NONE, _OPEN))[number % 2 == 0]:
                transactions.become(is_open=state == _OPEN)
                # Markers of what has ended are written after the answers.
                place.await_idle()
                for reader, frame in frames.items():
                    load = _measured(place, frame)
                    tell(f"{reader}, {state}: {load.cpu_us:.0f} µs of CPU a fetch")
                    loads[reader][state].append(load)
        transactions.become(is_open=False)
    figures: Sequence[Figure] = (wanting(CPU_OF_REQUESTS, WANTED), wanting(P50, WANTED))
    return [
        found
        for reader in frames
        for found in rows(
            f"fetches of {reader} elsewhere, 1,000 transactions open", loads[reader], *figures
        )
    ]


def _fetches(place: Place) -> dict[str, Frame]:
    topic = place.side.new_topic(FETCHED_PARTITIONS)
    settle(place.side, one_record(place.side, topic, FETCHED_PARTITIONS))
    version, size = place.side.target.versions[FETCH], len(batch(100))
    return {
        reader: fetch(topic, FETCHED_PARTITIONS, size, version, isolation)
        for reader, isolation in _READERS.items()
    }


def _measured(place: Place, frame: Frame) -> Load:
    stream = Stream(name="fetches", frames=[frame], in_flight=IN_FLIGHT)
    return place.side.run(stream, seconds=place.effort.seconds)[0]


def _named(one: Transaction) -> dict[str, Any]:
    return {
        "transactional_id": one.transactional_id,
        "producer_id": one.producer_id,
        "producer_epoch": one.epoch,
    }


def _check(what: str, code: ErrorCode) -> None:
    if code is not ErrorCode.none:
        raise RuntimeError(f"{what} of a transaction: {code.name}")
