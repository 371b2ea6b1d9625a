"""Kernels called by address: the mapped object file does what numba's own code does, and what
cannot be mapped for certain is left to numba."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.compaction import Folder
from tidelog.base.errors import KafkaError
from tidelog.log.scanning import scan
from tidelog.records import native_code
from tidelog.records.arrays import forget, mapped, rows_of, table_of
from tidelog.records.inspector import keys_missing
from tidelog.records.native import KERNELS, address_of, code, words_of
from tidelog.records.native_code import (
    KEPT_MAX,
    compiled_here,
    keep,
    kept_code,
    made_from,
    path_in,
    read_kept,
)
from tidelog.records.object_file import Image, Unsupported
from tidelog.records.reference import Record, encode_batch
from tidelog.world.sim.disk import SimDisk


@pytest.fixture(scope="module")
def object_file() -> bytes:
    return native_code._object_file()


@pytest.fixture(scope="module")
def numbas() -> dict[str, int]:
    return compiled_here()


@pytest.fixture(params=["mapped", "numba's"])
def which(request: pytest.FixtureRequest, numbas: dict[str, int]) -> Iterator[str]:
    before = code.entries
    code.entries = numbas if request.param == "numba's" else None
    yield request.param
    code.entries = before


def busy_folder() -> Folder:
    folder = Folder(SimDisk())
    for turn in range(60):
        pairs = [
            (b"key%d" % (turn * n % 37), None if n == turn % 7 else b"v" * n) for n in range(9)
        ]
        if turn % 6 == 5:
            ids = {"producer_id": 5, "producer_epoch": 0, "base_sequence": turn}
            folder.append(pairs, transactional=True, **ids)
            folder.end_transaction(5, committed=turn % 4 == 1)
        else:
            folder.append(pairs, compression=turn % 5 if turn % 3 == 0 else 0)
        if turn % 20 == 19:
            folder.roll()
    return folder


@pytest.mark.usefixtures("which")
def test_both_ways_of_calling_do_the_same() -> None:
    """S6, S9: compaction, the check of a file, and a look into a batch."""
    folder = busy_folder()
    base = folder.bases[0]
    argument = {
        "folder": folder.path,
        "base": base,
        "expected_offset": 0,
        "from_position": 0,
        "size": len(folder.log(base)),
        "index_interval_bytes": 100,
        "max_index_bytes": 1 << 20,
    }
    scanned = scan(folder.disk, argument)
    assert (scanned["reason"], scanned["batches"]) == (None, 23)
    state = folder.state()
    result = folder.clean()
    assert folder.state() == state
    assert result["stats"]["keys"] == 37
    assert result["stats"]["records_kept"] < result["stats"]["records_read"]
    batch = encode_batch([Record(offset=n, timestamp=0, key=None, value=b"") for n in range(3)])
    assert keys_missing(batch, 1000) == 3
    batch[-1] = 5
    with pytest.raises(KafkaError, match="INVALID_RECORD"):
        keys_missing(batch, 1000)


def test_a_process_that_maps_kernels_loads_neither_numba_nor_numpy() -> None:
    script = (
        "import sys; from tidelog.records.native import code; code.find();"
        "import tidelog.log.cleaning, tidelog.log.scanning, tidelog.records.inspector;"
        "print(*{'numba', 'llvmlite', 'numpy', 'pyarrow', 'cramjam', 'hashlib'} & set(sys.modules))"
    )
    blocked = f"import sys; sys.modules['hypothesis'] = None; exec({script!r})"
    done = subprocess.run([sys.executable, "-c", blocked], capture_output=True, check=True)
    assert (done.stdout, done.stderr) == (b"\n", b"")


def test_a_spark_task_that_reads_or_writes_does_not_load_numba() -> None:
    """P2: its compiler would take a second and 100 MB of every Python worker."""
    script = (
        "import sys; from tidelog.records.native import code; code.find();"
        "import tidelog.spark.reading, tidelog.spark.task_writing;"
        "print(*{'numba', 'llvmlite'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    assert (done.stdout, done.stderr) == (b"\n", b"")


def changed(data: bytes, at: int, to: bytes) -> bytes:
    return data[:at] + to + data[at + len(to) :]


def first_relocation(data: bytes) -> int:
    """Where the first relocation of the file begins."""
    sections = int.from_bytes(data[40:48], "little")
    count = int.from_bytes(data[60:62], "little")
    for at in range(sections, sections + 64 * count, 64):
        if int.from_bytes(data[at + 4 : at + 8], "little") == 4:
            return int.from_bytes(data[at + 24 : at + 32], "little")
    raise AssertionError("no relocations")


@pytest.mark.parametrize(
    ("at", "to", "why"),
    [
        (0, b"MZ", "another form"),
        (4, b"\x01", "another form"),
        (16, b"\x02", "another form"),
        (18, b"\xb7", "code for machine 183"),
        (40, b"\xff\xff\xff", "not a sound object file"),
    ],
)
def test_a_file_of_another_kind_is_refused(
    object_file: bytes, at: int, to: bytes, why: str
) -> None:
    with pytest.raises(Unsupported, match=why):
        Image(changed(object_file, at, to))


def test_what_a_file_asks_for_is_done_or_refused_never_guessed(object_file: bytes) -> None:
    at = first_relocation(object_file)
    with pytest.raises(Unsupported, match="relocation kind 9"):
        Image(changed(object_file, at + 8, (9).to_bytes(4, "little")))
    with pytest.raises(Unsupported, match="behind its section"):
        Image(changed(object_file, at, (1 << 40).to_bytes(8, "little")))
    far = (2).to_bytes(4, "little") + object_file[at + 12 : at + 16]
    far += (1 << 50).to_bytes(8, "little")
    with pytest.raises(Unsupported, match="a distance of"):
        Image(changed(object_file, at + 8, far))
    with pytest.raises(Unsupported, match="the symbol 'memcpx', which is not in the file"):
        Image(object_file.replace(b"\0memcpy\0", b"\0memcpx\0"))
    for size in range(0, len(object_file), 997):
        with pytest.raises(Unsupported):
            Image(object_file[:size])


def test_a_kept_file_is_used_if_it_is_whole_and_made_from_the_same(tmp_path: Path) -> None:
    path = str(tmp_path / "kept")
    assert read_kept(path, b"origin") is None
    keep(path, b"origin", b"code")
    assert read_kept(path, b"origin") == b"code"
    assert read_kept(path, b"origins") is None
    assert os.listdir(tmp_path) == ["kept"]
    content = (tmp_path / "kept").read_bytes()
    for position in range(len(content)):
        damaged = bytearray(content)
        damaged[position] ^= 1
        (tmp_path / "kept").write_bytes(damaged)
        assert read_kept(path, b"origin") is None
        (tmp_path / "kept").write_bytes(content[:position])
        assert read_kept(path, b"origin") is None


def test_files_of_several_sources_are_kept_beside_one_another_but_not_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checkouts that share a cache do not take the kernels from each other's brokers."""
    monkeypatch.setattr(native_code, "cache_folder", lambda: str(tmp_path))
    monkeypatch.setattr(native_code, "_build", lambda: b"code")
    origins = [b"origin %d" % number for number in range(KEPT_MAX + 2)]
    for at, origin in enumerate(origins):
        monkeypatch.setattr(native_code, "made_from", lambda origin=origin: origin)
        assert native_code._object_file() == b"code"
        os.utime(path_in(str(tmp_path), origin), (at, at))
    kept = [read_kept(path_in(str(tmp_path), origin), origin) for origin in origins]
    assert kept == [None, None] + [b"code"] * KEPT_MAX


