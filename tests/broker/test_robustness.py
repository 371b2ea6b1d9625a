"""A real broker process among clients that mean no good: garbage, floods, silence, bombs.

Rules B1-B6, B11, B12 and tests Z1-Z4, on sockets. One server serves the whole file; beside every
attack a well-behaved client goes on producing and consuming, and must hardly notice.
"""

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from functools import cache, partial
from itertools import product
from random import Random

import cramjam
import pytest

from support.brokers import one_batch
from support.mutants import mutated, requests
from support.servers import PEER, TidelogServer
from support.wire_client import (
    API_VERSIONS,
    DESCRIBE_CONFIGS,
    FETCH,
    INCREMENTAL_ALTER_CONFIGS,
    LIST_OFFSETS,
    METADATA,
    PRODUCE,
    WireClient,
    children,
    fetching,
    forget_peak,
    memory_bytes,
    peak_memory_bytes,
    production,
    request_bytes,
)
from support.witness import MIB, SETTINGS, check_log, plain_socket, witnessed
from tidelog.records.batch import BatchHeader, seal
from tidelog.records.reference import Record, encode_batch

FUZZED_FRAMES = 60_000
FRAMES_EACH = 12

ZEROS = bytes(8)
BOMB_CONTENTS = (ZEROS, b"\x0e\0\0\0\x02k\0\0")
"""Eight bytes that come again and again: nothing, or a whole record with the key `k`."""
BOMB_SIZES = tuple(size * MIB for size in (21, 24, 32, 48, 80, 128))
CODECS: Mapping[int, Callable[[bytes], cramjam.Buffer]] = {
    1: partial(cramjam.gzip.compress, level=1),
    2: cramjam.snappy.compress_raw,
    3: partial(cramjam.lz4.compress, level=1),
    4: cramjam.zstd.compress,
}

pytestmark = pytest.mark.skipif(PEER != "", reason="looks into tidelog's own process")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TidelogServer]:
    folder = tmp_path_factory.mktemp("robust")
    server = TidelogServer(folder, SETTINGS)
    server.start()
    try:
        with WireClient(server.address) as client:
            client.create("witness")
            for kind in (0, 1):
                # Whoever asks first has the topics of coordinators made, with their many files.
                client.ask(10, 4, key_type=kind, coordinator_keys=["any"])
            client.create("bulk", max_message_bytes=8 * MIB)
            for _ in range(12):
                client.produce("bulk", one_batch("x" * 4 * MIB))
        yield server
        check_log(server)
        server.stop()
    finally:
        server.close()


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


# -- garbage


