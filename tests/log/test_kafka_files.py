"""Log dirs that Apache Kafka 4.3.1 wrote, opened by us on a real disk, read, written to and opened
again (S1, S9, S11, L1, A3, A4). `bench/peers/README.md` says what is in them."""

import base64
import json
import shutil
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from support.logs import NOW, batch, check_everything, contents, producers_of
from tidelog.base.ids import TopicPartition
from tidelog.base.log_settings import LogSettings
from tidelog.log.checkpoints import parse_epochs, parse_offsets
from tidelog.log.log_dir import LogDir
from tidelog.log.partition_log import PartitionLog
from tidelog.log.txn_index import AbortedTransaction
from tidelog.records.batch import read_header
from tidelog.records.control import EndTransaction, encode_end_transaction
from tidelog.records.reference import Record
from tidelog.world.real.clock import RealClock
from tidelog.world.real.disk import RealDisk

FIXTURES = Path(__file__).parents[1] / "fixtures" / "kafka"
IDENTITY = {"broker.id": "1", "cluster.id": "ZHLrbDmXRT-i3nGu6fxwZw"}
SETTINGS = LogSettings(index_interval_bytes=100, segment_bytes=3000)
COMPACTED = ("compacted-0", "compacted-transactions-0")
BOTH = [
    (state, path.name)
    for state in ("clean", "killed")
    for path in sorted((FIXTURES / state).iterdir())
    if path.is_dir()
]
WITH_RECORDS = [(state, name) for state, name in BOTH if not name.startswith(("__", "empty"))]
every_folder = pytest.mark.parametrize(("state", "name"), BOTH)
every_topic = pytest.mark.parametrize(("state", "name"), WITH_RECORDS)


@cache
def manifest() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((FIXTURES / "manifest.json").read_text())
    return loaded


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def acknowledged(state: str, name: str) -> list[Record]:
    """What Kafka acknowledged up to that moment: the killed dir has a third run."""
    last_run = 2 if state == "clean" else 3
    return [
        Record(
            offset=entry["offset"],
            timestamp=entry["timestamp"],
            key=_bytes(entry["key"]),
            value=_bytes(entry["value"]),
            headers=tuple((key, _bytes(value)) for key, value in entry["headers"]),
        )
        for entry in manifest()["records"][name]
        if entry["run"] <= last_run
    ]


class Copy:
    """One folder of Kafka's in a dir of its own, with that dir's checkpoints."""

    def __init__(self, target: Path, state: str, name: str) -> None:
        self.path, self.name = target / "data", name
        self.path.mkdir()
        source = FIXTURES / state
        for file in source.iterdir():
            if file.is_file():
                shutil.copy(file, self.path / file.name)
        shutil.copytree(source / name, self.path / name)
        topic, _, partition = name.rpartition("-")
        self.partition = TopicPartition(topic, int(partition))
        self.log_dir = self.open()

    def open(self) -> LogDir:
        self.log_dir = LogDir(str(self.path), RealDisk(), RealClock())
        self.log_dir.open(IDENTITY, lambda _: SETTINGS)
        return self.log_dir

    @property
    def log(self) -> PartitionLog:
        return self.log_dir.logs[self.partition]


def records_of(log: PartitionLog) -> list[Record]:
    return [
        record
        for item in contents(log)
        if not item.header.is_control
        for record in item.records
        if record.offset >= log.log_start_offset
    ]


@every_folder
def test_dir_of_kafka_is_opened_as_it_is(tmp_path: Path, state: str, name: str) -> None:
    """S1, S8, S9: marker, lock, identity, checkpoints, topic id; nothing acknowledged is cut."""
    copy = Copy(tmp_path, state, name)
    assert copy.log_dir.was_closed == (state == "clean")
    assert copy.log_dir.unreadable == []
    marks = parse_offsets("", (FIXTURES / state / "replication-offset-checkpoint").read_bytes())
    assert copy.log_dir.high_watermarks == marks
    assert copy.log.log_end_offset >= marks[copy.partition]
    if state == "clean":
        assert copy.log.log_end_offset == marks[copy.partition]
        assert copy.log.recovery_point == copy.log.log_end_offset
    assert copy.log_dir.topic_id(copy.partition) is not None
    check_everything(copy.log)
    copy.log_dir.close()


