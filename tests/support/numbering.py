"""An idempotent producer that writes 0, 1, 2 and so on to each partition, five requests under way.

Nothing else is written there, so each number must be at the offset of its own value: one that is
lost, or there twice, or out of its turn shifts all behind it. Both are looked at, what the producer
is told and what is read in the end.
"""

from threading import Event, Thread
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from support.cluster_processes import wait_until
from support.log_ends import log_end
from support.workload import PATIENT

BATCH_RECORDS: Final = 50
"""Small, so that there are always more of them than may be under way."""
QUEUED_MAX: Final = 40 * BATCH_RECORDS
SECONDS_MAX: Final = 120.0


class Numbering:
    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._next = [0] * partitions
        self._allowed = 0
        self.acknowledged = 0
        self.wrong: list[str] = []
        self._ended = Event()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "max.in.flight.requests.per.connection": 5,
                "batch.num.messages": BATCH_RECORDS,
                "linger.ms": 5,
                "message.timeout.ms": 0,
                "request.timeout.ms": 3000,
                "error_cb": self._failed,
                "on_delivery": self._delivered,
                **PATIENT,
            }
        )
        self._thread = Thread(target=self._run, name="numbering", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def allow(self, count: int) -> None:
        """So many records are written, in all partitions together, and then it waits."""
        self._allowed = count

    def wait_until_acknowledged(self, count: int) -> None:
        def is_so() -> bool:
            assert not self.wrong, self.wrong[:5]
            return self.acknowledged >= count

        wait_until(is_so, f"{count} records are acknowledged", SECONDS_MAX)

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.is_set():
            if sum(self._next) >= self._allowed or len(self._producer) > QUEUED_MAX:
                self._producer.poll(0.01)
                continue
            for index in range(len(self._next)):
                for _ in range(BATCH_RECORDS):
                    self._write(index)
            self._producer.poll(0)

    def _write(self, index: int) -> None:
        self._producer.produce(self._topic, b"%d" % self._next[index], partition=index)
        self._next[index] += 1

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None or message.offset() != int(message.value()):
            said = error or f"at offset {message.offset()}"
            self.wrong.append(f"{message.partition()}: {message.value()}: {said}")
        self.acknowledged += 1

    def _failed(self, error: Any) -> None:
        if error.fatal():
            self.wrong.append(f"fatal: {error.str()}")

    def check(self) -> None:
        """All that is there is what was written, each once and in its turn."""
        assert self.acknowledged == sum(self._next)
        assert not self.wrong, self.wrong[:5]
        reader = Consumer({"bootstrap.servers": self._bootstrap, "group.id": "none", **PATIENT})
        places = [
            TopicPartition(self._topic, index, OFFSET_BEGINNING) for index in range(len(self._next))
        ]
        reader.assign(places)
        found = [0] * len(self._next)

        def is_read() -> bool:
            for message in reader.consume(10_000, 0.1):
                assert message.error() is None, message.error()
                place = (message.partition(), message.offset(), int(message.value()))
                expected = found[message.partition()]
                assert place[1:] == (expected, expected), place
                found[message.partition()] += 1
            return found == self._next

        try:
            wait_until(is_read, "all is read", SECONDS_MAX)
            for place, count in zip(places, found, strict=True):
                end = log_end(reader, place)
                assert end == count, f"{place} ends at {end}, {count} were written"
        finally:
            reader.close()