def test_mutated_frames_do_not_hurt(server: TidelogServer) -> None:
    """Z1, Z2: structure-aware mutants of every API and version, on many connections."""
    random = Random(4)
    valid = requests(seed=4, each=2)
    with witnessed(server):
        for number in range(FUZZED_FRAMES // FRAMES_EACH):
            frames = [_hostile(random, valid) for _ in range(FRAMES_EACH)]
            data = b"".join(frames)
            if number % 5 == 0:
                data = data[: random.randrange(len(data))]
            _say(server.address, data, is_abrupt=number % 3 == 0)


def _hostile(random: Random, valid: list[bytes]) -> bytes:
    frame = mutated(random, random.choice(valid), random.choice(valid))
    if random.random() < 0.02:
        return random.randbytes(random.randrange(200))
    if random.random() < 0.03:
        return struct.pack(">i", random.getrandbits(32) - (1 << 31)) + frame
    return framed(frame)


def _say(address: str, data: bytes, *, is_abrupt: bool) -> None:
    """Sends and listens for a moment. What comes back is of no interest."""
    with plain_socket(address) as link:
        link.settimeout(0.01)
        with suppress(OSError):
            link.sendall(data)
            link.recv(1 << 16)
        if is_abrupt:
            link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def test_every_prefix_of_a_request_may_be_all_that_comes(server: TidelogServer) -> None:
    """Z2."""
    frames = [
        request_bytes(API_VERSIONS, 4, client_software_name="a", client_software_version="1"),
        request_bytes(PRODUCE, 9, **production("witness", one_batch("cut"))),
        request_bytes(FETCH, 12, **fetching("witness", 0)),
    ]
    with witnessed(server):
        for frame in frames:
            for size in range(1, len(frame)):
                with plain_socket(server.address) as link:
                    link.sendall(frame[:size])


def test_a_declared_length_allocates_nothing(server: TidelogServer) -> None:
    """B1: buffers grow with what has come."""
    with witnessed(server, growth_max=32 * MIB), ExitStack() as links:
        for _ in range(200):
            link = links.enter_context(plain_socket(server.address))
            link.sendall(struct.pack(">i", 100 * MIB) + b"\0\0\0\x09" + b"x" * 40_000)
        time.sleep(0.5)


def test_records_are_stored_only_if_their_batch_is_sound(server: TidelogServer) -> None:
    """Z3, B5."""
    random = Random(5)
    good = one_batch("a", "b", "c")
    with WireClient(server.address) as client:
        client.create("mutants")
        for _ in range(1_000):
            bad = bytearray(good)
            at = random.randrange(len(bad))
            bad[at] ^= random.randrange(1, 256)
            answer = client.produce("mutants", bytes(bad))
            is_stamped_anew = 12 <= at < 16
            assert (answer.error_code.name == "none") == is_stamped_anew, (at, answer)


# -- too much


def test_a_burst_of_requests_is_answered_in_shares(server: TidelogServer) -> None:
    """B3: what was asked for in one go neither keeps the loop nor piles up unsent."""
    with WireClient(server.address) as client:
        client.create("wide", partitions=500)
    everything = request_bytes(METADATA, 12, topics=None, include_topic_authorized_operations=False)
    with witnessed(server, growth_max=32 * MIB), ExitStack() as links:
        for _ in range(3):
            link = links.enter_context(plain_socket(server.address))
            link.setblocking(False)
            link.send(everything * (60_000 // len(everything)))
        time.sleep(1)


def test_all_of_a_burst_is_answered_in_order(server: TidelogServer) -> None:
    count = 3_000
    data = b"".join(
        request_bytes(METADATA, 12, number, topics=[], include_topic_authorized_operations=False)
        for number in range(count)
    )
    with WireClient(server.address) as client:
        threading.Thread(target=client.socket.sendall, args=(data,), daemon=True).start()
        for number in range(count):
            assert struct.unpack_from(">i", client.receive_frame()) == (number,)


def test_a_client_that_does_not_read_costs_no_memory(server: TidelogServer) -> None:
    """B3: fetches of 48 MB each, asked for again and again, never read."""
    ask = request_bytes(FETCH, 12, **fetching("bulk", 0, max_bytes=50 * MIB))
    small = request_bytes(FETCH, 12, **fetching("witness", 0, max_bytes=30_000))
    with witnessed(server, growth_max=32 * MIB), ExitStack() as links:
        for number in range(20):
            link = links.enter_context(plain_socket(server.address))
            link.setblocking(False)
            with suppress(BlockingIOError):
                link.send((ask if number % 2 else small) * 500)
        time.sleep(1)


def test_large_requests_that_wait_for_an_answer_are_bounded(server: TidelogServer) -> None:
    """B3: a compacted topic's batches are looked into, which takes time; senders wait."""
    with WireClient(server.address) as client:
        client.create("kept", cleanup_policy="compact")
    values = Random(6).randbytes(900_000).hex()[:900_000]
    data = request_bytes(PRODUCE, 9, **production("kept", one_batch(values)))
    with witnessed(server, growth_max=256 * MIB), ExitStack() as links:
        senders = []
        for _ in range(4):
            link = links.enter_context(plain_socket(server.address))
            sender = threading.Thread(target=_send_all, args=(link, data * 60), daemon=True)
            sender.start()
            senders.append(sender)
        time.sleep(2)


def _send_all(link: socket.socket, data: bytes) -> None:
    with suppress(OSError):
        link.settimeout(3)
        link.sendall(data)


def test_only_produce_may_be_large(server: TidelogServer) -> None:
    """B2."""
    with witnessed(server):
        for _ in range(5):
            with plain_socket(server.address) as link, suppress(OSError):
                header = struct.pack(">hhih", METADATA, 8, 1, -1)
                link.sendall(framed(header + struct.pack(">i", 3 * MIB) + b"\0\1a" * 3 * MIB))
                assert link.recv(100) == b""


@pytest.mark.parametrize("version", [0, 2])
def test_an_old_produce_request_of_countless_partitions_is_refused(
    server: TidelogServer, version: int
) -> None:
    """B2: eight bytes each, and an answer of twenty-two for every one of them."""
    count = 2_000_000
    header = struct.pack(">hhih", PRODUCE, version, 1, -1) + struct.pack(">hi", 1, 1000)
    body = struct.pack(">ih", 1, 1) + b"t" + struct.pack(">i", count) + bytes(8) * count
    with witnessed(server), plain_socket(server.address) as link:
        link.sendall(framed(header + body))
        with suppress(ConnectionError):
            assert link.recv(100) == b""


# -- bombs


@pytest.mark.parametrize("settings", [{"cleanup_policy": "compact"}, {"compression_type": "lz4"}])
def test_bombs_do_not_go_off(server: TidelogServer, settings: dict[str, str]) -> None:
    """Z4: a batch of a megabyte may decompress to 20, whatever it claims; each of 48 is refused,
    and neither the broker nor its child takes the memory it asks for."""
    topic = "bombs-" + "-".join(settings.values())
    bombs = list(product(CODECS, BOMB_CONTENTS, BOMB_SIZES))
    assert len(bombs) == 48
    with WireClient(server.address, 60) as client:
        client.create(topic, 1, **settings)
        client.produce(topic, one_batch("a", "b"))
        before = {child: memory_bytes(child) for child in children(server.process_id)}
        for child in before:
            forget_peak(child)
        with witnessed(server, growth_max=32 * MIB):
            for kind in bombs:
                answer = client.produce(topic, bomb(*kind))
                assert answer.error_code.name in ("invalid_record", "message_too_large"), kind
        growth = [peak_memory_bytes(child) - size for child, size in before.items()]
        print(f"the children grew by {growth} bytes")
        assert len(growth) > 0
        assert max(growth) < 20 * MIB * 3 + 32 * MIB


def test_a_batch_that_would_be_stored_larger_than_allowed_is_refused_beside_the_broker(
    server: TidelogServer,
) -> None:
    """B4: it is within what may be decompressed, but comes back to the broker as a refusal."""
    value = Record(offset=0, timestamp=0, key=b"k", value=bytes(18 * MIB))
    batch = bytes(encode_batch([value], compression=4))
    with WireClient(server.address, 60) as client:
        client.create("plain", compression_type="uncompressed")
        client.produce("plain", one_batch("a"))
        with witnessed(server, growth_max=24 * MIB):
            for _ in range(3):
                answer = client.produce("plain", batch)
                assert answer.error_code.name == "message_too_large"


# -- much in one request


def test_looking_up_times_in_many_partitions_slows_nobody(server: TidelogServer) -> None:
    records = [Record(offset=n, timestamp=n, key=b"k", value=b"x" * 80) for n in range(9_000)]
    batch = bytes(encode_batch(records))
    with WireClient(server.address, 60) as client:
        client.create("times", partitions=30)
        for index in range(30):
            assert client.produce("times", batch, index=index).error_code.name == "none"
        asked = [
            {"partition_index": index, "timestamp": 8_999, "current_leader_epoch": -1}
            for index in range(30)
        ]
        with witnessed(server):
            answer = client.ask(
                LIST_OFFSETS,
                7,
                replica_id=-1,
                isolation_level=0,
                topics=[{"name": "times", "partitions": asked}],
            )
    assert {row.offset for row in answer.topics[0].partitions} == {8_999}


def test_small_questions_with_large_answers_are_bounded(server: TidelogServer) -> None:
    """B2, 2026-111108: what a request names costs much more than the bytes it is named with."""
    same = {"resource_type": 2, "resource_name": "witness", "configuration_keys": None}
    change = [{"name": "retention.ms", "config_operation": 0, "value": "1"}]
    unknown = [
        {"resource_type": 2, "resource_name": f"no-{number}", "configs": change}
        for number in range(5_000)
    ]
    with witnessed(server), WireClient(server.address, 60) as client:
        described = client.ask(
            DESCRIBE_CONFIGS,
            4,
            resources=[same] * 9_000,
            include_synonyms=True,
            include_documentation=True,
        )
        assert len(described.results) == 1
        altered = client.ask(INCREMENTAL_ALTER_CONFIGS, 1, resources=unknown, validate_only=False)
        assert len(altered.responses) == 5_000


@cache
def bomb(codec: int, content: bytes, size: int) -> bytes:
    """One record of zeros, or as many small ones as there is room for."""
    data = bytes(CODECS[codec](content * (size // len(content))))
    count = 1 if content == ZEROS else size // len(content)
    header = BatchHeader(
        base_offset=0,
        length=0,
        partition_leader_epoch=-1,
        magic=2,
        crc=0,
        attributes=codec,
        last_offset_delta=count - 1,
        base_timestamp=0,
        max_timestamp=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        record_count=count,
    )
    return bytes(seal(header, data[:1_000_000]))
