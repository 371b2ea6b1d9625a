"""Reading ranges in bulk from a real server: what comes, in which pieces, and what is gone (P1)."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from time import monotonic, sleep

import pytest
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import AdminClient

from support.bulk import batch_of, drained, filled, made, read_all, records_in, whole
from support.servers import Server, TidelogServer, new_server
from tidelog.base.errors import BadValue, ErrorCode, KafkaError
from tidelog.client import apis
from tidelog.client.client import Client
from tidelog.client.cluster import id_of_text
from tidelog.client.fetching import DataLost, RangeReader
from tidelog.client.topics import delete_topics
from tidelog.client.writing import BatchWriter

SHORT_MS = 1_500
COMPACTED = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.0",
    "segment.bytes": "4096",
}


@pytest.fixture
def client(shared_server: Server) -> Iterator[Client]:
    with Client(shared_server.address) as connected:
        yield connected


@pytest.fixture
def hasty(shared_server: Server) -> Iterator[Client]:
    """Does not wait long for what may never come."""
    with Client(shared_server.address, timeout_ms=SHORT_MS) as connected:
        yield connected


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[TidelogServer]:
    server = TidelogServer(tmp_path, {"log.cleaner.backoff.ms": "50"})
    try:
        server.start()
        yield server
    finally:
        server.close()


def numbered(count: int, first: int = 0) -> list[tuple[int, bytes]]:
    return [(first + number, b"%d" % (first + number)) for number in range(count)]


def batches_of_ten(count: int) -> Iterator[bytearray]:
    for first in range(0, count, 10):
        yield batch_of(b"%d" % number for number in range(first, first + 10))


def topic_id(client: Client, topic: str) -> bytes:
    text = client.cluster([topic]).topic(topic).topic_id
    assert text is not None
    return id_of_text(text)


@pytest.mark.parametrize("version", range(4, 18))
def test_a_range_is_read_in_every_version(
    client: Client, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Up to version 12 topics go by name, from 13 on by id."""
    topic = filled(client, f"fetched-{version}", batches_of_ten(50))
    monkeypatch.setattr(apis, "FETCH", replace(apis.FETCH, first=version, last=version))
    with RangeReader(client) as reader:
        assert read_all(reader, whole(topic, 50)) == numbered(50)
        named = replace(whole(topic, 50), topic_id=topic_id(client, topic))
        assert read_all(reader, named) == numbered(50)


def test_only_batches_that_meet_the_range_come(client: Client) -> None:
    topic = filled(client, "met", batches_of_ten(50))
    with RangeReader(client) as reader:
        assert read_all(reader, whole(topic, 29, start=11)) == numbered(20, 10)
        assert read_all(reader, whole(topic, 30, start=20)) == numbered(10, 20)
        assert read_all(reader, whole(topic, 21, start=19)) == numbered(20, 10)
        assert read_all(reader, whole(topic, 7, start=7)) == []


def test_chunks_are_bounded_and_a_larger_batch_comes_alone(client: Client) -> None:
    large = batch_of([b"L" * 30_000])
    batches = [*batches_of_ten(1000), large, *batches_of_ten(1000)]
    topic = filled(client, "pieces", batches)
    with RangeReader(client, partition_bytes_max=5_000) as reader:
        chunks = [(len(chunk), records_in(chunk)) for chunk in reader.read(whole(topic, 2001))]
    assert [record[0] for _, records in chunks for record in records] == list(range(2001))
    assert [size for size, _ in chunks if size > 5_000] == [len(large)]
    assert len(chunks) < 20


def test_a_reader_goes_from_range_to_range_also_when_one_is_left_in_the_middle(
    client: Client,
) -> None:
    topic = filled(client, "left", batches_of_ten(1000))
    with RangeReader(client, partition_bytes_max=2_000) as reader:
        left = reader.read(whole(topic, 1000))
        assert records_in(next(left))[0] == (0, b"0")
        left.close()
        assert read_all(reader, whole(topic, 1000, start=500)) == numbered(500, 500)
    assert read_all(reader, whole(topic, 10)) == numbered(10), "a closed one opens again"


