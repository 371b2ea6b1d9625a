"""Walking a log of any size: in bounded memory, whatever lies across the edge of a chunk (S4)."""

import tracemalloc
from pathlib import Path

import pytest

from tidelog.log import dump_walk
from tidelog.log.dump import DumpOptions, Problem, dump
from tidelog.records.batch import stamp
from tidelog.records.reference import Record, encode_batch
from tidelog.world.real.disk import RealDisk

LOG = "00000000000000000000.log"


def lines_of(path: Path, options: DumpOptions) -> tuple[list[str], list[str]]:
    lines = list(dump(RealDisk(), str(path), options))
    problems: list[str] = [line for line in lines if isinstance(line, Problem)]
    return [line for line in lines if line not in problems], problems


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    parts = [
        encode_batch(
            [Record(offset=first + n, timestamp=n, value=b"v") for n in range(3)], base_offset=first
        )
        for first in (0, 3, 6)
    ]
    (tmp_path / LOG).write_bytes(b"".join(parts))
    return tmp_path


def test_memory_does_not_grow_with_the_log(tmp_path: Path) -> None:
    value = Record(offset=0, timestamp=0, value=bytes(100_000))
    one = bytearray(encode_batch([value]))
    with (tmp_path / LOG).open("wb") as file:
        for offset in range(300):
            stamp(one, offset, 0)
            file.write(one)
    tracemalloc.start()
    try:
        count = sum(1 for _ in dump(RealDisk(), str(tmp_path / LOG), DumpOptions()))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert count == 302
    assert peak < 5 * dump_walk.CHUNK_BYTES


def test_a_batch_too_large_for_memory_is_checked_in_pieces(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = lines_of(folder / LOG, DumpOptions())
    monkeypatch.setattr(dump_walk, "BATCH_BYTES_MAX", 10)
    monkeypatch.setattr(dump_walk, "CHUNK_BYTES", 64)
    assert lines_of(folder / LOG, DumpOptions()) == before
    _, problems = lines_of(folder / LOG, DumpOptions(print_data_log=True))
    assert len(problems) == 3
    assert "are not shown" in problems[0]


def test_batches_may_lie_across_every_chunk_boundary(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = DumpOptions(print_data_log=True)
    before = lines_of(folder / LOG, options)
    assert (len(before[0]), before[1]) == (11, [])
    for chunk_bytes in range(61, 200, 7):
        monkeypatch.setattr(dump_walk, "CHUNK_BYTES", chunk_bytes)
        assert lines_of(folder / LOG, options) == before


def test_a_control_batch_too_large_for_memory_is_no_abort_marker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = Record(offset=0, timestamp=0, key=bytes(4), value=bytes(6))
    (tmp_path / LOG).write_bytes(encode_batch([record], producer_id=7, control=True))
    index = tmp_path / "00000000000000000000.txnindex"
    index.write_bytes(bytes(2) + b"".join(number.to_bytes(8) for number in (7, 0, 0, 1)))
    options = DumpOptions(index_sanity_check=True)
    assert lines_of(index, options)[1] == []
    monkeypatch.setattr(dump_walk, "BATCH_BYTES_MAX", 10)
    assert "no abort marker of producer 7 at offset 0" in lines_of(index, options)[1][0]