@every_topic
def test_records_are_those_that_kafka_acknowledged(tmp_path: Path, state: str, name: str) -> None:
    """S1, S11."""
    copy = Copy(tmp_path, state, name)
    found, wanted = records_of(copy.log), acknowledged(state, name)
    if name in COMPACTED:
        by_offset = {record.offset: record for record in wanted}
        assert found
        assert [by_offset[record.offset] for record in found] == found
        topic = copy.partition.topic
        assert _last(_committed(topic, found)) == _last(_committed(topic, wanted))
    else:
        start = copy.log.log_start_offset
        assert found == [record for record in wanted if record.offset >= start]
    copy.log_dir.close()


def _committed(topic: str, records: list[Record]) -> list[Record]:
    aborted = {
        offset
        for each in manifest()["transactions"]
        if each["topic"] == topic and each["state"] == "aborted"
        for offset in each["offsets"]
    }
    return [record for record in records if record.offset not in aborted]


def _last(records: list[Record]) -> dict[bytes | None, bytes]:
    last = {record.key: record.value for record in records}
    return {key: value for key, value in last.items() if value is not None}


def test_log_that_was_trimmed_starts_where_kafka_says(tmp_path: Path) -> None:
    """S5: DeleteRecords up to 14, in the middle of the first segment."""
    copy = Copy(tmp_path, "clean", "trimmed-0")
    assert copy.log.segments.first.base_offset == 12
    assert copy.log.log_start_offset == 14
    assert copy.log.log_end_offset == 32
    copy.log_dir.close()


@every_folder
def test_leader_epochs_are_kafkas(tmp_path: Path, state: str, name: str) -> None:
    """L1: those of the file, and of the batches behind it in a dir that was killed."""
    copy = Copy(tmp_path, state, name)
    file = parse_epochs("", (FIXTURES / state / name / "leader-epoch-checkpoint").read_bytes())
    end = copy.log.log_end_offset
    assert copy.log.epochs.entries == [entry for entry in file if entry[1] < end]
    copy.log_dir.close()


@pytest.mark.parametrize("state", ["clean", "killed"])
def test_aborted_and_open_transactions_are_known(tmp_path: Path, state: str) -> None:
    """A4, S1: `.txnindex` and the producers."""
    copy = Copy(tmp_path, state, "transactions-0")
    last_run = 2 if state == "clean" else 3
    mine = [
        each
        for each in manifest()["transactions"]
        if each["topic"] == "transactions" and each["run"] <= last_run
    ]
    found = [e for s in copy.log.segments.all for e in s.aborted(copy.log.disk)]
    wanted = [(t["offsets"][0], t["offsets"][-1] + 1) for t in mine if t["state"] == "aborted"]
    assert [(entry.first_offset, entry.last_offset) for entry in found] == wanted
    copy.log.producers.committed_up_to(copy.log.log_end_offset)
    assert copy.log.producers.first_unstable_offset == min(
        t["offsets"][0] for t in mine if t["state"] == "open"
    )
    copy.log_dir.close()


def test_transaction_index_of_kafka_is_made_again_as_it_was(tmp_path: Path) -> None:
    """S9: recovery writes byte for byte what Kafka wrote."""
    copy = Copy(tmp_path, "killed", "transactions-0")
    for path in sorted((FIXTURES / "killed" / "transactions-0").glob("*.txnindex")):
        assert (copy.path / "transactions-0" / path.name).read_bytes() == path.read_bytes()
    copy.log_dir.close()


@pytest.mark.parametrize(
    ("state", "name"),
    [
        ("clean", "idempotent-0"),
        ("clean", "transactions-0"),
        ("clean", "compacted-0"),
        ("killed", "transactions-0"),
    ],
)
def test_producers_are_known_and_their_last_batch_is_recognised(
    tmp_path: Path, state: str, name: str
) -> None:
    """A3: a retry that Kafka would have answered is answered by us."""
    copy = Copy(tmp_path, state, name)
    replayed = producers_of(contents(copy.log))
    producers = copy.log.producers
    assert producers.by_id
    for item in contents(copy.log):
        header = item.header
        known = producers.by_id.get(header.producer_id)
        if header.is_control or known is None or known.last_offset != header.last_offset:
            continue
        assert known.epoch == header.producer_epoch
        again = producers.check(
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            header.last_offset_delta,
            header.attributes,
        )
        assert again == header.base_offset
    for producer_id, producer in producers.by_id.items():
        assert producer_id in replayed.by_id or name in COMPACTED
        if producer_id in replayed.by_id and name not in COMPACTED:
            assert producer.last_sequence == replayed.by_id[producer_id].last_sequence
    copy.log_dir.close()