def test_a_broker_takes_kernels_from_the_cache_and_never_compiles_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, object_file: bytes
) -> None:
    monkeypatch.setattr(native_code, "_build", lambda: pytest.fail("numba was started"))
    monkeypatch.setattr(native_code, "cache_folder", lambda: str(tmp_path))
    assert kept_code(KERNELS) is None
    path = path_in(str(tmp_path), made_from())
    keep(path, made_from(), object_file)
    found = kept_code(KERNELS)
    assert found is not None
    assert found.keys() >= KERNELS.keys()
    keep(path, made_from(), object_file[:1000])
    assert kept_code(KERNELS) is None
    monkeypatch.setattr(native_code, "cache_folder", lambda: None)
    assert kept_code(KERNELS) is None


def test_what_kernels_are_made_from_are_sources_versions_processor_and_settings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = made_from()
    assert b"def clean_batches" in before
    assert b"flags" in before
    monkeypatch.setenv("NUMBA_CPU_NAME", "generic")
    assert made_from() != before


def test_on_another_machine_numba_compiles_in_the_process(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], numbas: dict[str, int]
) -> None:
    monkeypatch.setattr(native_code, "MACHINE", "pdp11")
    monkeypatch.setattr(native_code, "compiled_here", lambda: numbas)
    assert native_code.find_code(KERNELS) == numbas
    said = capfd.readouterr().err
    assert said.startswith("kernels are compiled in this process: the machine is ")


def test_arguments_are_told_by_address_and_shape() -> None:
    data = bytearray(b"abcdef")
    table = table_of(3, 2)
    assert words_of((7, True, (data, (table, -1)))) == [
        7,
        1,
        address_of(data),
        6,
        address_of(table),
        3,
        2,
        -1,
    ]
    assert address_of(memoryview(data)[2:]) == address_of(data) + 2
    assert address_of(bytes(data)) != address_of(data)


def test_memory_for_kernels_is_empty_and_can_be_given_back() -> None:
    assert (table_of(2, 3).shape, table_of(2, 3).tobytes()) == ((2, 3), b"\xff" * 48)
    assert (rows_of(2, 2).shape, rows_of(2, 2).tobytes()) == ((2, 2), bytes(32))
    assert len(mapped(0)) == 1
    memory = mapped(3 * 4096)
    memory[0] = memory[5000] = memory[-1] = 9
    forget(memory, 0, 4096)
    assert (memory[0], memory[5000], memory[-1]) == (0, 9, 9)
