"""Files that are not what their names claim: what is good is shown, the rest is explained (S4)."""

import json
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.log.dump import DumpOptions, Problem, dump
from tidelog.records.batch import BatchHeader, seal
from tidelog.records.compression import GZIP
from tidelog.records.control import EndTransaction, encode_end_transaction
from tidelog.records.reference import Record, encode_batch
from tidelog.world.real.disk import RealDisk

FIXTURES = Path(__file__).parents[1] / "fixtures" / "kafka"
LOG = "00000000000000000000.log"
INDEX = "00000000000000000000.index"
TIME_INDEX = "00000000000000000000.timeindex"
TXN_INDEX = "00000000000000000000.txnindex"
SNAPSHOT = "00000000000000000007.snapshot"
KINDS = (
    LOG,
    INDEX,
    TIME_INDEX,
    TXN_INDEX,
    SNAPSHOT,
    "leader-epoch-checkpoint",
    "replication-offset-checkpoint",
    "partition.metadata",
    "meta.properties",
    ".kafka_cleanshutdown",
)
SANE = DumpOptions(index_sanity_check=True)


def lines_of(path: Path, options: DumpOptions | None = None) -> tuple[list[str], list[str]]:
    """What was found, without the line that names the file, and what is wrong."""
    lines = list(dump(RealDisk(), str(path), options or DumpOptions()))
    assert lines[0] == f"Dumping {path}"
    problems: list[str] = [line for line in lines if isinstance(line, Problem)]
    return [line for line in lines[1:] if line not in problems], problems


