"""Log dirs written by Apache Kafka 4.3.1, dumped by us and by Kafka's own tool (S1, S4).

`golden/` has what `org.apache.kafka.tools.DumpLogSegments` printed for each folder; see
bench/peers for how both were made.
"""

import base64
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tidelog.log import snapshots
from tidelog.log.dump import DumpOptions, Problem, dump
from tidelog.log.dump_walk import LogWalk
from tidelog.log.producers import Producers
from tidelog.records.reference import Record, read_records
from tidelog.world.real.disk import RealDisk

FIXTURES = Path(__file__).parents[1] / "fixtures" / "kafka"
GOLDEN = FIXTURES / "golden"
FOLDERS = sorted(
    str(path.relative_to(FIXTURES))
    for name in ("clean", "killed")
    for path in (FIXTURES / name).iterdir()
    if path.is_dir() and not path.name.startswith(".")
)
WITH_RECORDS = [name for name in FOLDERS if (GOLDEN / f"{name}.records.txt").exists()]
ROUGH = re.compile("[\x00-\x1f\x7f-\x9f\u2028]")
KAFKA_RECORD = re.compile(
    r"\| offset: (?P<offset>\d+) (?P<time>\w+: -?\d+) keySize: (?P<key>-?\d+) valueSize: "
    r"(?P<value>-?\d+) sequence: (?P<sequence>-?\d+) headerKeys: (?P<rest>\[.*)",
    re.DOTALL,
)


def _names(folder: str, *endings: str) -> list[str]:
    """As the tool was given them: relative to the log dir."""
    path = FIXTURES / folder
    names = sorted(each.name for each in path.iterdir() if each.name.endswith(endings))
    return [f"{path.name}/{name}" for name in names]


def _golden(folder: str, mode: str) -> str:
    return (GOLDEN / f"{folder}.{mode}.txt").read_bytes().decode()


def _sections(lines: list[str]) -> dict[str, list[str]]:
    """The lines of each file."""
    sections: dict[str, list[str]] = {}
    current: list[str] = []
    for line in lines:
        if line.startswith("Dumping "):
            current = sections.setdefault(line.removeprefix("Dumping "), [])
        else:
            current.append(line)
    return sections


def _dump(folder: str, names: list[str], options: DumpOptions) -> list[str]:
    root = str((FIXTURES / folder).parent)
    lines = [line for name in names for line in dump(RealDisk(), f"{root}/{name}", options)]
    assert not [line for line in lines if isinstance(line, Problem)]
    return [line.replace(f"{root}/", "") for line in lines]


def _is_ours_alone(line: str) -> bool:
    """Kafka's tool says nothing of an empty log or time index, and dies of zeros in a log."""
    return line.endswith((": never written", ".log is empty.", ".timeindex is empty."))


@pytest.mark.parametrize("folder", FOLDERS)
def test_batch_and_index_lines_are_those_of_kafkas_tool(folder: str) -> None:
    names = _names(folder, ".log", ".index", ".timeindex", ".txnindex", ".snapshot")
    ours = _dump(folder, names, DumpOptions())
    expected = _sections(_golden(folder, "batches").removesuffix("\n").split("\n"))
    found = _sections([line for line in ours if not _is_ours_alone(line)])
    assert list(found) == list(expected)
    for name, lines in expected.items():
        if _kafka_died_at(folder, name):
            assert lines == []
        else:
            assert found[name] == lines


def _kafka_died_at(folder: str, name: str) -> bool:
    """To check a time index it reads the log, and of a preallocated one it dies."""
    return (folder, name) == (
        "killed/preallocated-0",
        "preallocated-0/00000000000000000052.timeindex",
    )


@pytest.mark.parametrize("folder", WITH_RECORDS)
def test_record_lines_say_what_kafkas_tool_says(folder: str) -> None:
    ours = _dump(folder, _names(folder, ".log"), DumpOptions(print_data_log=True))
    found = [line for line in ours if line.startswith("offset: ")]
    assert found == list(_as_deep_lines(_golden(folder, "records")))


def _as_deep_lines(text: str) -> Iterator[str]:
    """Kafka 4's lines of a batch and its records, put together as S4 has them."""
    batch: dict[str, str] = {}
    for part in re.split(r"\n(?=\| offset: |baseOffset: |Dumping )", text.removesuffix("\n")):
        record = KAFKA_RECORD.fullmatch(part)
        if record is None:
            words = part.split()
            batch = dict(zip(words[0::2], words[1::2], strict=False))
            continue
        yield (
            f"offset: {record['offset']} position: {batch['position:']} {record['time']}"
            f" isvalid: {batch['isvalid:']} keysize: {record['key']} valuesize: {record['value']}"
            f" magic: {batch['magic:']} compresscodec: {batch['compresscodec:']}"
            f" producerId: {batch['producerId:']} producerEpoch: {batch['producerEpoch:']}"
            f" sequence: {record['sequence']} isTransactional: {batch['isTransactional:']}"
            f" headerKeys: {ROUGH.sub(_escaped, record['rest'])}"
        )


