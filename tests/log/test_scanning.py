"""The compiled scan of a segment against the plain one, on whole logs and on damaged ones (S9,
V18), and what it hands on for the producer state against a replay of everything."""

from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.compaction import NOW, SETTINGS, Folder
from tidelog.base.ports import Disk
from tidelog.log import scanning
from tidelog.log.epochs import LeaderEpochs
from tidelog.log.files import LOG, REBUILT, OpenFiles, file_name, read_whole
from tidelog.log.producers import Producers
from tidelog.log.replay import note_batch
from tidelog.log.scan import Place, good_batches
from tidelog.log.scanning import scan
from tidelog.log.segment import Segment
from tidelog.log.txn_index import AbortedTransaction
from tidelog.records.batch import BatchHeader, seal
from tidelog.records.reference import Record, encode_batch
from tidelog.world.real.disk import RealDisk
from tidelog.world.sim.disk import SimDisk

BASE = 1000


def put(disk: Disk, folder: str, data: bytes) -> str:
    disk.make_folder(folder)
    path = f"{folder}/{file_name(BASE, LOG)}"
    file = disk.open(path, "create")
    file.truncate(0)
    file.pwrite(data, 0)
    return path


def argument(folder: str, data: bytes, **changes: Any) -> dict[str, Any]:
    return {
        "folder": folder,
        "base": BASE,
        "from_position": 0,
        "size": len(data),
        "expected_offset": BASE,
        "index_interval_bytes": SETTINGS.index_interval_bytes,
        "max_index_bytes": SETTINGS.index_bytes_max,
    } | changes


def scanned(data: bytes, **changes: Any) -> dict[str, Any]:
    disk = SimDisk()
    put(disk, "/t-0", data)
    return scan(disk, argument("/t-0", data, **changes))


def replay(producers: Producers, rows: list[list[int]]) -> list[AbortedTransaction]:
    """Brings the state up to date with what a scan hands on."""
    aborted = []
    for row in rows:
        _, base, delta, attributes, timestamp, producer_id, epoch, sequence, *marker = row
        if not marker:
            offsets = (base, base + delta)
            producers.append(producer_id, epoch, sequence, offsets, timestamp, attributes)
        else:
            end = (base, marker[1], marker[0] == 0)
            entry = producers.end_transaction(producer_id, epoch, end, timestamp)
            if entry is not None:
                aborted.append(entry)
    return aborted


def known(producers: Producers, headers: list[BatchHeader]) -> dict[int, tuple[Any, ...]]:
    """All that a log can be asked about its producers."""
    sent = {(header.base_sequence, header.last_sequence) for header in headers}
    return {
        producer_id: (
            producer.epoch,
            producer.coordinator_epoch,
            producer.last_timestamp,
            producer.txn_first_offset,
            producer.last_sequence,
            producer.last_offset,
            {sequences: producer.find(*sequences) for sequences in sent},
        )
        for producer_id, producer in producers.by_id.items()
    }


def check_against_plain_scan(data: bytes, **changes: Any) -> dict[str, Any]:
    """All that a scan answers and writes, from the plain walk."""
    disk = SimDisk()
    path = put(disk, "/t-0", data)
    asked = argument("/t-0", data, **changes)
    result = scan(disk, asked)
    trusted = asked.get("trusted_upto", 0)
    if result["damaged"] or (
        result["valid_bytes"] < asked["size"] and result["next_offset"] < trusted
    ):
        return result  # Damage in what was durable: the plain scan takes over, with more patience.
    place = Place(segment_base=BASE, expected_offset=BASE, trusted_upto=trusted)
    good = list(good_batches(disk.open(path, "read"), asked["from_position"], asked["size"], place))
    end = good[-1].position + good[-1].header.size if good else asked["from_position"]
    assert result["valid_bytes"] == end
    assert (result["reason"] is None) == (end == asked["size"])
    assert result["batches"] == len(good)
    assert result["next_offset"] == (good[-1].header.next_offset if good else BASE)
    producers, aborted, epochs, latest = Producers(), [], [], -1
    for batch in good:
        entry = note_batch(producers, batch.header, batch.data)
        if entry is not None:
            aborted.append(entry)
        epoch = batch.header.partition_leader_epoch
        if epoch >= 0 and epoch != latest:
            epochs.append([epoch, batch.header.base_offset])
            latest = epoch
    assert result["epochs"] == epochs
    replayed = Producers()
    assert replay(replayed, result["producer_batches"]) == aborted
    headers = [batch.header for batch in good]
    assert known(replayed, headers) == known(producers, headers)
    assert replayed.first_unstable_offset == producers.first_unstable_offset
    check_indexes(disk, end, result)
    return result


