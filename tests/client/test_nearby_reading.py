"""Ranges read from a broker of this machine, out of its files, beside the same over TCP (P1)."""

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka import Producer

from support.bulk import batch_of, filled, made, records_in, whole
from support.servers import Server, TidelogServer
from tidelog.client.addresses import Address
from tidelog.client.client import Client
from tidelog.client.errors import Unreachable
from tidelog.client.fetching import PARTITION_BYTES_MAX, PIECE_BYTES, READ_COMMITTED, RangeReader
from tidelog.client.nearby_sockets import SWITCH, FileRange

COUNT = 900
RECORD_BYTES = 10_000
LARGE_BYTES = 3_000_000
PIECE_BYTES_MAX = PIECE_BYTES * 3 // 2

LARGE = {"max.message.bytes": "4000000"}

Chunk = tuple[int, list[tuple[int, bytes]]]


@pytest.fixture
def client(shared_server: Server) -> Iterator[Client]:
    with Client(shared_server.address) as connected:
        yield connected


def new_name() -> str:
    return f"nearby-{uuid4().hex[:8]}"


def batches() -> Iterator[bytearray]:
    for number in range(0, COUNT, 3):
        if number == COUNT // 3:
            yield batch_of([b"L" * LARGE_BYTES])
        yield batch_of(b"%d" % one * RECORD_BYTES for one in range(number, number + 3))


def chunks(address: str, topic: str, end: int, isolation_level: int = 0) -> list[Chunk]:
    """Their sizes and records."""
    with Client(address) as client, RangeReader(client, isolation_level=isolation_level) as reader:
        return [(len(chunk), records_in(chunk)) for chunk in reader.read(whole(topic, end))]


def through_the_port(
    address: str, topic: str, end: int, patch: pytest.MonkeyPatch, isolation_level: int = 0
) -> list[Chunk]:
    with patch.context() as patched:
        patched.setenv(SWITCH, "no")
        return chunks(address, topic, end, isolation_level)


def records_of(found: list[Chunk]) -> list[tuple[int, bytes]]:
    return [record for _, records in found for record in records]


def test_what_lies_in_files_is_read_in_pieces_and_is_the_same(
    client: Client, shared_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = filled(client, new_name(), batches(), LARGE)
    far = through_the_port(shared_server.address, topic, COUNT + 1, monkeypatch)
    near = chunks(shared_server.address, topic, COUNT + 1)
    assert len(records_of(near)) == COUNT + 1
    assert records_of(near) == records_of(far)
    assert max(size for size, _ in far) > PARTITION_BYTES_MAX // 2
    large = next(index for index, (size, _) in enumerate(near) if size > LARGE_BYTES)
    assert all(size < PIECE_BYTES_MAX for size, _ in near[:large])
    assert max(size for size, _ in near[large:]) < 2 * LARGE_BYTES
    assert len(near) < 40, "pieces, not batches"


def test_what_was_aborted_is_left_out_wherever_the_pieces_end(
    client: Client, shared_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of a transaction in one piece counts in the next: its producer goes on."""
    topic = made(client, new_name())
    producer = Producer(
        {
            "bootstrap.servers": shared_server.address,
            "transactional.id": new_name(),
            "linger.ms": 0,
        }
    )
    producer.init_transactions()
    kept = []
    for number in range(6):
        producer.begin_transaction()
        for one in range(60):
            producer.produce(topic, b"%d-%d" % (number, one) * 2_000)
        if number % 2:
            producer.commit_transaction()
            kept += [b"%d-%d" % (number, one) * 2_000 for one in range(60)]
        else:
            producer.flush()
            producer.abort_transaction()
    end = 6 * 61
    near = chunks(shared_server.address, topic, end, READ_COMMITTED)
    far = through_the_port(shared_server.address, topic, end, monkeypatch, READ_COMMITTED)
    assert [value for _, value in records_of(near)] == kept
    assert near == far


def test_no_descriptor_is_left_however_reading_ends(client: Client, shared_server: Server) -> None:
    topic = filled(client, new_name(), batches(), LARGE)
    before = sorted(os.listdir("/proc/self/fd"))
    for taken in (0, 1, 2, COUNT):
        with Client(shared_server.address) as own, RangeReader(own) as reader:
            with closing(reader.read(whole(topic, COUNT + 1))) as found:
                for _ in zip(range(taken), found, strict=False):
                    pass
            assert len(records_in(next(reader.read(whole(topic, 3))))) == 3
    assert sorted(os.listdir("/proc/self/fd")) == before


def test_a_broker_that_dies_is_not_believed_and_reading_goes_on_with_the_next(
    tmp_path: Path,
) -> None:
    """Its files can still be read, but nobody says any more what in them is committed."""
    server = TidelogServer(tmp_path, {})
    try:
        server.start()
        with Client(server.address) as client:
            topic = filled(client, new_name(), batches(), LARGE)
            with RangeReader(client, patience_ms=60_000) as reader:
                found = reader.read(whole(topic, COUNT + 1))
                piece = next(found)
                assert len(piece) < PIECE_BYTES_MAX, "the rest of the answer lies in files"
                records = records_in(piece)
                server.kill()
                server.start()
                for chunk in found:
                    records += records_in(chunk)
        assert [offset for offset, _ in records] == list(range(COUNT + 1))
    finally:
        server.close()


def test_batches_that_are_larger_than_a_piece_are_not_read_again_and_again(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = filled(client, new_name(), [batch_of([b"L" * 1_100_000]) for _ in range(20)], LARGE)
    taken: list[int] = []
    read_into = FileRange.read_into

    def counting(lying: FileRange, buffer: memoryview, at: int) -> None:
        taken.append(len(buffer))
        read_into(lying, buffer, at)

    monkeypatch.setattr(FileRange, "read_into", counting)
    with RangeReader(client) as reader:
        size = sum(len(chunk) for chunk in reader.read(whole(topic, 20)))
    assert size > 20 * 1_100_000
    assert sum(taken) < 1.7 * size


def test_a_reader_that_was_closed_in_the_middle_goes_on(client: Client) -> None:
    topic = filled(client, new_name(), batches(), LARGE)
    with RangeReader(client) as reader:
        found = reader.read(whole(topic, COUNT + 1))
        records = records_in(next(found))
        reader.close()
        for chunk in found:
            records += records_in(chunk)
    assert [offset for offset, _ in records] == list(range(COUNT + 1))


def test_whoever_had_trouble_beside_a_port_takes_the_port(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside it may be another broker, where several share an address."""
    topic = filled(client, new_name(), batches(), LARGE)

    def fail(_lying: FileRange, _buffer: memoryview, _at: int) -> None:
        raise Unreachable(Address("here", 1), "not here")

    monkeypatch.setattr(FileRange, "read_into", fail)
    with RangeReader(client) as reader:
        offsets = [
            offset
            for chunk in reader.read(whole(topic, COUNT + 1))
            for offset, _ in records_in(chunk)
        ]
    assert offsets == list(range(COUNT + 1))
