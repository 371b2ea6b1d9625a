"""Connections of a whole broker on virtual time: order, limits, garbage, the end."""

import logging
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from support.brokers import API_VERSIONS, FETCH, METADATA, PRODUCE, SimNode, one_batch
from tidelog.handlers.share import IN_FLIGHT_MAX
from tidelog.handlers.table import APIS
from tidelog.slices import SLICE_STEPS, Sliced
from tidelog.wire import codec

FIXTURES = Path(__file__).parents[1] / "fixtures" / "kafka" / "wire"


@pytest.fixture
def node() -> SimNode:
    return SimNode()


def frame(api_key: int, version: int, body: bytes = b"", client: bytes = b"evil") -> bytes:
    header = struct.pack(">hhih", api_key, version, 9, len(client)) + client
    return struct.pack(">i", len(header + body)) + header + body


def test_versions_are_answered_from_the_table_of_apis(node: SimNode) -> None:
    answer = node.client().ask(
        API_VERSIONS, 4, client_software_name="test", client_software_version="1"
    )
    ranges = {row.api_key: (row.min_version, row.max_version) for row in answer.api_keys}
    assert ranges[0] == (0, 13)
    assert ranges[1] == (4, 18)
    assert ranges[API_VERSIONS] == (0, 4)


def test_every_api_is_served_in_the_versions_that_kafka_serves(node: SimNode) -> None:
    """Apache Kafka 4.3.1's own answer is the table."""
    answer = (FIXTURES / "api_versions_v4.answer").read_bytes()
    _, theirs = codec.read_response(API_VERSIONS, 4, answer[4:])
    kafka = {row.api_key: (row.min_version, row.max_version) for row in theirs.api_keys}
    ours = node.client().ask(
        API_VERSIONS, 4, client_software_name="test", client_software_version="1"
    )
    assert len(ours.api_keys) == len(APIS)
    for row in ours.api_keys:
        assert (row.min_version, row.max_version) == kafka[row.api_key], row


@pytest.mark.parametrize("version", [3, 4])
def test_the_newer_protocols_of_groups_and_transactions_are_in_force(
    node: SimNode, version: int
) -> None:
    """A4. Clients of version 3 cannot read a supported feature that begins with 0 (KAFKA-17011)."""
    answer = node.client().ask(
        API_VERSIONS, version, client_software_name="test", client_software_version="1"
    )
    finalized = {row.name: row.max_version_level for row in answer.finalized_features}
    assert finalized == {"group.version": 1, "transaction.version": 2}
    assert answer.finalized_features_epoch >= 0
    supported = {row.name: (row.min_version, row.max_version) for row in answer.supported_features}
    expected = {"group.version": (0, 1), "transaction.version": (0, 2)}
    assert supported == (expected if version > 3 else {})


def test_a_version_of_the_future_is_answered_in_version_0(node: SimNode) -> None:
    """As Kafka 4.3.1 does it: tests/fixtures/kafka/wire has its answer."""
    client = node.client()
    client.send_bytes(frame(API_VERSIONS, 99, b"\0\0\0"))
    client.until(lambda: bool(client.frames))
    assert struct.unpack(">ihihhh", client.frames[0]) == (9, 35, 1, API_VERSIONS, 0, 4)


