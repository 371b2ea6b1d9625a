"""Clients that write and read throughout a test, and note all they saw as a history.

Producers are idempotent and ask for acks=all; each sends to every partition in turn, values that
occur once. Readers have all partitions assigned from the first offset, in no group. Nothing is
given up while a fault lasts: a record is sent again by the client until it is acknowledged.
`settle` ends it: everything is acknowledged, read to the end, and read again from the beginning by
new clients; `history` then has all of it.
"""

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import pairwise
from threading import Event, Lock, Thread
from typing import Any, Final

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)

from support.history_checker import Anomaly, Assign, EndOffset, Key, Operation, Poll, Send, check
from support.log_ends import log_end

PAUSE_S: Final = 0.01
LINGER_MS: Final = 15
"""Shorter, and a client with all its requests under way would burn a core waiting for one."""
UNANSWERED_MAX: Final = 400
SETTLE_SECONDS_MAX: Final = 60.0
WRONG_FOR_READERS: Final = (
    KafkaError.OFFSET_OUT_OF_RANGE,
    KafkaError._AUTO_OFFSET_RESET,
    KafkaError._LOG_TRUNCATION,
    KafkaError._BAD_MSG,
)
PATIENT: Final = {
    "log_level": 0,
    "socket.timeout.ms": 3000,
    "topic.metadata.refresh.interval.ms": 500,
    "reconnect.backoff.max.ms": 250,
}
"""A client finds out within seconds that its broker is silent, or leads no longer, and does not
say so each time."""


def now() -> int:
    return time.monotonic_ns()


class Writer:
    """One producer in a thread of its own."""

    def __init__(self, name: str, bootstrap: str, keys: Sequence[Key], **settings: Any) -> None:
        self._name = name
        self._keys = keys
        self._count = 0
        self._is_durable = settings.get("acks", "all") == "all"
        self._is_idempotent = settings.setdefault("enable.idempotence", True)
        self._lock = Lock()
        self._pending: dict[str, tuple[Key, int]] = {}
        self.sends: list[Send] = []
        self.errors: list[str] = []
        self.pause_s = PAUSE_S
        self._ended = Event()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "linger.ms": LINGER_MS,
                "message.timeout.ms": 240_000,
                "request.timeout.ms": 3000,
                "error_cb": self._failed,
                **PATIENT,
                **settings,
            }
        )
        self._thread = Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, seconds_max: float = SETTLE_SECONDS_MAX) -> int:
        """Sends nothing more, waits for the answers; how many records remain unanswered."""
        if self._ended.is_set():
            return 0
        self._ended.set()
        self._thread.join()
        left = self._flush(seconds_max)
        with self._lock:
            unanswered = list(self._pending.items())
        for value, (key, invoked) in unanswered:
            self._note(value, key, invoked, None)
        del self._producer
        return left

    def _flush(self, seconds_max: float) -> int:
        try:
            left: int = self._producer.flush(seconds_max)
        except KafkaException as error:
            self.errors.append(f"{self._name}: {error}")
            return len(self._pending)
        return left

    def _run(self) -> None:
        """Until it is ended, or the client has given up for good: then `errors` says why."""
        try:
            while not self._ended.wait(self.pause_s):
                for key in self._keys:
                    self._send(key)
                self._producer.poll(0)
                while len(self._pending) >= UNANSWERED_MAX and not self._ended.is_set():
                    self._producer.poll(0.05)
        except KafkaException as error:
            self.errors.append(f"{self._name}: {error}")

    def _send(self, key: Key) -> None:
        self._count += 1
        value = f"{self._name}-{self._count}"
        with self._lock:
            self._pending[value] = key, now()
        topic, partition = key
        report = partial(self._answered, value)
        self._producer.produce(topic, value.encode(), partition=partition, on_delivery=report)

    def _answered(self, value: str, error: Any, message: Any) -> None:
        with self._lock:
            key, invoked = self._pending.pop(value)
        if error is not None:
            self.errors.append(f"{self._name}: {value}: {error.name()}")
        self._note(value, key, invoked, message.offset() if error is None else None)

    def _note(self, value: str, key: Key, invoked: int, offset: int | None) -> None:
        """Without an offset nobody knows: what is reported at last may hide an earlier try."""
        self.sends.append(
            Send(
                process=self._name,
                key=key,
                invoked=invoked,
                completed=now(),
                outcome="info" if offset is None else "ok",
                values=(value,),
                offsets=() if offset is None else (offset,),
                is_durable=self._is_durable,
                is_idempotent=self._is_idempotent,
            )
        )

    def _failed(self, error: Any) -> None:
        if error.fatal():
            self.errors.append(f"{self._name}: fatal: {error.str()}")


