"""The step of the demo in which the node is killed in the middle of its work."""

from collections.abc import Callable
from threading import Event, Thread
from time import monotonic, perf_counter, sleep
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, Producer, TopicPartition

from tidelog.cli.demo_clients import QUIET, SECONDS_MAX, open_consumer
from tidelog.cli.demo_serving import PAYMENT_PARTITIONS, PAYMENTS, Play

WRITING_SECONDS: Final = 0.7
QUEUE_MAX: Final = 2_000


class Writer:
    """confluent-kafka, with acks=all, writing numbers for ever from its own thread."""

    def __init__(self, address: str) -> None:
        self.sent = 0
        self.acknowledged: dict[int, tuple[int, int]] = {}
        self.pause_seconds_max = 0.0
        self._last = perf_counter()
        self._producer = Producer(
            {
                "bootstrap.servers": address,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 1,
                "queue.buffering.max.messages": QUEUE_MAX,
                "retry.backoff.ms": 10,
                "retry.backoff.max.ms": 50,
                "reconnect.backoff.ms": 10,
                "reconnect.backoff.max.ms": 50,
            }
            | QUIET
        )
        self._is_over = Event()
        self._thread = Thread(target=self._write, daemon=True)
        self._thread.start()

    def finish(self) -> None:
        """Waits until all that was sent is acknowledged."""
        self._is_over.set()
        self._thread.join(SECONDS_MAX)
        assert len(self.acknowledged) == self.sent, "in the end all of it is acknowledged"

    def _write(self) -> None:
        while not self._is_over.is_set():
            try:
                self._producer.produce(
                    PAYMENTS,
                    b"payment %d" % self.sent,
                    partition=self.sent % PAYMENT_PARTITIONS,
                    on_delivery=self._delivered,
                )
                self.sent += 1
            except BufferError:
                self._producer.poll(0.01)
            self._producer.poll(0)
        self._producer.flush(SECONDS_MAX)

    def _delivered(self, error: Any, message: Any) -> None:
        assert error is None, error
        now = perf_counter()
        if self.acknowledged:
            self.pause_seconds_max = max(self.pause_seconds_max, now - self._last)
        self._last = now
        number = int(message.value().split()[1])
        self.acknowledged[number] = (message.partition(), message.offset())


def kill_the_node(play: Play) -> None:
    screen, node = play.screen, play.node
    screen.step("Crash: kill -9 in the middle of producing, and a new start")
    writer = Writer(play.address)
    _await(lambda: len(writer.acknowledged) > 0)
    sleep(WRITING_SECONDS)
    node.kill()
    before = len(writer.acknowledged)
    start_seconds = node.start()
    _await(lambda: len(writer.acknowledged) > before)
    sleep(WRITING_SECONDS)
    writer.finish()
    found = _everything(play)
    lost = [n for n, place in writer.acknowledged.items() if not _is_there(found, n, place)]
    assert lost == [], f"{len(lost)} acknowledged records were lost"
    assert sorted(found.values()) == list(range(writer.sent)), "each is there once"
    screen.table(
        ["acknowledged before", "and after", "found again", "twice", "started in", "pause"],
        [
            (
                before,
                writer.sent - before,
                len(found),
                len(found) - len(set(found.values())),
                f"{start_seconds * 1000:.0f} ms",
                f"{writer.pause_seconds_max * 1000:.0f} ms",
            )
        ],
    )
    screen.notice(
        "Every acknowledged record is there, at the offset that was acknowledged. The producer "
        "saw nothing but a pause between two answers: it went on by itself, and nothing is there "
        "twice."
    )


def _await(holds: Callable[[], bool]) -> None:
    deadline = monotonic() + SECONDS_MAX
    while not holds():
        assert monotonic() < deadline, "nothing was acknowledged"
        sleep(0.002)


def _is_there(found: dict[tuple[int, int], int], number: int, place: tuple[int, int]) -> bool:
    """Of a batch that was sent again the offset may have been unknown to the client."""
    return found.get(place) == number or place[1] < 0


def _everything(play: Play) -> dict[tuple[int, int], int]:
    """What the topic has, by partition and offset."""
    consumer = open_consumer(play.address)
    places = [TopicPartition(PAYMENTS, n, OFFSET_BEGINNING) for n in range(PAYMENT_PARTITIONS)]
    end = sum(consumer.get_watermark_offsets(place, timeout=10)[1] for place in places)
    consumer.assign(places)
    messages: list[Any] = []
    while len(messages) < end:
        came = consumer.consume(min(10_000, end - len(messages)), SECONDS_MAX)
        assert came, f"{len(messages)} of {end} records came"
        messages += came
    consumer.close()
    return {
        (message.partition(), message.offset()): int(message.value().split()[1])
        for message in messages
    }