def check_indexes(disk: Disk, end: int, result: dict[str, Any]) -> None:
    segment = Segment("/t-0", BASE, SETTINGS, OpenFiles(disk, 10))
    paths = {kind: segment.path(kind) for kind in (".index", ".timeindex")}
    rebuilt = {kind: read_whole(disk, path + REBUILT) for kind, path in paths.items()}
    segment.size = end
    segment.rebuild_indexes(disk)
    assert rebuilt == {kind: read_whole(disk, path) for kind, path in paths.items()}
    assert segment.offset_index.count == len(rebuilt[".index"]) // 8
    assert segment.time_index.count == len(rebuilt[".timeindex"]) // 12
    assert result["max_timestamp"] == segment.max_timestamp
    assert result["max_timestamp_offset"] == segment.max_timestamp_offset


batch_steps = st.tuples(
    st.sampled_from(["plain", "idempotent", "transactional", "unsequenced", "commit", "abort"]),
    st.integers(0, 2),  # which producer
    st.integers(0, 2),  # its epoch
    st.integers(1, 3),  # how many records
    st.integers(0, 3),  # leader epoch
    st.integers(0, 3),  # a gap before it
)


def build(history: list[tuple[str, int, int, int, int, int]]) -> bytes:
    folder = Folder(SimDisk(), next_offset=BASE)
    parts = []
    sequence = 0
    for name, producer, epoch, count, leader_epoch, gap in history:
        folder.next_offset += gap
        if name in ("commit", "abort"):
            marker = folder.end_transaction(producer, committed=name == "commit", epoch=epoch)
            parts.append(marker.data)
            continue
        fields: dict[str, Any] = {"leader_epoch": leader_epoch - 1}
        if name != "plain":
            fields |= {"producer_id": producer, "producer_epoch": epoch}
        if name in ("idempotent", "transactional"):
            fields["base_sequence"] = sequence = sequence + 7
        fields["transactional"] = name in ("transactional", "unsequenced")
        parts.append(folder.append([(b"k", b"v" * 20)] * count, **fields).data)
    return b"".join(parts)


histories = st.lists(batch_steps, max_size=30)
RELAXED = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@given(histories, st.sampled_from([140, 200, 1 << 20]), st.sampled_from([1, 3, 1 << 14]))
@RELAXED
def test_a_good_log_is_scanned_as_the_plain_walk_does(
    history: list[tuple[str, int, int, int, int, int]], size: int, room: int
) -> None:
    data = build(history)
    with (
        patch.object(scanning, "CHUNK_BYTES", size),
        patch.object(scanning, "_ROOM", room),
        patch.object(scanning, "_FEW_PRODUCERS", 2),
    ):
        result = check_against_plain_scan(data)
    assert result["valid_bytes"] == len(data)
    assert result["reason"] is None


@given(
    histories,
    st.sampled_from([140, 200, 1 << 20]),
    st.sampled_from(["flip", "cut", "zero tail", "zeros within", "garbage", "twice"]),
    st.integers(0, 10_000),
    st.integers(0, 7),
    st.sampled_from([0, BASE + 5, 1 << 40]),
)
@RELAXED
def test_a_damaged_log_is_cut_where_the_plain_walk_cuts_it(
    history: list[tuple[str, int, int, int, int, int]],
    size: int,
    damage: str,
    position: int,
    bit: int,
    trusted_upto: int,
) -> None:
    data = bytearray(build(history))
    at = position % (len(data) + 1)
    if damage == "flip" and data:
        data[at % len(data)] ^= 1 << bit
    elif damage == "cut":
        del data[at:]
    elif damage == "zero tail":
        data += bytes(position % 200)
    elif damage == "zeros within":
        data[at : at + 100] = bytes(min(100, len(data) - at))
    elif damage == "garbage":
        data[at:] = bytes((bit * 37 + i * 11) % 256 for i in range(90))
    else:
        data += data[at:]
    with patch.object(scanning, "CHUNK_BYTES", size):
        check_against_plain_scan(bytes(data), trusted_upto=trusted_upto)


def one(offset: int, **fields: Any) -> bytes:
    record = Record(offset=offset, timestamp=NOW, key=b"k", value=b"v")
    return bytes(encode_batch([record], base_offset=offset, **fields))


def test_the_reason_says_what_was_found_and_where() -> None:
    good = one(BASE)
    size = len(good)
    assert scanned(good)["reason"] is None
    assert scanned(good + bytes(500))["reason"] == f"zeros at position {size}"
    assert scanned(good + bytes(5))["reason"] == f"zeros at position {size}"
    assert scanned(good + one(BASE + 1)[:-1])["reason"] == f"torn at position {size}"
    assert scanned(good + b"12345")["reason"] == f"torn at position {size}"
    flipped = bytearray(one(BASE + 1))
    flipped[-1] ^= 1
    assert scanned(good + bytes(flipped))["reason"] == f"bad CRC at position {size}"
    assert "bad header: the magic" in scanned(good + b"\xff" * 100)["reason"]
    assert "bad header: the offsets" in scanned(good * 2)["reason"]
    assert scanned(good * 2)["next_offset"] == BASE + 1
    assert scanned(one(BASE), expected_offset=BASE + 1)["valid_bytes"] == 0
    assert scanned(one(BASE + 5), expected_offset=BASE + 1)["valid_bytes"] == size


