"""Compaction, one rule at a time (S6, V16), on the simulated disk and on the real one."""

import errno
from pathlib import Path
from unittest.mock import patch

import pytest

from support.compaction import NOW, RETENTION_MS, Folder, read_batches
from tidelog.base.errors import BadValue
from tidelog.log import chunks
from tidelog.log.cleaning import ClosedSegment, clean, group_segments
from tidelog.log.files import SEGMENT_KINDS
from tidelog.records.batch import HEADER_SIZE, BatchHeader, seal
from tidelog.records.key_table import SLOT_BYTES
from tidelog.records.reference import Record, encode_batch
from tidelog.world.real.disk import RealDisk
from tidelog.world.sim.disk import Crashed, SimDisk


@pytest.fixture(params=["simulated", "real"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Folder:
    if request.param == "real":
        return Folder(RealDisk(), str(tmp_path / "orders-0"))
    return Folder(SimDisk())


def offsets(folder: Folder) -> list[int]:
    return [record.offset for batch in folder.batches() for record in batch.records]


def cleaned_files(folder: Folder) -> list[str]:
    return [name for name in folder.disk.list(folder.path) if name.endswith(".cleaned")]


def test_the_last_record_of_each_key_stays_at_its_offset(folder: Folder) -> None:
    folder.append([(b"a", b"1"), (b"b", b"2")])
    folder.append([(b"a", b"3"), (b"c", b"4")])
    folder.roll()
    folder.append([(b"b", b"5")])
    folder.roll()
    result = folder.clean()
    assert offsets(folder) == [2, 3, 4]
    assert result["end"] == 5
    (group,) = result["groups"]
    assert (group["base"], group["replaces"]) == (0, [0, 4])
    assert group["size"] == result["stats"]["bytes_written"] == len(folder.log(0))
    assert result["stats"]["records_read"] == 5
    assert result["stats"]["records_kept"] == 3


def test_a_batch_that_loses_nothing_is_copied_byte_for_byte(folder: Folder) -> None:
    for codec in range(5):
        folder.append([(b"%d" % codec, b"v" * 50)] * 1, compression=codec, leader_epoch=codec)
    folder.roll()
    before = folder.log(0)
    folder.clean()
    assert folder.log(0) == before


def test_a_batch_that_loses_records_keeps_all_else_that_its_header_says(folder: Folder) -> None:
    was = folder.append(
        [(b"a", b"1"), (b"b", b"2"), (b"a", b"3")],
        producer_id=4,
        producer_epoch=1,
        base_sequence=9,
        leader_epoch=6,
        compression=4,
    )
    folder.append([(b"b", b"4")])
    folder.roll()
    folder.clean()
    batch = folder.batches()[0]
    assert [record.offset for record in batch.records] == [2]
    assert batch.header == was.header._replace(
        length=batch.header.length,
        crc=batch.header.crc,
        record_count=1,
        max_timestamp=batch.records[0].timestamp,
    )


def test_records_without_a_key_go(folder: Folder) -> None:
    folder.append([(None, b"1"), (b"a", b"2")])
    folder.roll()
    folder.clean()
    assert offsets(folder) == [1]


@pytest.mark.parametrize("codec", [0, 4])
def test_a_tombstone_stays_until_its_horizon_has_passed(folder: Folder, codec: int) -> None:
    folder.append([(b"a", b"1")])
    was = folder.append([(b"a", None), (b"b", b"2")], compression=codec)
    folder.roll()
    folder.clean()
    batch = folder.batches()[0]
    horizon_ms = folder.now_ms + RETENTION_MS
    assert batch.header.delete_horizon_ms == horizon_ms
    assert batch.records == was.records, "timestamps too, though their base has moved"
    folder.now_ms = horizon_ms - 1
    folder.clean(first_dirty=folder.next_offset)
    assert folder.batches() == [batch]
    folder.now_ms = horizon_ms
    folder.clean(first_dirty=folder.next_offset)
    assert offsets(folder) == [2]
    assert folder.batches()[0].header.delete_horizon_ms == horizon_ms, "it is set only once"


def test_timestamps_far_from_the_horizon_survive_it(folder: Folder) -> None:
    far = [0, 1, NOW * 1000, -1, (1 << 62), -(1 << 62)]
    records = [
        Record(offset=i, timestamp=timestamp, key=b"%d" % i) for i, timestamp in enumerate(far)
    ]
    was = folder.append_bytes(bytes(encode_batch(records)))
    folder.roll()
    folder.clean()
    assert folder.batches()[0].header.delete_horizon_ms is not None
    assert folder.batches()[0].records == was.records


def test_data_of_an_aborted_transaction_goes_and_hides_nothing(folder: Folder) -> None:
    folder.append([(b"a", b"good")])
    folder.append([(b"a", b"bad")], producer_id=7, producer_epoch=0, transactional=True)
    folder.roll()
    folder.end_transaction(7, committed=False)
    folder.roll()
    folder.clean(max_segment_bytes=1)
    assert [r.value for b in folder.batches() if not b.header.is_control for r in b.records] == [
        b"good"
    ]


def test_what_a_producer_commits_after_an_aborted_transaction_stays(folder: Folder) -> None:
    fields = {"producer_id": 7, "producer_epoch": 0, "transactional": True}
    folder.append([(b"a", b"before")], **fields)
    folder.end_transaction(7, committed=True)
    folder.append([(b"a", b"bad"), (b"b", b"bad")], **fields)
    folder.end_transaction(7, committed=False)
    folder.append([(b"a", b"after")], **fields)
    folder.end_transaction(7, committed=True)
    folder.roll()
    folder.clean()
    assert {key: record.value for key, record in folder.state().items()} == {b"a": b"after"}
    assert offsets(folder) == [1, 4, 5, 6]


def test_the_marker_beyond_what_is_cleaned_still_counts(folder: Folder) -> None:
    """An open transaction holds the last stable offset back, behind it another was aborted."""
    folder.append([(b"a", b"good")])
    folder.append([(b"a", b"bad")], producer_id=7, producer_epoch=0, transactional=True)
    folder.roll()
    folder.append([(b"b", b"open")], producer_id=8, producer_epoch=0, transactional=True)
    folder.end_transaction(7, committed=False)
    result = folder.clean()
    assert result["end"] == 2
    assert folder.state()[b"a"].value == b"good"
    assert offsets(folder) == [0, 2, 3]


@pytest.mark.parametrize("committed", [True, False])
def test_a_marker_stays_while_its_data_does_and_then_until_its_horizon(
    folder: Folder, committed: bool
) -> None:
    folder.append([(b"a", b"1")], producer_id=7, producer_epoch=0, transactional=True)
    folder.end_transaction(7, committed=committed)
    folder.append([(b"a", b"2")])
    folder.roll()
    marker_offset = 1

    def horizons() -> list[int | None]:
        headers = [b.header for b in folder.batches() if b.header.base_offset == marker_offset]
        return [header.delete_horizon_ms for header in headers]

    entries = [] if committed else folder.index_entries(0)
    folder.clean()
    assert horizons() == [None], "its data was there"
    assert folder.index_entries(0) == entries
    folder.clean(first_dirty=3)
    assert horizons() == [folder.now_ms + RETENTION_MS]
    assert folder.index_entries(0) == entries
    folder.now_ms += RETENTION_MS
    folder.clean(first_dirty=3)
    assert horizons() == []
    assert folder.index_entries(0) == []
    assert offsets(folder) == [2]


def test_an_emptied_batch_goes_unless_a_producer_needs_its_last_offset(folder: Folder) -> None:
    for producer_id in (1, 2):
        fields = {"producer_id": producer_id, "producer_epoch": 3, "base_sequence": 8}
        folder.append([(b"a", b"1"), (b"b", b"2")], compression=producer_id, **fields)
    folder.append([(b"a", b"3"), (b"b", b"4")])
    folder.roll()
    folder.clean(active_producers=[3, 99])
    first, second = folder.batches()
    assert (first.header.producer_id, first.header.last_offset) == (2, 3)
    assert (first.header.record_count, first.header.size) == (0, HEADER_SIZE)
    assert (first.header.base_sequence, first.header.last_sequence) == (8, 9)
    assert second.header.record_count == 2
    folder.clean(first_dirty=6)
    assert [batch.header.base_offset for batch in folder.batches()] == [4]


def test_a_marker_stays_where_nothing_else_has_the_epoch_of_its_producer(folder: Folder) -> None:
    """It fences those of lower epochs: a log from which it had gone would take what they send."""
    for producer_id in (7, 8):
        folder.append([(b"a", b"1")], producer_id=producer_id, producer_epoch=0, transactional=True)
        folder.end_transaction(producer_id, committed=producer_id == 7, epoch=5)
    folder.append([(b"a", b"2")])
    folder.roll()
    for _ in range(3):
        folder.clean(first_dirty=4, raised_epochs=[[7, 5], [8, 4]])
        folder.now_ms += RETENTION_MS
    assert [batch.header.base_offset for batch in folder.batches()] == [1, 4]
    assert len(folder.batches()[0].records) == 1
    folder.clean(first_dirty=4)
    assert [batch.header.base_offset for batch in folder.batches()] == [4]


def test_the_last_batch_of_a_group_stays_if_empty(folder: Folder) -> None:
    folder.append([(b"a", b"1")])
    folder.append([(b"b", b"1"), (b"c", b"1")])
    folder.roll()
    folder.append([(b"a", b"2"), (b"b", b"2"), (b"c", b"2")])
    folder.roll()
    folder.clean(max_segment_bytes=1)
    last = read_batches(folder.log(0))[-1].header
    assert (last.base_offset, last.last_offset, last.record_count) == (1, 2, 0)


def test_what_the_map_has_no_room_for_waits_for_the_next_pass(folder: Folder) -> None:
    for key in b"abcdefabcdef":
        folder.append([(bytes([key]), b"v")])
        folder.roll()
    first = folder.clean(map_bytes=SLOT_BYTES * 4, load_factor=0.75)
    assert first["end"] == 3
    assert offsets(folder) == list(range(12)), "none of the first three has come again yet"
    end, passes = 3, 1
    while end < 12:
        end = folder.clean(end, map_bytes=SLOT_BYTES * 4, load_factor=0.75)["end"]
        passes += 1
    assert passes == 4
    assert offsets(folder) == [6, 7, 8, 9, 10, 11]


def test_a_map_without_room_for_one_batch_is_refused(folder: Folder) -> None:
    folder.append([(bytes([key]), b"v") for key in range(10)])
    folder.roll()
    with pytest.raises(ValueError, match=r"log\.cleaner\.dedupe\.buffer\.size.*make it larger"):
        folder.clean(map_bytes=SLOT_BYTES * 5)
    with pytest.raises(ValueError, match=r"log\.cleaner\.dedupe\.buffer\.size: 15 bytes"):
        folder.clean(map_bytes=SLOT_BYTES - 1)
    assert cleaned_files(folder) == []


def test_leftovers_of_an_earlier_attempt_are_replaced(folder: Folder) -> None:
    folder.append([(b"a", b"1")])
    folder.roll()
    for kind in (".log", ".index", ".timeindex", ".txnindex"):
        left = folder.disk.open(f"{folder.path}/{0:020d}{kind}.cleaned", "create")
        left.pwrite(b"x" * 10_000, 0)
    folder.clean()
    assert offsets(folder) == [0]
    assert folder.index_entries(0) == []


def test_zeros_behind_a_segment_are_not_read(folder: Folder) -> None:
    folder.append([(b"a", b"1")])
    folder.append([(b"a", b"2")])
    folder.roll()
    argument = folder.argument()
    file = folder.disk.open(f"{folder.path}/{0:020d}.log", "write")
    file.truncate(file.size() + 5000)
    assert clean(folder.disk, argument)["stats"]["records_kept"] == 1


def test_a_batch_larger_than_a_buffer_is_cleaned(folder: Folder) -> None:
    size = 3 * chunks.CHUNK_BYTES
    folder.append([(b"a", b"x" * size), (b"b", b"y")])
    folder.append([(b"a", b"z" * size)])
    folder.roll()
    folder.clean(max_segment_bytes=100 << 20)
    assert offsets(folder) == [1, 2]


def test_a_batch_of_very_many_tiny_records_is_cleaned(folder: Folder) -> None:
    folder.append([(b"", b"")] * 200_000)
    folder.append([(b"a", None)] * 140_000)
    folder.roll()
    folder.clean(max_segment_bytes=100 << 20)
    assert offsets(folder) == [199_999, 339_999]


def test_damage_is_named_and_leaves_nothing_behind(folder: Folder) -> None:
    folder.append([(b"a", b"1")])
    folder.roll()
    position = len(folder.append([(b"a", b"2")], compression=3).data)
    folder.append([(b"a", b"3")])
    folder.roll()
    path = f"{folder.path}/{1:020d}.log"
    good = folder.log(1)
    for damage, words in (
        (good[:-1] + bytes([good[-1] ^ 1]), f"at position {position}: bad CRC"),
        (good[:-1], f"at position {position}: the batch is cut off"),
        (good[: position + 20], f"at position {position}: the batch is cut off"),
        (good[:position] + bytes(100), f"at position {position}: bad header: the magic"),
        (good[:position] * 2, f"at position {position}: bad header: the offsets do not follow"),
    ):
        file = folder.disk.open(path, "write")
        file.truncate(0)
        file.pwrite(damage, 0)
        with pytest.raises(BadValue) as error:
            folder.clean(max_segment_bytes=1)
        assert f"{path}: {words}" in str(error.value)
        assert cleaned_files(folder) == []
        assert folder.log(1) == damage


def sealed(count: int, records: bytes, delta: int = 1, codec: int = 0) -> bytes:
    header = BatchHeader(0, 0, 0, 2, 0, codec, delta, NOW, NOW, -1, -1, -1, count)
    return bytes(seal(header, records))


@pytest.mark.parametrize(
    "batch",
    [
        pytest.param(sealed(1, b""), id="no record"),
        pytest.param(sealed(1, b"\x0c\0\0\0\x02a\0\0x"), id="something behind"),
        pytest.param(sealed(2, b"\x0c\0\0\0\x02a\0\0"), id="one too few"),
        pytest.param(sealed(1, b"\x0c\0\0\0\x64a\0\0"), id="a key that is too long"),
        pytest.param(sealed(1, b"\x0c\0\0\0\x02a\x64\0"), id="a value that is too long"),
        pytest.param(sealed(1, b"\x0c\0\0\x04\x02a\0\0"), id="an offset behind the last"),
        pytest.param(sealed(2, b"\x0c\0\0\0\x02a\0\0" * 2), id="an offset that comes twice"),
        pytest.param(sealed(1, b"\xff" * 12), id="a length that never ends"),
        pytest.param(sealed(1, b"\x18\0" + b"\xff" * 11), id="a timestamp that never ends"),
        pytest.param(sealed(1, b"\x01\0\0\0\x02a\0\0"), id="a negative length"),
        pytest.param(sealed(1, b"garbage", codec=1), id="no gzip"),
        pytest.param(sealed(1, b"garbage", codec=4), id="no zstd"),
    ],
)
def test_records_that_are_not_what_the_header_says_are_refused(batch: bytes) -> None:
    folder = Folder(SimDisk())
    folder.append_bytes(batch)
    folder.roll()
    with pytest.raises(BadValue, match=r"00000\.log: at position 0: the records"):
        folder.clean()
    with pytest.raises(BadValue, match=r"00000\.log: at position 0: the records"):
        folder.clean(first_dirty=folder.next_offset)
    assert cleaned_files(folder) == []


def test_a_batch_may_not_decompress_to_more_than_its_limit() -> None:
    folder = Folder(SimDisk())
    folder.append([(b"a", bytes(100_000))], compression=4)
    folder.roll()
    with pytest.raises(BadValue, match=r"at position 0: .*limit of 5000 bytes"):
        folder.clean(max_batch_bytes=5000)


def test_offsets_too_far_from_the_base_are_refused() -> None:
    folder = Folder(SimDisk())
    folder.append([(b"a", b"1")])
    for offset in ((1 << 31) - 1, 1 << 31):
        record = Record(offset=offset, timestamp=NOW, key=b"%d" % offset)
        folder.append_bytes(bytes(encode_batch([record], base_offset=offset)))
    folder.roll()
    with pytest.raises(BadValue, match="more than 2147483647 from the segment's base"):
        folder.clean()


def test_groups_respect_size_index_and_offsets() -> None:
    def segments(*rows: tuple[int, int, int]) -> list[ClosedSegment]:
        ends = [base for base, _, _ in rows[1:]] + [rows[-1][0] + 10]
        return [
            ClosedSegment(base=base, size=size, index_bytes=index, upto=upto)
            for (base, size, index), upto in zip(rows, ends, strict=True)
        ]

    def bases(listed: list[ClosedSegment]) -> list[list[int]]:
        return [[s.base for s in group] for group in group_segments(listed, 100, 50)]

    assert bases(segments((0, 40, 1), (10, 60, 1), (20, 1, 1))) == [[0, 10], [20]]
    assert bases(segments((0, 1, 30), (10, 1, 20), (20, 1, 1))) == [[0, 10], [20]]
    assert bases(segments((0, 1, 1), (10, 1, 1), (1 << 31, 1, 1))) == [[0, 10], [1 << 31]]
    assert bases(segments((0, 200, 1), (10, 1, 1))) == [[0], [10]]


def history(disk: SimDisk) -> Folder:
    folder = Folder(disk)
    for number in range(6):
        folder.append([(b"k%d" % (number % 3), b"v%d" % number)], compression=number % 2 * 4)
        folder.append([(b"k", b"bad")], producer_id=7, producer_epoch=0, transactional=True)
        folder.end_transaction(7, committed=False)
        folder.roll()
    return folder


def test_a_crash_at_any_moment_leaves_the_log_as_it_was() -> None:
    machine = SimDisk()
    argument = history(machine).argument(max_segment_bytes=1)
    before = machine.view()
    crashes = 0
    for number in range(1000):
        disk = machine.fork()
        disk.crash_at(disk.operations + number)
        try:
            clean(disk, argument)
        except Crashed:
            crashes += 1
        else:
            break
        disk.process_dies()
        left = {name: data for name, data in disk.view().items() if not name.endswith(".cleaned")}
        assert left == before
    assert crashes > 20


@pytest.mark.parametrize("kind", ["log", "index", "timeindex", "txnindex"])
@pytest.mark.parametrize("operation", ["pwrite", "sync"])
def test_an_error_of_the_disk_is_raised_as_it_is(kind: str, operation: str) -> None:
    disk = SimDisk()
    folder = history(disk)
    disk.fail(errno.ENOSPC, operations=[operation], path=f"*.{kind}.cleaned")
    with pytest.raises(OSError, match="No space left") as error:
        folder.clean()
    assert error.value.errno == errno.ENOSPC
    assert cleaned_files(folder) == []


def test_everything_that_is_written_is_durable() -> None:
    disk = SimDisk()
    folder = history(disk)
    (group,) = clean(disk, folder.argument())["groups"]
    disk.sync_folder(folder.path)
    disk.sync_folder("/")
    files = {n: data for n, data in disk.durable_view().items() if n.endswith(".cleaned")}
    names = [f"{folder.path}/{0:020d}{kind}.cleaned" for kind in SEGMENT_KINDS]
    assert sorted(files) == sorted(names)
    assert len(files[names[0]]) == group["size"] > 0


def test_every_piece_boundary_gives_the_same_log() -> None:
    wanted = None
    for size in (61, 62, 63, 100, 137, 1 << 20):
        folder = history(SimDisk())
        with patch.object(chunks, "CHUNK_BYTES", size):
            folder.clean()
        wanted = wanted or folder.log(0)
        assert folder.log(0) == wanted
