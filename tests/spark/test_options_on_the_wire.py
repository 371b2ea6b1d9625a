"""What options of source and sink do to what brokers are asked, by who listens in (P1, P2)."""

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

from support.bulk import made, whole
from support.overheard import FETCH, INIT_PRODUCER_ID, PRODUCE, Overheard, overheard
from tidelog.base.errors import BadValue, ErrorCode, KafkaError
from tidelog.client.client import Client
from tidelog.client.fetching import RangeReader
from tidelog.records.batch import walk
from tidelog.spark.options import SourceOptions
from tidelog.spark.reading import read_range
from tidelog.spark.sink_options import SinkOptions
from tidelog.spark.task_writing import write_rows

ROWS = 20
IN_FLIGHT = "kafka.max.in.flight.requests.per.connection"
IMPATIENT = {"kafka.request.timeout.ms": "1000", "kafka.linger.ms": "0"}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Overheard]:
    with overheard(tmp_path_factory.mktemp("overheard")) as (listener, _):
        yield listener


@pytest.fixture
def listener(broker: Overheard) -> Overheard:
    broker.forget()
    return broker


@pytest.fixture(scope="module")
def client(broker: Overheard) -> Iterator[Client]:
    with Client(broker.address) as connected:
        yield connected


def write(listener: Overheard, topic: str, options: Mapping[str, str]) -> int:
    """Rows that were confirmed; each goes into a batch of its own unless that is an option."""
    given = {"kafka.bootstrap.servers": listener.address, "topic": topic}
    parsed = SinkOptions.parse({**given, "kafka.batch.size": "1100", **options}, is_stream=False)
    values = pa.array([b"%04d" % number * 250 for number in range(ROWS)], pa.binary())
    one_by_one = [pa.record_batch({"value": values.slice(number, 1)}) for number in range(ROWS)]
    return sum(write_rows(parsed, one_by_one).values())


def read(listener: Overheard, topic: str, options: Mapping[str, str]) -> list[Any]:
    """The requests that it took to read all rows."""
    listener.forget()
    given = {"kafka.bootstrap.servers": listener.address, "subscribe": topic}
    parsed = SourceOptions.parse({**given, **options}, is_stream=False)
    assert sum(batch.num_rows for batch in read_range(whole(topic, ROWS), parsed)) == ROWS
    return listener.requests(FETCH)


def batches_in(client: Client, topic: str) -> int:
    chunks = RangeReader(client).read(whole(topic, ROWS))
    return sum(1 for chunk in chunks for _ in walk(chunk))


@pytest.mark.parametrize("most", [1, 2, 5])
def test_as_many_requests_are_under_way_as_was_said(
    listener: Overheard, client: Client, most: int
) -> None:
    topic = made(client, f"in-flight-{most}")
    with ThreadPoolExecutor(1) as pool:
        with listener.holding():
            written = pool.submit(write, listener, topic, {IN_FLIGHT: str(most)})
            listener.await_under_way(most)
        assert written.result(60) == ROWS
    assert listener.under_way_max == most
    assert len(listener.requests(PRODUCE)) == ROWS


def test_what_nobody_answers_is_given_up_when_it_was_said(
    listener: Overheard, client: Client
) -> None:
    """`kafka.delivery.timeout.ms`, before the request itself is late."""
    topic = made(client, "unanswered")
    late = r"unanswered-0: not written within 1.5 s: broker \d+ has not answered"
    with listener.holding(), pytest.raises(KafkaError, match=late) as told:
        write(listener, topic, {**IMPATIENT, "kafka.delivery.timeout.ms": "1500"})
    assert told.value.code is ErrorCode.request_timed_out
    assert listener.requests(PRODUCE)


def test_a_delivery_takes_at_least_one_request() -> None:
    """As for Kafka's own producer."""
    given = {"kafka.bootstrap.servers": "127.0.0.1:9", "topic": "t"}
    short = {**IMPATIENT, "kafka.linger.ms": "5", "kafka.delivery.timeout.ms": "1004"}
    with pytest.raises(BadValue, match=r"kafka.delivery.timeout.ms='1004': .* at least .*1005"):
        SinkOptions.parse(given | short, is_stream=False)
    patient = {"kafka.request.timeout.ms": "500000"}
    assert SinkOptions.parse(given | patient, is_stream=False).sending.delivery_timeout_ms > 500_000


def test_brokers_are_told_whom_to_wait_for_and_how_long(
    listener: Overheard, client: Client
) -> None:
    """`kafka.acks`, `kafka.request.timeout.ms`, `kafka.enable.idempotence`"""
    topic = made(client, "told")
    for acks, is_idempotent in ((-1, "true"), (-1, "false"), (1, "false")):
        listener.forget()
        options = {"kafka.acks": str(acks), "kafka.enable.idempotence": is_idempotent}
        assert write(listener, topic, {**options, "kafka.request.timeout.ms": "12345"}) == ROWS
        asked = listener.requests(PRODUCE)
        assert {(one.acks, one.timeout) for one in asked} == {(acks, timedelta(seconds=12.345))}
        assert bool(listener.requests(INIT_PRODUCER_ID)) == (is_idempotent == "true")


@pytest.mark.parametrize(("linger_ms", "batches"), [("0", ROWS), ("60000", 1)])
def test_rows_wait_for_more_of_them_as_long_as_was_said(
    listener: Overheard, client: Client, linger_ms: str, batches: int
) -> None:
    topic = made(client, f"linger-{linger_ms}")
    options = {"kafka.linger.ms": linger_ms, "kafka.batch.size": "1000000"}
    assert write(listener, topic, options) == ROWS
    assert batches_in(client, topic) == batches


def test_fetches_are_as_large_and_wait_as_long_as_was_said(
    listener: Overheard, client: Client
) -> None:
    topic = made(client, "fetched")
    assert write(listener, topic, {}) == ROWS
    wait = {"kafka.fetch.max.wait.ms": "77"}
    for size in ("kafka.max.partition.fetch.bytes", "kafka.fetch.max.bytes"):
        asked = read(listener, topic, {**wait, size: "4500"})
        assert len(asked) > ROWS // 5
        assert {one.max_wait for one in asked} == {timedelta(milliseconds=77)}
        sizes = {part.partition_max_bytes for one in asked for part in one.topics[0].partitions}
        assert sizes == {4500}
    assert len(read(listener, topic, wait)) == 1