def test_the_next_chunk_is_under_way_before_this_one_is_handed_out(client: Client) -> None:
    topic = filled(client, "ahead", batches_of_ten(1000))
    with RangeReader(client, partition_bytes_max=2_000) as reader:
        chunks = reader.read(whole(topic, 1000))
        next(chunks)
        assert reader.is_reading_ahead
        rest = sum(len(records_in(chunk)) for chunk in chunks)
        assert rest > 500
        assert not reader.is_reading_ahead, "behind the end nothing is asked for"


def test_a_range_that_is_none_is_refused(client: Client) -> None:
    topic = made(client, "no-range")
    for start, end in ((5, 4), (-1, 4)):
        with pytest.raises(BadValue, match=f"no-range-0: offsets {start} to {end} are no range"):
            read_all(RangeReader(client), whole(topic, end, start=start))


def test_offsets_that_have_aged_out_are_named_and_reading_can_go_on(
    client: Client, shared_server: Server
) -> None:
    topic = filled(client, "aged", batches_of_ten(50))
    admin = AdminClient({"bootstrap.servers": shared_server.address})
    (deleted,) = admin.delete_records([ConfluentPartition(topic, 0, 25)]).values()
    deleted.result(60)
    reader = RangeReader(client)
    with pytest.raises(DataLost, match=r"aged-0: offsets 3 to 24 are gone: .* begins at") as lost:
        read_all(reader, whole(topic, 50, start=3))
    assert (lost.value.first, lost.value.next_there) == (3, 25)
    rest = read_all(reader, whole(topic, 50, start=lost.value.next_there))
    assert rest == numbered(30, 20), "a batch comes whole"
    with pytest.raises(DataLost, match="offsets 3 to 9 are gone") as lost:
        read_all(reader, whole(topic, 10, start=3))
    assert lost.value.next_there == 10, "nothing is left of the range"


@pytest.mark.parametrize(("start", "first"), [(0, 20), (20, 20), (25, 20)])
def test_what_was_cut_off_is_missed_after_a_while(
    hasty: Client, client: Client, start: int, first: int
) -> None:
    """The log ends before the range does; a new leader may only not know it yet."""
    topic = filled(client, f"cut-{start}", batches_of_ten(20))
    chunks = RangeReader(hasty, wait_ms_max=100).read(whole(topic, 30, start=start))
    if start == 0:
        assert records_in(next(chunks)) == numbered(20)
    began = monotonic()
    with pytest.raises(DataLost, match=f"offsets {first} to 29 are gone: the log was") as lost:
        drained(chunks)
    assert monotonic() - began > SHORT_MS / 1000 - 0.2
    assert (lost.value.first, lost.value.next_there) == (first, 30)


@pytest.mark.parametrize("version", [12, 17])
def test_a_topic_that_was_made_again_is_another_one(
    client: Client, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apis, "FETCH", replace(apis.FETCH, last=version))
    name = f"again-{version}"
    filled(client, name, batches_of_ten(20))
    before = client.cluster([name]).topic(name).topic_id
    wanted = replace(whole(name, 20), topic_id=topic_id(client, name))
    assert delete_topics(client, [name]) == {name: None}
    filled(client, name, batches_of_ten(20))
    after = client.cluster([name]).topic(name).topic_id
    with pytest.raises(DataLost, match=f"its id was {before} and is now {after}") as lost:
        read_all(RangeReader(client), wanted)
    assert (lost.value.first, lost.value.next_there) == (0, 20)


def test_a_topic_made_again_in_the_middle_of_a_range_is_noticed(client: Client) -> None:
    """Also when no id was given: the one that was met first counts."""
    name = filled(client, "replaced", batches_of_ten(1000))
    chunks = RangeReader(client, partition_bytes_max=2_000).read(whole(name, 1000))
    next(chunks)
    assert delete_topics(client, [name]) == {name: None}
    filled(client, name, batches_of_ten(1000))
    with pytest.raises(DataLost, match=r"replaced-0: .* made again"):
        drained(chunks)