@every_topic
def test_every_time_is_found_where_kafka_put_it(tmp_path: Path, state: str, name: str) -> None:
    """S3: through Kafka's own time index, with its zero tail."""
    copy = Copy(tmp_path, state, name)
    everything = [
        record
        for item in contents(copy.log)
        for record in item.records
        if record.offset >= copy.log.log_start_offset
    ]
    for timestamp in sorted({record.timestamp for record in everything}):
        first = next(record for record in everything if record.timestamp >= timestamp)
        assert copy.log.offset_for_timestamp(timestamp) == (first.offset, first.timestamp)
    last = max(record.timestamp for record in everything)
    assert copy.log.offset_for_timestamp(last + 1) is None
    copy.log_dir.close()


@every_folder
@pytest.mark.parametrize("stop", ["clean", "unclean"])
def test_log_of_kafka_goes_on_with_us(tmp_path: Path, state: str, name: str, stop: str) -> None:
    """S1: append, roll, stop, open again: the old batches byte for byte, the new ones behind."""
    copy = Copy(tmp_path, state, name)
    before = [item.data for item in contents(copy.log)]
    end, epoch = copy.log.log_end_offset, max(copy.log.epochs.latest, 0) + 1
    for number in range(12):
        offset = copy.log.append_as_leader(batch(2, value=b"ours" * 50, at=NOW), epoch, NOW)
        assert offset == end + 2 * number
    if stop == "clean":
        copy.log_dir.close()
    else:
        _kill(copy.log_dir)
    copy.open()
    held = check_everything(copy.log)
    assert [item.data for item in held[: len(before)]] == before
    assert len(held) == len(before) + 12
    assert copy.log.epochs.entries[-1] == (epoch, end)
    assert {item.header.partition_leader_epoch for item in held[len(before) :]} == {epoch}
    copy.log_dir.close()


def _kill(log_dir: LogDir) -> None:
    """What the end of the process does: the lock goes, nothing else happens."""
    assert log_dir._lock is not None
    log_dir._lock.release()


def test_open_transaction_of_kafka_is_ended_by_us(tmp_path: Path) -> None:
    """A4: the log that Kafka began is finished here, and the index goes on."""
    copy = Copy(tmp_path, "clean", "transactions-0")
    producer_id, producer = next(
        (i, p) for i, p in copy.log.producers.by_id.items() if p.txn_first_offset >= 0
    )
    marker = EndTransaction(
        producer_id=producer_id,
        producer_epoch=producer.epoch,
        committed=False,
        coordinator_epoch=producer.coordinator_epoch,
    )
    first = producer.txn_first_offset
    offset = copy.log.append_own(encode_end_transaction(marker, timestamp=NOW), 9)
    entry = copy.log.segments.active.aborted(copy.log.disk)[-1]
    assert entry == AbortedTransaction(producer_id, first, offset, offset + 1)
    copy.log_dir.close()
    copy.open()
    assert copy.log.segments.active.aborted(copy.log.disk)[-1] == entry
    piece = copy.log.read(offset, 1000, offset + 1)
    assert read_header(piece.file.pread(piece.size, piece.position)).is_control
    copy.log_dir.close()


def test_whole_dir_is_opened_closed_and_opened_without_a_change_to_its_logs(tmp_path: Path) -> None:
    """S1, S9: all topics at once."""
    target = tmp_path / "data"
    shutil.copytree(FIXTURES / "clean", target)
    logs = {path.relative_to(target): path.read_bytes() for path in target.rglob("*.log")}
    for _ in range(2):
        log_dir = LogDir(str(target), RealDisk(), RealClock())
        log_dir.open(IDENTITY, lambda _: SETTINGS)
        assert log_dir.was_closed
        assert len(log_dir.logs) == 16
        log_dir.close()
        assert {p.relative_to(target): p.read_bytes() for p in target.rglob("*.log")} == logs
