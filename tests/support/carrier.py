"""A program that carries records from one topic to another, each exactly once, until it is killed.

    carrier.py NOTES NAME BOOTSTRAP SOURCE TARGET GROUP

It is a static member of a group; its name there is its transactional id too. Each batch is one
transaction with the offsets of what was read; every few of them is written under the name of doom
first, and aborted. Where its clients cannot go on it begins anew, as it would after its own death.
So it does when a transaction gets nowhere: librdkafka waits for good, past any timeout, for a
coordinator of groups that has died (its issues 5511 and 5456).
"""

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import Any, Final, NoReturn

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from support.notes import Notes
from support.workload import PATIENT

DOOM: Final = "doomed-"
DOOMED_EVERY: Final = 4
BATCH_MAX: Final = 60
TRANSACTION_TIMEOUT_MS: Final = 8000
STALLED_S: Final = 4
BEGIN_S: Final = 30.0


class Carrier:
    def __init__(self, notes: Notes, arguments: list[str]) -> None:
        name, bootstrap, source, self._target, group = arguments
        self._notes = notes
        self._batch: list[Any] = []
        self._metadata: Any = None
        self._count = 0
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": name,
                "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
                "linger.ms": 5,
                **PATIENT,
            }
        )
        self._producer.init_transactions(BEGIN_S)
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "group.instance.id": name,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "session.timeout.ms": 3000,
                "heartbeat.interval.ms": 300,
                "fetch.wait.max.ms": 100,
                **PATIENT,
            }
        )
        changed = self._changed
        self._consumer.subscribe([source], on_assign=changed, on_revoke=changed, on_lost=changed)

    def _changed(self, consumer: Consumer, _: list[TopicPartition]) -> None:
        """What was read and not carried is read again by whoever has it now. Later the client
        may have left its group, and its offsets would be taken as anybody's."""
        self._batch.clear()
        self._metadata = consumer.consumer_group_metadata()

    def run(self) -> None:
        while True:
            self._gather()
            if self._batch:
                with _unless_stalled(self._notes):
                    self._carry()
                self._batch.clear()

    def _gather(self) -> None:
        ends = time.monotonic() + 0.1
        while len(self._batch) < BATCH_MAX and time.monotonic() < ends:
            message = self._consumer.poll(0.05)
            if message is None:
                continue
            if message.error() is None:
                self._batch.append(message)
            elif message.error().code() == KafkaError._FATAL:
                # A static member may be shut out by itself: after its session has timed out
                # librdkafka sends a heartbeat that names the instance and no member.
                _begin_anew(self._notes, str(message.error()))

    def _carry(self) -> None:
        self._count += 1
        is_doomed = self._count % DOOMED_EVERY == 0
        try:
            self._producer.begin_transaction()
            for message in self._batch:
                value = (DOOM if is_doomed else "") + message.value().decode()
                self._producer.produce(self._target, value, partition=message.partition())
            self._notes.add("began")
            if is_doomed:
                self._producer.flush(STALLED_S)
                self._undo()
                return
            self._notes.add("adds offsets")
            self._producer.send_offsets_to_transaction(self._next_offsets(), self._metadata)
            self._notes.add("commits")
            self._producer.commit_transaction()
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            self._notes.add("failed", why=str(error))
            self._undo()
        else:
            self._notes.add("carried", count=len(self._batch))

    def _next_offsets(self) -> list[TopicPartition]:
        ends = {(m.topic(), m.partition()): m.offset() + 1 for m in self._batch}
        return [TopicPartition(topic, index, end) for (topic, index), end in ends.items()]

    def _undo(self) -> None:
        """Goes back to what was committed."""
        self._notes.add("aborts")
        self._producer.abort_transaction()
        for found in self._consumer.committed(self._consumer.assignment(), STALLED_S):
            if found.error is not None:
                raise KafkaException(found.error)
            self._consumer.seek(TopicPartition(found.topic, found.partition, max(0, found.offset)))


@contextmanager
def _unless_stalled(notes: Notes) -> Iterator[None]:
    is_done = Event()
    Thread(target=_watch, args=(notes, is_done), daemon=True).start()
    try:
        yield
    finally:
        is_done.set()


def _watch(notes: Notes, is_done: Event) -> None:
    """In short steps, so that one that was frozen goes on when it wakes, as a zombie."""
    for _ in range(STALLED_S):
        if is_done.wait(1):
            return
    _begin_anew(notes, "stalled")


def _begin_anew(notes: Notes, why: str) -> NoReturn:
    """With nothing of what was there before, as the same process: it can be killed as ever."""
    notes.add("anew", why=why)
    os.execv(sys.executable, [sys.executable, *sys.argv])


def main(path: str, *arguments: str) -> None:
    notes = Notes(path)
    notes.add("begins")
    try:
        Carrier(notes, list(arguments)).run()
    except KafkaException as error:
        _begin_anew(notes, str(error))


if __name__ == "__main__":
    main(*sys.argv[1:])
