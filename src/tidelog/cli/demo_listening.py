"""The steps of the demo in which a consumer asks for a moment, and waits for what comes."""

from datetime import UTC, datetime
from statistics import median
from time import perf_counter, time_ns
from typing import Any, Final

from confluent_kafka import OFFSET_END, Consumer, Producer, TopicPartition

from tidelog.cli.demo_clients import QUIET, SECONDS_MAX, open_consumer
from tidelog.cli.demo_serving import READINGS, Play

HOUR_MS: Final = 3_600_000
HOURS: Final = 48
READINGS_AN_HOUR: Final = 120
ASKED_HOURS_AGO: Final = 5
WAIT_MS_MAX: Final = 20_000
IDLE_SECONDS: Final = 1.0
ROUNDS: Final = 50


def ask_for_a_time(play: Play) -> None:
    """Writes two days of readings, and asks for the first one since five hours ago."""
    screen = play.screen
    screen.step("Time: a consumer starts where it was five hours ago")
    now_ms = time_ns() // 1_000_000
    _write_readings(play, now_ms)
    asked_ms = now_ms - ASKED_HOURS_AGO * HOUR_MS
    consumer = open_consumer(play.address)
    started = perf_counter()
    (place,) = consumer.offsets_for_times([TopicPartition(READINGS, 0, asked_ms)], SECONDS_MAX)
    seconds = perf_counter() - started
    before, found = (_message_at(consumer, place.offset - back) for back in (1, 0))
    consumer.close()
    assert before.timestamp()[1] < asked_ms <= found.timestamp()[1], "it is the first since then"
    screen.table(
        ["asked for", "answered in", "offset", "its time", "the one before it"],
        [
            (
                _time(asked_ms),
                f"{seconds * 1000:.1f} ms",
                found.offset(),
                _time(found.timestamp()[1]),
                _time(before.timestamp()[1]),
            )
        ],
    )


def _write_readings(play: Play, now_ms: int) -> None:
    producer = Producer({"bootstrap.servers": play.address, "compression.type": "lz4"} | QUIET)
    count = HOURS * READINGS_AN_HOUR
    # Half an interval aside, so that no reading falls on the very moment that is asked for.
    first_ms = now_ms - HOURS * HOUR_MS + HOUR_MS // READINGS_AN_HOUR // 2
    for number in range(count):
        at_ms = first_ms + number * HOUR_MS // READINGS_AN_HOUR
        producer.produce(READINGS, b"%d degrees" % (number % 30), timestamp=at_ms, partition=0)
    assert producer.flush(SECONDS_MAX) == 0, "the readings were not acknowledged"


def _message_at(consumer: Consumer, offset: int) -> Any:
    consumer.assign([TopicPartition(READINGS, 0, offset)])
    return _next_message(consumer)


def _next_message(consumer: Consumer) -> Any:
    message = consumer.poll(SECONDS_MAX)
    assert message is not None, "a record was to come"
    assert message.error() is None, message.error()
    return message


def _time(timestamp_ms: int) -> str:
    return f"{datetime.fromtimestamp(timestamp_ms / 1000, UTC):%H:%M:%S}"


def wake_a_consumer(play: Play) -> None:
    """A consumer at the end of a topic, and a producer that has something now and then."""
    screen = play.screen
    screen.step("Waiting: a consumer sleeps at the broker until there is something")
    consumer = open_consumer(play.address, fetch_wait_max_ms=WAIT_MS_MAX)
    consumer.assign([TopicPartition(READINGS, 0, OFFSET_END)])
    producer = Producer({"bootstrap.servers": play.address, "linger.ms": 0} | QUIET)
    consumer.poll(0.5)  # Long enough to find the end and to begin to wait there.
    cpu_seconds = play.node.cpu_seconds()
    assert consumer.poll(IDLE_SECONDS) is None, "nothing was written yet"
    idle_cpu_ms = (play.node.cpu_seconds() - cpu_seconds) * 1000
    cpu_seconds = play.node.cpu_seconds()
    delays_ms = [_delay_ms(producer, consumer, number) for number in range(ROUNDS)]
    woken_cpu_ms = (play.node.cpu_seconds() - cpu_seconds) * 1000
    consumer.close()
    screen.table(
        ["the consumer", "costs the node", "from produce() to poll()"],
        [
            (f"waits for {IDLE_SECONDS:.0f} s", f"{idle_cpu_ms:.0f} ms of CPU", "nothing comes"),
            (
                f"is woken {ROUNDS} times",
                f"{woken_cpu_ms:.0f} ms of CPU",
                f"median {median(delays_ms):.1f} ms, at most {max(delays_ms):.1f} ms",
            ),
        ],
    )
    screen.notice(
        f"Each time it asks for anything within {WAIT_MS_MAX // 1000} seconds, and the broker "
        f"keeps the request until a record comes."
    )


def _delay_ms(producer: Producer, consumer: Consumer, number: int) -> float:
    value = b"reading %d" % number
    started = perf_counter()
    producer.produce(READINGS, value, partition=0)
    message = _next_message(consumer)
    delay_ms = (perf_counter() - started) * 1000
    assert message.value() == value, "in order, and each once"
    producer.poll(0)
    return delay_ms