def batch(first: int, count: int = 3, timestamp: int = 1000, compression: int = 0) -> bytes:
    records = [
        Record(offset=first + n, timestamp=timestamp + n, key=b"k", value=b"v")
        for n in range(count)
    ]
    return bytes(encode_batch(records, base_offset=first, compression=compression, leader_epoch=0))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A segment of three batches of three records, with its indexes."""
    parts = [batch(0, timestamp=1000), batch(3, timestamp=2000), batch(6, timestamp=3000)]
    (tmp_path / LOG).write_bytes(b"".join(parts))
    size = len(parts[0])
    entry = (5).to_bytes(4) + size.to_bytes(4) + (8).to_bytes(4) + (2 * size).to_bytes(4)
    (tmp_path / INDEX).write_bytes(entry)
    times = (2002).to_bytes(8) + (5).to_bytes(4) + (3002).to_bytes(8) + (8).to_bytes(4)
    (tmp_path / TIME_INDEX).write_bytes(times)
    return tmp_path


def test_a_sound_segment_has_no_problems(folder: Path) -> None:
    assert lines_of(folder / INDEX)[1] == []
    assert lines_of(folder / INDEX, SANE)[0] == [f"{folder / INDEX} passed sanity check."]
    assert lines_of(folder / TIME_INDEX, SANE)[0] == [f"{folder / TIME_INDEX} passed sanity check."]
    found, problems = lines_of(folder / LOG, DumpOptions(print_data_log=True))
    assert problems == []
    assert found[1] == (
        "offset: 0 position: 0 CreateTime: 1000 isvalid: true keysize: 1 valuesize: 1 magic: 2 "
        "compresscodec: none producerId: -1 producerEpoch: -1 sequence: -1 "
        "isTransactional: false headerKeys: [] key: k payload: v"
    )
    assert len(found) == 10


def test_a_log_cut_anywhere_shows_its_whole_batches_and_says_where_it_ends(folder: Path) -> None:
    """The first bytes of a batch are those of a small offset: so few zeros might be anything."""
    data = (folder / LOG).read_bytes()
    size = len(data) // 3
    for cut in range(1, len(data)):
        (folder / LOG).write_bytes(data[:cut])
        found, problems = lines_of(folder / LOG)
        batches = [line for line in found if line.startswith("baseOffset")]
        assert len(batches) == cut // size
        if cut % size == 0:
            assert len(found) == 1 + cut // size
            assert problems == []
        elif not any(data[cut - cut % size : cut]):
            assert found[-1].startswith(f"Found {cut % size} zero bytes")
            assert problems == []
        else:
            [problem] = problems
            assert f"Found {cut % size} invalid bytes at the end of {folder / LOG}: " in problem
            assert f"at position {cut // size * size}" in problem


def test_a_flipped_bit_is_found_wherever_it_is(folder: Path) -> None:
    """But in the two fields outside the CRC, where some values cannot be told from good ones."""
    data = bytearray((folder / LOG).read_bytes())
    size = len(data) // 3
    for position in range(size, 2 * size):
        data[position] ^= 0x40
        (folder / LOG).write_bytes(data)
        found, problems = lines_of(folder / LOG)
        assert found[1].endswith("isvalid: true"), "the batch before it is not touched"
        if not size + 7 <= position < size + 8 and not size + 12 <= position < size + 16:
            assert problems, f"bit 6 of byte {position - size} of the batch"
        data[position] ^= 0x40


def test_damage_inside_a_batch_does_not_hide_the_batches_behind_it(folder: Path) -> None:
    data = bytearray((folder / LOG).read_bytes())
    data[len(data) // 2] ^= 1
    (folder / LOG).write_bytes(data)
    found, [problem] = lines_of(folder / LOG)
    assert [line.rpartition(" ")[2] for line in found[1:]] == ["true", "false", "true"]
    assert f"the batch at position {len(data) // 3} has the CRC" in problem
    found, problems = lines_of(folder / LOG, DumpOptions(print_data_log=True))
    assert [line.split()[1] for line in found[-3:]] == ["6", "7", "8"]
    assert problems


def test_a_batch_that_goes_back_in_offsets_is_reported(folder: Path) -> None:
    (folder / LOG).write_bytes(batch(5) + batch(7))
    found, [problem] = lines_of(folder / LOG)
    assert len(found) == 3
    assert "starts at offset 7, expected 8 or more" in problem


@pytest.mark.parametrize("content", [b"2024-01-01 ERROR no route\n" * 9, b"short", b"\xff" * 400])
def test_a_text_file_named_log_is_said_to_be_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / LOG).write_bytes(content)
    found, [problem] = lines_of(tmp_path / LOG)
    assert found == ["Log starting offset: 0"]
    assert problem.endswith("this is not a log of record batches")


def test_the_old_message_formats_are_named(tmp_path: Path) -> None:
    data = bytearray(batch(0))
    data[16] = 1
    (tmp_path / LOG).write_bytes(data)
    _, [problem] = lines_of(tmp_path / LOG)
    assert "message format v1 is not supported" in problem
    assert problem.endswith("at position 0")


def test_records_that_disagree_with_their_header_are_reported(tmp_path: Path) -> None:
    header = BatchHeader(0, 0, 0, 2, 0, GZIP, 4, 0, 0, -1, -1, -1, 5)
    (tmp_path / LOG).write_bytes(seal(header, b"not gzip") + batch(5))
    found, [problem] = lines_of(tmp_path / LOG, DumpOptions(print_data_log=True))
    assert "the records of the batch at position 0 cannot be read" in problem
    assert [line.split()[1] for line in found[1:]] == ["5", "6", "7"]


def test_an_unknown_codec_is_shown_as_its_number(tmp_path: Path) -> None:
    header = BatchHeader(0, 0, 0, 2, 0, 6, 0, 0, 0, -1, -1, -1, 1)
    (tmp_path / LOG).write_bytes(seal(header, b"?"))
    found, _ = lines_of(tmp_path / LOG)
    assert "compresscodec: unknown(6) " in found[1]
    assert len(lines_of(tmp_path / LOG, DumpOptions(print_data_log=True))[1]) == 1


def test_a_small_batch_that_would_fill_the_memory_is_not_decompressed(tmp_path: Path) -> None:
    record = Record(offset=0, timestamp=0, value=bytes(1 << 20))
    (tmp_path / LOG).write_bytes(encode_batch([record], compression=GZIP))
    options = DumpOptions(print_data_log=True, max_message_size=1 << 16)
    _, [problem] = lines_of(tmp_path / LOG, options)
    assert "cannot be read" in problem


@pytest.mark.parametrize("name", [LOG, INDEX, TIME_INDEX])
@pytest.mark.parametrize("zeros", [1, 5, 12, 2400])
def test_a_preallocated_tail_is_no_problem(folder: Path, name: str, zeros: int) -> None:
    entry = {LOG: 1, INDEX: 8, TIME_INDEX: 12}[name]
    path = folder / name
    before, _ = lines_of(path)
    with path.open("ab") as file:
        file.write(bytes(zeros * entry))
    found, problems = lines_of(path)
    assert problems == []
    tail = f"Found {zeros * entry} zero bytes at the end of {path}: never written"
    assert found == [*before, tail]


def test_zeros_that_are_followed_by_something_are_a_problem(folder: Path) -> None:
    with (folder / LOG).open("ab") as file:
        file.write(bytes(5000) + b"x")
    assert "invalid bytes at the end" in lines_of(folder / LOG)[1][0]
    with (folder / INDEX).open("ab") as file:
        file.write(bytes(80) + (90).to_bytes(8))
    assert "0 follows 8 at position 16: must grow" in lines_of(folder / INDEX)[1][0]


def test_an_index_of_odd_size_shows_its_entries_and_says_so(folder: Path) -> None:
    for name, size in ((INDEX, 8), (TIME_INDEX, 12)):
        with (folder / name).open("ab") as file:
            file.write(b"\1\2\3")
        found, [problem] = lines_of(folder / name)
        assert len(found) == 2
        assert f"{2 * size + 3} bytes are not a multiple of {size}" in problem
        assert not [line for line in lines_of(folder / name, SANE)[0] if "passed" in line]


def test_an_index_that_names_another_batch_fails_the_sanity_check(folder: Path) -> None:
    data = bytearray((folder / INDEX).read_bytes())
    data[3] = 4
    (folder / INDEX).write_bytes(data)
    found, [problem] = lines_of(folder / INDEX, SANE)
    assert found == []
    assert problem == f"Mismatch in {folder / INDEX}: Index offset: 4, log offset: 5"
    data[3], data[15] = 5, 255
    (folder / INDEX).write_bytes(data)
    assert "Index offset: 8, log offset: -1" in lines_of(folder / INDEX)[1][0]


def test_a_time_index_that_names_another_time_or_offset_fails(folder: Path) -> None:
    good = (folder / TIME_INDEX).read_bytes()
    for position, byte, said in (
        (7, 0xD1, "Index timestamp: 2001, log timestamp: 2002"),
        (11, 4, ""),
        (11, 2, "Index timestamp: 2002, log timestamp: 1002"),
        (23, 99, "Indexed offset: 99, found log offset: -1"),
    ):
        data = bytearray(good)
        data[position] = byte
        (folder / TIME_INDEX).write_bytes(data)
        problems = lines_of(folder / TIME_INDEX, SANE)[1]
        assert bool(problems) == bool(said), "any offset of the batch will do: older Kafkas did so"
        if said:
            assert problems[0] == f"Mismatch in {folder / TIME_INDEX}: {said}"


def test_a_time_index_that_would_make_a_lookup_miss_a_batch_fails(folder: Path) -> None:
    parts = [batch(0, timestamp=9000), batch(3, timestamp=2000), batch(6, timestamp=10000)]
    (folder / LOG).write_bytes(b"".join(parts))
    entries = (2002).to_bytes(8) + (5).to_bytes(4) + (10002).to_bytes(8) + (8).to_bytes(4)
    (folder / TIME_INDEX).write_bytes(entries)
    _, [problem] = lines_of(folder / TIME_INDEX, SANE)
    assert problem.endswith("Index timestamp: 2002, a batch before it: 9002")


def test_an_index_without_its_log_is_shown_and_said_to_be_alone(folder: Path) -> None:
    (folder / LOG).unlink()
    for name in (INDEX, TIME_INDEX):
        found, [problem] = lines_of(folder / name)
        assert len(found) == 2
        assert "there is no log beside it" in problem


def test_an_index_is_compared_with_the_log_that_shares_its_mark(folder: Path) -> None:
    for name in (LOG, INDEX):
        (folder / name).rename(folder / f"{name}.deleted")
    (folder / LOG).write_bytes(b"")
    found, problems = lines_of(folder / f"{INDEX}.deleted")
    assert (len(found), problems) == (2, [])


def test_an_aborted_transaction_without_its_marker_fails_the_sanity_check(tmp_path: Path) -> None:
    marker = EndTransaction(producer_id=7, producer_epoch=0, committed=False, coordinator_epoch=3)
    log = batch(0) + encode_end_transaction(marker, timestamp=5, base_offset=3, leader_epoch=0)
    (tmp_path / LOG).write_bytes(log)
    entry = bytes(2) + b"".join(number.to_bytes(8) for number in (7, 0, 3, 4))
    (tmp_path / TXN_INDEX).write_bytes(entry)
    assert lines_of(tmp_path / TXN_INDEX, SANE)[1] == []
    (tmp_path / TXN_INDEX).write_bytes(entry.replace(bytes(7) + b"\7", bytes(7) + b"\x08"))
    _, [problem] = lines_of(tmp_path / TXN_INDEX, SANE)
    assert "no abort marker of producer 8 at offset 3" in problem
    (tmp_path / TXN_INDEX).write_bytes(entry + b"torn")
    found, [problem] = lines_of(tmp_path / TXN_INDEX)
    assert found == ["version: 0 producerId: 7 firstOffset: 0 lastOffset: 3 lastStableOffset: 4"]
    assert problem.endswith("the last 4 bytes are not an entry")


def test_control_records_are_named(tmp_path: Path) -> None:
    marker = EndTransaction(producer_id=7, producer_epoch=1, committed=True, coordinator_epoch=3)
    quorum = Record(offset=1, timestamp=0, key=b"\0\0\0\2", value=b"\0\0")
    unknown = Record(offset=2, timestamp=0, key=b"\0\0\0\x63", value=b"")
    log = encode_end_transaction(marker, timestamp=5)
    log += encode_batch([quorum, unknown], base_offset=1, control=True)
    (tmp_path / LOG).write_bytes(log)
    found, problems = lines_of(tmp_path / LOG, DumpOptions(print_data_log=True))
    assert problems == []
    assert found[1].endswith(
        "isTransactional: true headerKeys: [] endTxnMarker: COMMIT coordinatorEpoch: 3"
    )
    assert found[2].endswith("headerKeys: [] controlType: LEADER_CHANGE(2)")
    assert found[3].endswith("headerKeys: [] controlType: UNKNOWN(99)")
    bare = DumpOptions(print_data_log=True, skip_record_metadata=True)
    assert lines_of(tmp_path / LOG, bare) == (["Log starting offset: 0"], [])


def test_without_metadata_only_keys_and_payloads_are_shown(folder: Path) -> None:
    options = DumpOptions(print_data_log=True, skip_record_metadata=True)
    assert lines_of(folder / LOG, options)[0][1:] == ["key: k payload: v"] * 9


def test_max_bytes_stops_quietly_at_a_whole_batch(folder: Path) -> None:
    size = (folder / LOG).stat().st_size // 3
    for limit, batches in ((0, 0), (size - 1, 0), (size, 1), (2 * size + 5, 2), (1 << 40, 3)):
        found, problems = lines_of(folder / LOG, DumpOptions(max_bytes=limit))
        assert (len(found) - 1, problems) == (batches, [])


def test_empty_files_are_explained(tmp_path: Path) -> None:
    for name in KINDS:
        (tmp_path / name).write_bytes(b"")
    assert lines_of(tmp_path / LOG) == (
        ["Log starting offset: 0", f"{tmp_path / LOG} is empty."],
        [],
    )
    assert lines_of(tmp_path / INDEX) == ([f"{tmp_path / INDEX} is empty."], [])
    assert lines_of(tmp_path / ".kafka_cleanshutdown") == (["clean shutdown"], [])
    assert "too few for a snapshot" in lines_of(tmp_path / SNAPSHOT)[1][0]
    for name in ("leader-epoch-checkpoint", "partition.metadata", "meta.properties"):
        assert "version" in lines_of(tmp_path / name)[1][0]


def test_a_name_that_says_nothing_is_refused_with_those_that_do(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    assert "*.log, *.index" in lines_of(tmp_path / "notes.txt")[1][0]
    assert "there is no such file" in lines_of(tmp_path / LOG)[1][0]
    assert "is a folder" in lines_of(tmp_path)[1][0]
    (tmp_path / "orders.index").write_bytes(bytes(8))
    assert "named by the first offset" in lines_of(tmp_path / "orders.index")[1][0]


@pytest.mark.parametrize("content", [json.dumps([1]), "{", "\x00"])
def test_a_clean_shutdown_marker_of_something_else_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / ".kafka_cleanshutdown").write_text(content)
    assert "should be" in lines_of(tmp_path / ".kafka_cleanshutdown")[1][0]


@given(name=st.sampled_from(KINDS), content=st.binary(max_size=300), by_record=st.booleans())
def test_no_content_makes_a_dump_fail_or_print_what_moves_the_cursor(
    tmp_path_factory: pytest.TempPathFactory, name: str, content: bytes, by_record: bool
) -> None:
    path = tmp_path_factory.getbasetemp() / name
    path.write_bytes(content)
    for line in dump(RealDisk(), str(path), DumpOptions(print_data_log=by_record)):
        assert line.isprintable() or not any(ord(c) < 32 or 127 <= ord(c) < 160 for c in line)


@given(data=st.data())
def test_no_damage_to_a_real_file_makes_a_dump_fail(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    root = tmp_path_factory.getbasetemp() / "damaged"
    source = FIXTURES / "killed" / "transactions-0"
    if not root.exists():
        shutil.copytree(source, root)
    name = data.draw(st.sampled_from(sorted(path.name for path in source.iterdir())))
    content = bytearray((source / name).read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    (root / name).write_bytes(content[: data.draw(st.integers(0, len(content)))])
    options = DumpOptions(
        print_data_log=data.draw(st.booleans()), index_sanity_check=data.draw(st.booleans())
    )
    assert list(dump(RealDisk(), str(root / name), options))
    (root / name).write_bytes((source / name).read_bytes())