def test_an_offset_too_far_from_the_base_ends_the_scan() -> None:
    data = one(BASE) + one(BASE + (1 << 31) - 1) + one(BASE + (1 << 31))
    result = scanned(data)
    assert result["batches"] == 2
    assert result["next_offset"] == BASE + (1 << 31)
    assert "too far" in result["reason"]


def test_offsets_beyond_64_bits_are_refused() -> None:
    header = BatchHeader((1 << 63) - 1, 0, 0, 2, 0, 0, 5, NOW, NOW, -1, -1, -1, 0)
    assert "the offsets" in scanned(bytes(seal(header, b"")))["reason"]


def test_a_scan_of_the_tail_begins_in_the_middle_and_writes_no_index() -> None:
    first, second = one(BASE, leader_epoch=4), one(BASE + 9, leader_epoch=5)
    disk = SimDisk()
    put(disk, "/t-0", first + second)
    asked = argument("/t-0", first + second, from_position=len(first), expected_offset=BASE + 1)
    result = scan(disk, asked)
    assert (result["batches"], result["next_offset"]) == (1, BASE + 10)
    assert result["valid_bytes"] == len(first + second)
    assert result["epochs"] == [[5, BASE + 9]]
    assert disk.list("/t-0") == [file_name(BASE, LOG)]


@pytest.mark.parametrize("damaged", [False, True])
def test_a_batch_larger_than_a_buffer_is_checked_piece_by_piece(damaged: bool) -> None:
    large = Record(offset=BASE + 1, timestamp=NOW + 5, key=b"k", value=bytes(3_000_000))
    data = encode_batch(
        [large], base_offset=BASE + 1, producer_id=5, producer_epoch=1, base_sequence=2
    )
    data[2_000_000] ^= damaged
    whole = one(BASE) + bytes(data) + one(BASE + 2)
    result = check_against_plain_scan(whole)
    assert result["batches"] == (1 if damaged else 3)
    assert result["producer_batches"] == (
        [] if damaged else [[len(one(BASE)), BASE + 1, 0, 0, NOW + 5, 5, 1, 2]]
    )
    assert scanned(whole, trusted_upto=BASE + 3)["damaged"] == damaged
    assert scanned(whole[:-1000])["batches"] == 1


def test_a_claimed_length_of_gigabytes_reads_nothing_more() -> None:
    data = bytearray(one(BASE))
    data[8:12] = (0x7FFFFFFF).to_bytes(4, "big")
    assert scanned(bytes(data))["reason"] == "torn at position 0"


def test_many_producers_come_back_with_their_last_five_batches() -> None:
    folder = Folder(SimDisk(), next_offset=BASE)
    parts = []
    for number in range(3000):
        fields = {"producer_id": number % 300 * 1_000_003, "producer_epoch": 0}
        parts.append(folder.append([(b"k", b"v")], base_sequence=number, **fields).data)
    with patch.object(scanning, "_FEW_PRODUCERS", 4):
        result = check_against_plain_scan(b"".join(parts))
    assert len(result["producer_batches"]) == 300 * 6


def test_where_a_long_transaction_began_comes_back() -> None:
    folder = Folder(SimDisk(), next_offset=BASE)
    fields = {"producer_id": 7, "producer_epoch": 0, "transactional": True}
    parts = [folder.append([(b"k", b"v")], base_sequence=0, **fields).data]
    parts.append(folder.end_transaction(7, committed=False).data)
    began = folder.next_offset
    parts += [
        folder.append([(b"k", b"v")], base_sequence=sequence, **fields).data
        for sequence in range(1, 10)
    ]
    result = check_against_plain_scan(b"".join(parts))
    replayed = Producers()
    (aborted,) = replay(replayed, result["producer_batches"])
    assert (aborted.first_offset, aborted.last_offset) == (BASE, BASE + 1)
    assert replayed.by_id[7].txn_first_offset == began
    assert len(result["producer_batches"]) == 3 + 5


def test_the_epochs_of_a_scan_make_the_same_cache() -> None:
    data = one(BASE, leader_epoch=1) + one(BASE + 1, leader_epoch=3) + one(BASE + 2, leader_epoch=3)
    result = scanned(data)
    entries = [(epoch, start) for epoch, start in result["epochs"]]
    assert LeaderEpochs(entries).entries == [(1, BASE), (3, BASE + 1)]


def test_a_scan_on_the_real_disk_leaves_durable_indexes(tmp_path: Path) -> None:
    disk, folder = RealDisk(), str(tmp_path)
    data = b"".join(one(BASE + number) for number in range(100))
    put(disk, folder, data)
    result = scan(disk, argument(folder, data))
    assert result["batches"] == 100
    entries = (tmp_path / f"{file_name(BASE, '.index')}{REBUILT}").read_bytes()
    assert len(entries) % 8 == 0
    assert len(entries) // 8 > 20