def _escaped(match: re.Match[str]) -> str:
    return ascii(match.group())[1:-1]


def test_deep_iteration_shows_records_without_their_content() -> None:
    folder = "clean/codec-none-0"
    ours = _dump(folder, _names(folder, ".log"), DumpOptions(deep_iteration=True))
    found = [line for line in ours if line.startswith("offset: ")]
    assert found == list(_as_deep_lines(_golden(folder, "deep")))
    assert found[0].endswith("headerKeys: []")


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_index_that_kafka_left_agrees_with_its_log(folder: str) -> None:
    """Also after a kill, where Kafka's own check stumbles over the zeros in the time index."""
    names = _names(folder, ".index", ".timeindex", ".txnindex")
    lines = _dump(folder, names, DumpOptions(index_sanity_check=True))
    assert [line for line in lines if line.endswith("passed sanity check.")] == [
        f"{name} passed sanity check." for name in names
    ]
    quiet = _dump(folder, names, DumpOptions(verify_index_only=True))
    assert not [line for line in quiet if line.startswith(("offset:", "timestamp:", "version:"))]


def _records(folder: Path) -> list[Record]:
    disk = RealDisk()
    return [
        record
        for path in sorted(folder.glob("*.log"))
        for header, data in LogWalk(disk.open(str(path), "read"))
        if not header.is_control
        for record in read_records(data, verify_crc=True)
    ]


def _manifest(folder: str) -> dict[int, dict[str, Any]]:
    runs = (1, 2) if folder.startswith("clean") else (1, 2, 3)
    rows = json.loads((FIXTURES / "manifest.json").read_text())["records"]
    found = rows.get(folder.partition("/")[2], [])
    return {row["offset"]: row for row in found if row["run"] in runs}


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


@pytest.mark.parametrize("folder", [name for name in FOLDERS if "__" not in name])
def test_records_in_kafkas_logs_are_those_it_acknowledged(folder: str) -> None:
    acknowledged = _manifest(folder)
    records = _records(FIXTURES / folder)
    for record in records:
        row = acknowledged[record.offset]
        assert record.timestamp == row["timestamp"]
        assert (record.key, record.value) == (_bytes(row["key"]), _bytes(row["value"]))
        assert list(record.headers) == [(name, _bytes(value)) for name, value in row["headers"]]
    offsets = [record.offset for record in records]
    if "compacted" in folder:
        assert set(offsets) < set(acknowledged)
    elif "trimmed" in folder:
        assert offsets == list(range(12, 32)), "segments below the log start offset are gone"
    else:
        assert offsets == sorted(acknowledged)


def test_fixtures_have_what_they_are_there_for() -> None:
    """Guards against making them anew and losing a case."""
    text = {path.name: path.read_bytes().decode() for path in GOLDEN.rglob("*.batches.txt")}
    assert "deleteHorizonMs: OptionalLong[" in text["compacted-0.batches.txt"]
    assert " count: 0 " in text["compacted-0.batches.txt"]
    assert "currentTxnFirstOffset: OptionalLong[" in text["transactions-0.batches.txt"]
    assert "LogAppendTime: " in text["append-time-0.batches.txt"]
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        assert f"compresscodec: {codec} " in text[f"codec-{codec}-0.batches.txt"]
        assert len(list((FIXTURES / "clean" / f"codec-{codec}-0").glob("*.log"))) > 1
    assert sum(path.stat().st_size for path in FIXTURES.rglob("*")) < 1 << 20


def test_small_files_of_a_log_dir_are_dumped() -> None:
    names = [
        "cleaner-offset-checkpoint",
        "log-start-offset-checkpoint",
        "recovery-point-offset-checkpoint",
        "replication-offset-checkpoint",
        "meta.properties",
        ".kafka_cleanshutdown",
        "odd-0/partition.metadata",
        "codec-none-0/leader-epoch-checkpoint",
    ]
    lines = _dump("clean/odd-0", names, DumpOptions())
    assert "topic: trimmed partition: 0 offset: 14" in lines
    assert "cluster.id: ZHLrbDmXRT-i3nGu6fxwZw" in lines
    assert "leaderEpoch: 0 startOffset: 0" in lines
    assert [line for line in lines if re.fullmatch(r"clean shutdown version: 0 broker.*\d", line)]
    assert [line for line in lines if re.fullmatch(r"version: 0 topicId: [\w-]{22} hex: .*", line)]


def test_a_producer_without_a_batch_is_a_line_as_kafka_prints_it(tmp_path: Path) -> None:
    """As a marker leaves it that has raised its epoch; nothing follows, not even a space."""
    producers = Producers()
    producers.end_transaction(7, 3, (11, 2, False), 1_700)
    path = tmp_path / "00000000000000000012.snapshot"
    path.write_bytes(snapshots.encode(producers))
    assert list(dump(RealDisk(), str(path), DumpOptions())) == [
        f"Dumping {path}",
        "producerId: 7 producerEpoch: 3 coordinatorEpoch: 2 "
        "currentTxnFirstOffset: OptionalLong.empty lastTimestamp: 1700",
    ]