def test_a_topic_that_was_deleted_is_lost_data(client: Client, hasty: Client) -> None:
    name = filled(client, "deleted", batches_of_ten(20))
    assert delete_topics(client, [name]) == {name: None}
    with pytest.raises(DataLost, match="offsets 5 to 19 are gone: there is no topic deleted"):
        read_all(RangeReader(hasty), whole(name, 20, start=5))


def test_damage_on_the_way_is_found_and_named(own_server: TidelogServer) -> None:
    with Client(own_server.address) as client:
        topic = filled(client, "damaged", batches_of_ten(30))
        (segment,) = (own_server.log_dir / f"{topic}-0").glob("*.log")
        data = bytearray(segment.read_bytes())
        data[-1] ^= 1
        with segment.open("r+b") as file:
            file.write(data)
        with pytest.raises(KafkaError, match=r"damaged-0: the CRC-32C of the batch at offset 20"):
            read_all(RangeReader(client), whole(topic, 30))
        assert read_all(RangeReader(client), whole(topic, 20)) == numbered(20)


def test_holes_that_compaction_left_are_passed_over(own_server: TidelogServer) -> None:
    with Client(own_server.address) as client:
        batches = [batch_of([b"%d" % n], key=b"k%d" % (n % 7)) for n in range(300)]
        topic = filled(client, "holes", batches, COMPACTED)
        reader = RangeReader(client)
        deadline = monotonic() + 60
        while len(found := read_all(reader, whole(topic, 300))) > 80 and monotonic() < deadline:
            sleep(0.1)
        assert 7 <= len(found) <= 80, "most are overwritten"
        assert all(value == b"%d" % offset for offset, value in found)
        assert [offset for offset, _ in found] == sorted(offset for offset, _ in found)
        holes = set(range(300)) - {offset for offset, _ in found}
        hole = min(holes)
        assert read_all(reader, whole(topic, hole + 1, start=hole)) == []
        assert read_all(reader, whole(topic, 300, start=hole)) == [o for o in found if o[0] > hole]


def test_reading_survives_a_restart_of_the_server(tmp_path: Path) -> None:
    server = new_server(tmp_path, {})
    try:
        server.start()
        with Client(server.address) as client:
            topic = filled(client, "survives", batches_of_ten(2000))
            chunks = RangeReader(client, partition_bytes_max=4_000).read(whole(topic, 2000))
            found = records_in(next(chunks))
            server.kill()
            with ThreadPoolExecutor(1) as pool:
                rest = pool.submit(drained, chunks)
                server.start()
                assert found + rest.result(60) == numbered(2000)
    finally:
        server.close()


def test_a_server_that_stays_away_is_told(tmp_path: Path) -> None:
    server = new_server(tmp_path, {})
    try:
        server.start()
        with Client(server.address, timeout_ms=SHORT_MS) as client:
            topic = filled(client, "away", batches_of_ten(2000))
            chunks = RangeReader(client, partition_bytes_max=4_000).read(whole(topic, 2000))
            next(chunks)
            server.kill()
            with pytest.raises(ConnectionError, match="cannot reach"):
                drained(chunks)
    finally:
        server.close()


def test_nothing_to_read_yet_is_waited_for(client: Client) -> None:
    """A range may end where the log will end soon."""
    topic = made(client, "soon")
    chunks = RangeReader(client, wait_ms_max=5_000).read(whole(topic, 10))

    def write() -> None:
        with Client(str(next(iter(client.cluster().brokers.values())).address)) as other:
            writer = BatchWriter(other)
            writer.send(topic, 0, batch_of(b"%d" % number for number in range(10)))
            writer.flush()

    writing = threading.Timer(0.2, write)
    writing.start()
    assert drained(chunks) == numbered(10)
    writing.join()


def test_a_partition_that_is_not_there_is_named(hasty: Client, client: Client) -> None:
    made(client, "just-one-wide")
    with pytest.raises(DataLost, match="just-one-wide has no partition 3") as lost:
        read_all(RangeReader(hasty), whole("just-one-wide", 5, partition=3))
    assert lost.value.code is ErrorCode.offset_out_of_range
