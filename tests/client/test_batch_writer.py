"""Writing in bulk to a real server: each batch once, in order, whatever happens (I1, P5)."""

import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from support.bulk import batch_of, made, read_all, whole
from support.servers import Server, TidelogServer, new_server
from tidelog.base.errors import BadValue, ErrorCode, KafkaError
from tidelog.client import apis
from tidelog.client.client import Client
from tidelog.client.fetching import RangeReader
from tidelog.client.topics import delete_topics
from tidelog.client.writing import BatchWriter
from tidelog.records.batch import read_header, walk


@pytest.fixture
def client(shared_server: Server) -> Iterator[Client]:
    with Client(shared_server.address) as connected:
        yield connected


def values_of(client: Client, topic: str, end: int, partition: int = 0) -> list[bytes]:
    found = read_all(RangeReader(client), whole(topic, end, partition=partition))
    assert [offset for offset, _ in found] == list(range(end))
    return [value for _, value in found]


@pytest.mark.parametrize("version", range(3, 14))
def test_batches_are_written_in_every_version(
    client: Client, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Up to version 12 topics go by name, in 13 by id."""
    topic = made(client, f"written-{version}", partitions=2)
    monkeypatch.setattr(apis, "PRODUCE", replace(apis.PRODUCE, first=version, last=version))
    with BatchWriter(client) as writer:
        for number in range(4):
            writer.send(topic, number % 2, batch_of([b"%d" % number, b"more"]))
        writer.flush()
        acknowledged = writer.acknowledged()
    places = [(0, 0), (0, 2), (1, 0), (1, 2)]
    assert sorted(acknowledged) == [(topic, index, offset, 2) for index, offset in places]
    assert values_of(client, topic, 4) == [b"0", b"more", b"2", b"more"]
    assert values_of(client, topic, 4, 1) == [b"1", b"more", b"3", b"more"]


def test_batches_carry_one_producer_and_count_up(client: Client) -> None:
    """I1: sequences are those of the records, for each partition its own."""
    topic = made(client, "counted", partitions=2)
    with BatchWriter(client) as writer:
        for _ in range(3):
            for partition in range(2):
                writer.send(topic, partition, batch_of([b"a", b"b", b"c"]))
        writer.flush()
    (chunk,) = RangeReader(client).read(whole(topic, 9))
    headers = [header for _, header in walk(chunk)]
    assert [header.base_sequence for header in headers] == [0, 3, 6]
    assert len({header.producer_id for header in headers}) == 1
    assert headers[0].producer_id >= 0


def test_many_batches_of_many_partitions_share_requests_and_keep_their_order(
    client: Client,
) -> None:
    topic = made(client, "many", partitions=20)
    with BatchWriter(client) as writer:
        for number in range(2000):
            writer.send(topic, number % 20, batch_of([b"%d" % (number // 20)]))
        writer.flush()
        assert len(writer.acknowledged()) == 2000
        assert writer.acknowledged() == []
    expected = [b"%d" % number for number in range(100)]
    assert all(values_of(client, topic, 100, index) == expected for index in range(20))


@pytest.mark.parametrize(("acks", "offset"), [(0, -1), (1, 0), (-1, 0)])
def test_a_writer_need_not_be_idempotent(client: Client, acks: int, offset: int) -> None:
    topic = made(client, f"plain{acks}")
    with BatchWriter(client, acks=acks, is_idempotent=False) as writer:
        writer.send(topic, 0, batch_of([b"x"]))
        writer.flush()
        assert writer.acknowledged() == [(topic, 0, offset, 1)]
        (chunk,) = RangeReader(client).read(whole(topic, 1))
        assert read_header(chunk).producer_id == -1


def test_an_idempotent_writer_needs_all_acknowledgements(client: Client) -> None:
    with pytest.raises(BadValue, match=r"acks=-1 and at most 5 .* not acks=1 and 5"):
        BatchWriter(client, acks=1)
    with pytest.raises(BadValue, match="not acks=-1 and 6"):
        BatchWriter(client, in_flight_max=6)


def test_what_is_no_batch_is_refused_before_anything_is_sent(client: Client) -> None:
    topic = made(client, "no-batch")
    with BatchWriter(client) as writer:
        for wrong in (bytearray(), bytearray(100), batch_of([b"x"]) + b"x", batch_of([b"x"]) * 2):
            with pytest.raises(BadValue, match="not one record batch"):
                writer.send(topic, 0, wrong)
        writer.send(topic, 0, batch_of([b"x"]))
        writer.flush()
    assert values_of(client, topic, 1) == [b"x"]


def test_a_batch_that_is_too_large_is_named_and_breaks_the_writer(client: Client) -> None:
    topic = made(client, "small-only", configs={"max.message.bytes": "1000"})
    with BatchWriter(client) as writer:
        writer.send(topic, 0, batch_of([b"x"]))
        why = r"small-only-0: a batch of 20\d\d bytes with 2"
        with pytest.raises(KafkaError, match=why) as told:  # noqa: PT012
            # The answer may come while it is still being sent.
            writer.send(topic, 0, batch_of([b"y" * 2000, b"z"]))
            writer.flush()
        assert told.value.code is ErrorCode.message_too_large
        assert "max.message.bytes=1000" in told.value.message
        with pytest.raises(KafkaError, match="small-only-0: a batch of"):
            writer.send(topic, 0, batch_of([b"x"]))


def test_a_partition_or_topic_that_is_not_there_is_named_at_once(client: Client) -> None:
    topic = made(client, "two-wide", partitions=2)
    with BatchWriter(client) as writer:
        with pytest.raises(KafkaError, match="two-wide has no partition 2, it has 2"):
            writer.send(topic, 2, batch_of([b"x"]))
        writer.send(topic, 1, batch_of([b"x"]))
        writer.flush()
    with pytest.raises(KafkaError, match="bad name!"):
        BatchWriter(client).send("bad name!", 0, batch_of([b"x"]))


def test_more_than_may_be_under_way_is_waited_for(client: Client) -> None:
    topic = made(client, "heavy", configs={"max.message.bytes": "9000000"})
    with BatchWriter(client) as writer:
        for number in range(10):
            writer.send(topic, 0, batch_of([bytes([number]) * 8_000_000]))
        writer.flush()
    values = values_of(client, topic, 10)
    assert [value[:1] for value in values] == [bytes([number]) for number in range(10)]


def test_a_restart_of_the_server_neither_loses_nor_doubles(tmp_path: Path) -> None:
    """I1: what was under way is sent again, and recognized where it had been written."""
    server = new_server(tmp_path, {})
    try:
        server.start()
        with Client(server.address) as client, BatchWriter(client) as writer:
            topic = made(client, "restarted", partitions=3)

            def write(numbers: range) -> None:
                for number in numbers:
                    writer.send(topic, number % 3, batch_of([b"%d" % number]))
                writer.flush()

            with ThreadPoolExecutor(1) as pool:
                for start in (0, 3000):
                    writing = pool.submit(write, range(start, start + 3000))
                    server.kill()
                    server.start()
                    writing.result(120)
            for partition in range(3):
                expected = [b"%d" % number for number in range(partition, 6000, 3)]
                assert values_of(client, topic, 2000, partition) == expected
            assert sum(row[3] for row in writer.acknowledged()) == 6000
    finally:
        server.close()


class Proxy:
    """Carries connections to a server, and can lose what the server answers."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.answers_left: int | None = None
        """After so many more pieces from the server, the connection that has one is cut."""
        self._carriers: list[threading.Thread] = []
        self._sockets: list[socket.socket] = []

    def serve(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection((host, int(port)))
                self._sockets += [near, far]
                for way in ((near, far, False), (far, near, True)):
                    self._carriers.append(threading.Thread(target=self._carry, args=way))
                    self._carriers[-1].start()

    def _carry(self, source: socket.socket, sink: socket.socket, is_answer: bool) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                if is_answer and self.answers_left is not None:
                    self.answers_left -= 1
                    if self.answers_left < 0:
                        self.answers_left = None
                        break
                sink.sendall(data)
        for one in (source, sink):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        for one in (self._listener, *self._sockets):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        for carrier in self._carriers:
            carrier.join(60)
        for one in (self._listener, *self._sockets):
            one.close()


@contextmanager
def proxied(folder: Path) -> Iterator[tuple[Proxy, Client]]:
    proxy = Proxy()
    listener = {"advertised.listeners": f"PLAINTEXT://{proxy.address}"}
    server = TidelogServer(folder, listener)
    try:
        server.start()
        carrying = threading.Thread(target=proxy.serve, args=(server.address,))
        carrying.start()
        try:
            with Client(proxy.address) as client:
                yield proxy, client
        finally:
            proxy.close()
            carrying.join(60)
    finally:
        server.close()


def test_batches_whose_answers_were_lost_are_not_written_twice(tmp_path: Path) -> None:
    """I1, again and again: the connection is cut where an answer should have come."""
    with proxied(tmp_path) as (proxy, client), BatchWriter(client) as writer:
        topic = made(client, "once", partitions=2)
        for number in range(400):
            if number % 40 == 20:
                proxy.answers_left = number % 7
            writer.send(topic, number % 2, batch_of([b"%d" % number]))
        writer.flush()
        rows = writer.acknowledged()
        for partition in range(2):
            expected = [b"%d" % number for number in range(partition, 400, 2)]
            assert values_of(client, topic, 200, partition) == expected
            offsets = [row[2] for row in rows if row[1] == partition and row[2] >= 0]
            assert offsets == sorted(set(offsets))
        assert len(rows) == 400


def test_a_topic_that_was_made_again_is_written_to_as_before(client: Client) -> None:
    """The new log knows nothing of the sequences: counting begins anew where it insists."""
    topic = made(client, "renewed")
    with BatchWriter(client) as writer:
        for number in range(3):
            writer.send(topic, 0, batch_of([b"%d" % number]))
        writer.flush()
        assert delete_topics(client, [topic]) == {topic: None}
        made(client, topic)
        for number in range(3, 9):
            writer.send(topic, 0, batch_of([b"%d" % number]))
        writer.flush()
    assert values_of(client, topic, 6) == [b"%d" % number for number in range(3, 9)]


def test_time_in_which_the_caller_is_away_does_not_count(shared_server: Server) -> None:
    """Rows may be long in the making, and nobody takes the answers meanwhile."""
    partitions = 8
    with Client(shared_server.address, timeout_ms=1_500) as client:
        topic = made(client, "away", partitions=partitions)
        with BatchWriter(client, timeout_ms=3_000) as writer:
            for partition in range(partitions):
                writer.send(topic, partition, batch_of([b"before"]))
            time.sleep(3.2)
            for partition in range(partitions):
                writer.send(topic, partition, batch_of([b"after"]))
            writer.flush()
        for partition in range(partitions):
            assert values_of(client, topic, 2, partition) == [b"before", b"after"]


def test_what_cannot_be_written_in_time_is_told(tmp_path: Path) -> None:
    server = new_server(tmp_path, {})
    try:
        server.start()
        with Client(server.address) as patient:
            topic = made(patient, "late")
        with (
            Client(server.address, timeout_ms=1_500) as client,
            BatchWriter(client, timeout_ms=3_000) as writer,
        ):
            writer.send(topic, 0, batch_of([b"x"]))
            writer.flush()
            server.kill()
            writer.send(topic, 0, batch_of([b"x"]))
            with pytest.raises(KafkaError, match=r"late-0: not written within 3 s: .*127.0.0.1"):
                writer.flush()
    finally:
        server.close()