def test_a_client_must_say_what_software_it_is(node: SimNode) -> None:
    answer = node.client().ask(
        API_VERSIONS, 3, client_software_name="b@d", client_software_version=""
    )
    assert answer.error_code.name == "invalid_request"


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (b"\xff\xff\xff\xff", "frame of -1"),
        (b"\x7f\xff\xff\xff", "frame of 2147483647"),
        (struct.pack(">i", 2) + b"ab", "a frame cannot be read"),
        (frame(77, 0, b"\0"), "api_key=77"),
        (frame(METADATA, 99, b"\0"), "version=99"),
        (frame(METADATA, 12, b"garbage that is not metadata"), "cannot be read"),
        (frame(0, 9, b"\xff" * 20), "cannot be read"),
        (frame(1, 12, b"\xff" * 20), "cannot be read"),
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "frame of"),
    ],
)
def test_what_cannot_be_read_ends_its_connection_and_no_other(
    node: SimNode, sent: bytes, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    """B1, B6: one bad frame costs one connection, and a line in the log says whose it was."""
    good, bad = node.client(), node.client()
    good.create("events")
    with caplog.at_level(logging.WARNING):
        bad.send_bytes(sent)
        node.loop.run_for(1000)
    assert bad.closed_why is not None
    assert any(said in record.getMessage() for record in caplog.records), caplog.text
    assert good.produce("events", one_batch("a")).base_offset == 0


@pytest.mark.parametrize("version", [0, 1, 2])
def test_an_old_producer_is_told_that_its_version_is_not_served(
    node: SimNode, version: int
) -> None:
    """KAFKA-18659: the versions are advertised, for old librdkafka to compress at all."""
    body = struct.pack(">hi", 1, 1000) + struct.pack(">i", 1) + struct.pack(">h", 1) + b"t"
    body += struct.pack(">iii", 1, 3, 4) + b"data"
    client = node.client()
    client.send_bytes(frame(0, version, body))
    client.until(lambda: bool(client.frames))
    answer = client.frames[0]
    assert struct.unpack_from(">ii", answer) == (9, 1)
    assert struct.unpack_from(">iihq", answer, 11) == (1, 3, 35, -1)
    assert len(answer) == 29 + (4 if version else 0) + (8 if version == 2 else 0)


def test_a_client_with_too_much_in_flight_is_not_read_until_it_is_answered(node: SimNode) -> None:
    client, producer = node.client(), node.client()
    client.create("events")
    client.send_fetch([("events", 0, 0)], max_wait=60_000)
    for _ in range(3 * IN_FLIGHT_MAX):
        client.send(METADATA, 12, topics=[], include_topic_authorized_operations=False)
    node.loop.run_for(1_000)
    assert len(client.answers) == 1, "answers come in order"
    producer.produce("events", one_batch("a"))
    client.wait()
    assert len(client.answers) == 2 + 3 * IN_FLIGHT_MAX


def test_connections_beyond_the_limits_are_refused() -> None:
    node = SimNode(max_connections=3)
    clients = [node.client() for _ in range(3)]
    refused = node.client()
    node.loop.run_for(100)
    assert refused.closed_why is not None
    clients[0].link.close()
    node.loop.run_for(100)
    node.client().create("events")


@pytest.mark.parametrize(("opened", "is_let_in"), [(17, True), (18, False), (20, False)])
def test_a_connection_that_leaves_logs_too_few_files_is_refused(
    opened: int, is_let_in: bool
) -> None:
    """F17: a quarter of the descriptors that they do not have yet is left to them."""
    node = SimNode()
    for _ in range(6):
        node.client()
    node.broker.descriptors = lambda: (opened, 20)
    another = node.client()
    node.loop.run_for(100)
    assert (another.closed_why is None) == is_let_in


def test_connections_from_one_address_are_limited_with_exceptions() -> None:
    node = SimNode(max_connections_per_ip=2, max_connections_per_ip_overrides="other:100")
    for _ in range(2):
        node.client()
    refused = node.client()
    node.loop.run_for(100)
    assert refused.closed_why is not None


def test_a_connection_that_idles_is_closed() -> None:
    node = SimNode(connections_max_idle_ms=10_000)
    idle, busy = node.client(), node.client()
    for _ in range(10):
        node.loop.run_for(2_000)
        busy.ask(METADATA, 12, topics=[], include_topic_authorized_operations=False)
    assert idle.closed_why is not None
    assert busy.closed_why is None


def test_a_connection_that_waits_for_an_answer_does_not_idle() -> None:
    node = SimNode(connections_max_idle_ms=10_000)
    client = node.client()
    client.create("events")
    client.send_fetch([("events", 0, 0)], max_wait=60_000)
    node.loop.run_for(59_000)
    assert client.closed_why is None


def test_a_connection_whose_answer_is_read_slowly_does_not_idle() -> None:
    node = SimNode(connections_max_idle_ms=10_000)
    client = node.client()
    client.create("events")
    for _ in range(6):
        client.produce("events", one_batch("x" * 500_000))
    answered = len(client.answers)
    for _ in range(5):
        client.send_fetch([("events", 0, 0)])
    reads = 0
    while len(client.answers) < answered + 5 and client.closed_why is None:
        client.link.pause()
        node.loop.run_for(2_000)
        client.link.resume()
        node.loop.run_for(1)
        reads += 1
    assert client.closed_why is None
    assert reads > 10


def test_a_connection_whose_answer_is_not_read_idles() -> None:
    node = SimNode(connections_max_idle_ms=10_000)
    client = node.client()
    client.create("events")
    for _ in range(6):
        client.produce("events", one_batch("x" * 500_000))
    client.send_fetch([("events", 0, 0)])
    client.link.pause()
    node.loop.run_for(20_000)
    assert not node.broker.doors.connections


def test_a_request_that_only_produce_may_be_so_large_as_is_refused() -> None:
    node = SimNode(socket_request_other_max_bytes=10_000)
    client = node.client()
    client.send_bytes(frame(METADATA, 12, b"\0" * 20_000))
    node.loop.run_for(1000)
    assert client.closed_why is not None
    node.client().create("events")


def test_a_stop_answers_what_was_accepted(node: SimNode) -> None:
    client, waiting = node.client(), node.client()
    client.create("events", max_message_bytes=10_000_000)
    waiting.send_fetch([("events", 0, 0)], max_wait=600_000)
    node.loop.run_for(100)
    for _ in range(5):
        client.send_produce("events", one_batch("x" * 400_000))
    client.until(lambda: len(client.answers) >= 2)
    node.stop()
    node.loop.run_for(1_000)
    accepted = node.broker.partitions.find("events", 0).log.log_end_offset
    assert len(client.answers) == 1 + accepted
    assert len(waiting.answers) == 1
    assert client.closed_why is not None


@pytest.mark.parametrize("seed", range(10))
def test_a_stop_answers_what_was_held_and_waits_no_longer(seed: int) -> None:
    """The last answers are more than the client takes at once, and are to arrive all the same."""
    node = SimNode(seed)
    client = node.client()
    client.create("events")
    client.produce("events", one_batch("x" * 90_000))
    (connection,) = node.broker.doors.connections
    for _ in range(30):
        client.send_fetch([("events", 0, 0)])
    client.until(lambda: len(connection._held) > 3)
    answered, held = node.broker.counters.times[FETCH].count, len(connection._held)
    began_ms = node.clock.monotonic_ms()
    node.stop()
    took_ms = node.clock.monotonic_ms() - began_ms
    node.loop.run_for(1_000)
    assert len(client.answers) == 2 + answered + held
    assert client.closed_why == "closed by the peer"
    assert took_ms < 5_000


def test_a_stop_waits_for_no_fetch_that_was_held(node: SimNode) -> None:
    """S8: it would wait for more, and what was sent behind it is answered too."""
    client = node.client()
    client.create("events", partitions=2)
    client.produce("events", one_batch("x" * 90_000))
    connection = list(node.broker.doors.connections)[-1]
    for _ in range(8):
        client.send_fetch([("events", 0, 0)])
    client.send_fetch([("events", 0, 1)], max_wait=600_000)
    client.send_produce("events", one_batch("behind"), index=1)
    produce = PRODUCE.to_bytes(2, "big")
    client.until(lambda: any(held.startswith(produce) for held in connection._held))
    began_ms = node.clock.monotonic_ms()
    node.stop()
    assert node.clock.monotonic_ms() - began_ms < 5_000
    node.loop.run_for(1_000)
    assert len(client.answers) == 12
    assert client.answers[-1].responses[0].partition_responses[0].base_offset == 0


def test_nobody_is_let_in_while_the_broker_stops(node: SimNode) -> None:
    node.client().create("events")
    node.stop()
    with pytest.raises(AssertionError, match="refused"):
        node.client()


def test_the_time_a_request_took_is_counted_from_its_arrival(node: SimNode) -> None:
    """O3."""
    client = node.client()
    client.create("events")
    node.loop.run_for(60_000)
    client.produce("events", one_batch("a"))
    client.fetch("events", 1, max_wait=2_000)
    times = node.broker.counters.times
    assert times[0].total_us < 1_000_000
    assert 2_000_000 <= times[1].total_us < 3_000_000


def test_a_burst_leaves_others_their_turn(node: SimNode) -> None:
    """B3: its requests are answered in shares, all of them, in order."""
    flood, other = node.client(), node.client()
    flood.create("events", partitions=50)
    for _ in range(400):
        flood.send(METADATA, 12, topics=None, include_topic_authorized_operations=False)
    other.ask(METADATA, 12, topics=[], include_topic_authorized_operations=False)
    assert len(flood.answers) < 350, "it did not come first as a whole"
    flood.wait()
    assert len(flood.answers) == 401


def test_what_came_behind_a_request_that_is_served_in_slices_waits_for_it(
    node: SimNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that a connection never has more than one of them under way, however many come at once."""
    client = node.client()
    client.create("wide", partitions=4 * SLICE_STEPS)
    run = node.broker.slices.run
    under_way: list[int] = []
    begun = 0

    def counted(work: Sliced, failed: Callable[[], None]) -> None:
        nonlocal begun
        begun += 1
        times = node.broker.counters.times.get(METADATA)
        under_way.append(begun - (times.count if times else 0))
        run(work, failed)

    monkeypatch.setattr(node.broker.slices, "run", counted)
    for _ in range(20):
        client.send(METADATA, 12, topics=None, include_topic_authorized_operations=False)
    client.send(API_VERSIONS, 4, client_software_name="test", client_software_version="1")
    client.wait()
    assert len(client.answers) == 1 + 20 + 1
    assert begun == 20
    assert under_way == [1] * 20