class Reader:
    """One consumer, in a thread of its own or, for the last read, in the caller's."""

    def __init__(self, name: str, bootstrap: str, keys: Sequence[Key], **settings: Any) -> None:
        self.name = name
        self._keys = keys
        self.operations: list[Operation] = []
        self.errors: list[str] = []
        self.positions: dict[Key, int] = dict.fromkeys(keys, 0)
        self._is_final = False
        self._ended = Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "none",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "check.crcs": True,
                "fetch.wait.max.ms": 100,
                "fetch.error.backoff.ms": 50,
                **PATIENT,
                **settings,
            }
        )
        self._thread = Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._assign()
        self._thread.start()

    def _assign(self) -> None:
        for key in self._keys:
            self.operations.append(Assign(process=self.name, key=key, invoked=now()))
        self._consumer.assign([TopicPartition(t, p, OFFSET_BEGINNING) for t, p in self._keys])

    def stop(self) -> None:
        if not self._ended.is_set():
            self._ended.set()
            self._thread.join()
            self._consumer.close()

    def read_all(self, ends: Mapping[Key, int]) -> None:
        """From the first offset to these, as one who comes when everything is over."""
        self._is_final = True
        self._assign()
        deadline = time.monotonic() + SETTLE_SECONDS_MAX
        while any(self.positions[key] < end for key, end in ends.items()):
            if time.monotonic() > deadline:
                self.errors.append(f"{self.name}: got to {self.positions} instead of {ends}")
                break
            self._poll()
        self._consumer.close()

    def _run(self) -> None:
        while not self._ended.is_set():
            self._poll()

    def _poll(self) -> None:
        invoked = now()
        found: dict[Key, list[tuple[int, str]]] = defaultdict(list)
        for message in self._consumer.consume(1000, 0.05):
            if message.error() is None:
                key = (message.topic(), message.partition())
                found[key].append((message.offset(), message.value().decode()))
            elif message.error().code() in WRONG_FOR_READERS:
                self.errors.append(f"{self.name}: {message.error()}")
        completed = now()
        for key, records in found.items():
            start, self.positions[key] = self.positions[key], records[-1][0] + 1
            self.operations.append(
                Poll(
                    process=self.name,
                    key=key,
                    invoked=invoked,
                    completed=completed,
                    records=tuple(records),
                    start=start,
                    is_final=self._is_final,
                )
            )


class Workload:
    def __init__(
        self, bootstrap: str, topic: str, partitions: int, writers: int = 2, readers: int = 2
    ) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self.keys = [(topic, index) for index in range(partitions)]
        self.writers = [Writer(f"p{n}", bootstrap, self.keys) for n in range(writers)]
        self.readers = [Reader(f"c{n}", bootstrap, self.keys) for n in range(readers)]
        self.notes: list[Operation] = []
        """What else belongs to the history."""
        self.errors: list[str] = []

    def start(self) -> None:
        for reader in self.readers:
            reader.start()
        for writer in self.writers:
            writer.start()

    def acknowledged(self, since: int, key: Key) -> float | None:
        """Seconds from then to the first answer to a record that was sent to the partition after
        it; None while there is none."""
        answers = [
            send.completed
            for writer in self.writers
            for send in reversed(writer.sends)
            if send.key == key and send.outcome == "ok" and send.invoked >= since
        ]
        return (min(answers) - since) / 1e9 if answers else None

    def back_after(self, since: int, seconds_max: float = 90.0) -> float:
        """Waits until every partition takes records again; seconds from `since` until the last of
        them did."""
        found: dict[Key, float] = {}
        while len(found) < len(self.keys):
            for key in self.keys:
                seconds = self.acknowledged(since, key) if key not in found else None
                if seconds is not None:
                    found[key] = seconds
            missing = [key for key in self.keys if key not in found]
            is_late = now() - since > seconds_max * 1e9
            errors = [error for writer in self.writers for error in writer.errors]
            why = f"no record is acknowledged by {missing}: {errors[:3]}"
            assert not is_late, why
            assert not errors, why
            time.sleep(0.01)
        return max(found.values())

    def longest_pause(self, since: int) -> float:
        """The longest time in seconds, from `since` until now, without an answer from one of the
        partitions."""
        longest, until = 0, now()
        for key in self.keys:
            answers = [
                send.completed
                for writer in self.writers
                for send in list(writer.sends)
                if send.key == key and send.outcome == "ok" and since < send.completed < until
            ]
            moments = [since, *sorted(answers), until]
            longest = max(longest, *(later - sooner for sooner, later in pairwise(moments)))
        return longest / 1e9

    def settle(self) -> None:
        for writer in self.writers:
            writer.stop()
        ends = self.ends()
        deadline = time.monotonic() + SETTLE_SECONDS_MAX
        while time.monotonic() < deadline and not all(
            reader.positions[key] >= ends[key] for reader in self.readers for key in self.keys
        ):
            time.sleep(0.02)
        for reader in self.readers:
            reader.stop()
            if any(reader.positions[key] < ends[key] for key in self.keys):
                self.errors.append(f"{reader.name}: got to {reader.positions} instead of {ends}")
        last = Reader("final", self._bootstrap, self.keys)
        last.read_all(ends)
        self.notes += last.operations
        clients: list[Writer | Reader] = [*self.writers, *self.readers, last]
        self.errors += [error for one in clients for error in one.errors]

    def abandon(self) -> None:
        """For a test that has failed: nobody goes on writing or reading."""
        for writer in self.writers:
            writer.stop(0)
        for reader in self.readers:
            reader.stop()

    def ends(self) -> dict[Key, int]:
        """The high watermark of each partition, which is also a row of the history."""
        asking = Consumer({"bootstrap.servers": self._bootstrap, "group.id": "none", **PATIENT})
        found = {}
        for topic, partition in self.keys:
            invoked, place = now(), TopicPartition(topic, partition)
            offset = log_end(asking, place)
            row = EndOffset(
                process="ends",
                key=(topic, partition),
                invoked=invoked,
                completed=now(),
                offset=offset,
            )
            self.notes.append(row)
            found[topic, partition] = offset
        asking.close()
        return found

    def history(self) -> list[Operation]:
        return [
            *(send for writer in self.writers for send in writer.sends),
            *(one for reader in self.readers for one in reader.operations),
            *self.notes,
        ]

    def anomalies(self) -> list[Anomaly]:
        return check(self.history())

    @property
    def acknowledged_count(self) -> int:
        return sum(send.outcome == "ok" for writer in self.writers for send in writer.sends)
