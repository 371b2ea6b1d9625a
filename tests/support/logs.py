"""What tests of the log share: a world with one log dir, batches to append, and the checks
that hold for a log in any state, after any crash."""

from dataclasses import dataclass
from itertools import pairwise

from tidelog.base.ids import TopicPartition
from tidelog.base.log_settings import LogSettings
from tidelog.base.ports import Disk
from tidelog.log.files import OFFSET_INDEX, TIME_INDEX
from tidelog.log.index import OFFSET_ENTRY, TIME_ENTRY, entries_of
from tidelog.log.log_dir import LogDir
from tidelog.log.partition_log import PartitionLog
from tidelog.log.producers import Producers
from tidelog.log.replay import note_batch
from tidelog.log.scan import batches
from tidelog.log.segment import Segment
from tidelog.records.batch import BatchHeader, check_stored, walk
from tidelog.records.reference import Record, encode_batch, read_records
from tidelog.world.sim.clock import SimClock
from tidelog.world.sim.disk import SimDisk

PARTITION = TopicPartition("orders", 0)
IDENTITY = {"broker.id": "1", "cluster.id": "test"}
NOW = 1_700_000_000_000


def records(
    count: int, *, key: bytes | None = b"k", value: bytes | None = b"v", at: int = NOW
) -> list[Record]:
    return [Record(offset=i, timestamp=at + i, key=key, value=value) for i in range(count)]


def batch(count: int = 1, **fields: object) -> bytearray:
    """A produced batch of `count` records; `at`, `key` and `value` go to the records."""
    parts = {name: fields.pop(name) for name in ("key", "value", "at") if name in fields}
    return encode_batch(records(count, **parts), **fields)  # type: ignore[arg-type]


class Simulated:
    """A machine with a simulated disk and one log dir, opened as often as it takes."""

    def __init__(self, settings: LogSettings, seed: int = 0) -> None:
        self.disk = SimDisk(seed)
        self.clock: SimClock = self.disk.clock
        self.settings = settings
        self.log_dir = self.open()

    def open(self) -> LogDir:
        self.log_dir = LogDir("/data", self.disk, self.clock)
        self.log_dir.open(IDENTITY, lambda _: self.settings)
        if PARTITION not in self.log_dir.logs:
            self.log_dir.create_log(PARTITION, self.settings)
        return self.log_dir

    @property
    def log(self) -> PartitionLog:
        return self.log_dir.logs[PARTITION]

    def kill(self) -> PartitionLog:
        """`kill -9` and a new start: the page cache stays."""
        self.disk.process_dies()
        self.open()
        return self.log

    def lose_power(self, loss: str = "all") -> PartitionLog:
        self.disk.machine_dies(loss)  # type: ignore[arg-type]
        self.open()
        return self.log

    def stop_and_start(self) -> PartitionLog:
        self.log_dir.close()
        self.open()
        return self.log


@dataclass(frozen=True, slots=True)
class Held:
    """A batch as a log holds it."""

    header: BatchHeader
    data: bytes

    @property
    def records(self) -> list[Record]:
        return list(read_records(self.data))


def contents(log: PartitionLog) -> list[Held]:
    """Every batch from the log start on, as a reader gets them, a few bytes at a time."""
    held: list[Held] = []
    offset = log.log_start_offset
    while True:
        piece = log.read(offset, 300, log.log_end_offset)
        if piece.size == 0:
            return held
        data = piece.file.pread(piece.size, piece.position)
        assert len(data) == piece.size, "a read promised bytes that are not there"
        for position, header in walk(data):
            check_stored(data, position)
            held.append(Held(header, data[position : position + header.size]))
        assert held, "a read gives at least one batch"
        assert held[-1].header.next_offset > offset, "a read goes on"
        offset = held[-1].header.next_offset


def check_everything(log: PartitionLog) -> list[Held]:
    """What must hold for a log whatever happened to it (V6, V17, V18). Returns its content."""
    held = contents(log)
    assert 0 <= log.log_start_offset <= log.log_end_offset
    assert log.recovery_point <= log.log_end_offset
    expected = 0
    for item in held:
        assert item.header.base_offset >= expected, "offsets never repeat"
        expected = item.header.next_offset
    assert expected <= log.log_end_offset
    bases = [segment.base_offset for segment in log.segments.all]
    assert bases == sorted(set(bases))
    for segment in log.segments.all:
        check_indexes(segment)
    check_epochs(log, held)
    check_lookups(log, held)
    return held


def check_indexes(segment: Segment) -> None:
    """S3: every entry points at a batch that is what the entry says it is."""
    at = {b.position: b.header for b in batches(segment.open_file(), 0, segment.size)}
    for relative, position in segment.offset_index.entries():
        assert position in at, f"{segment.path(OFFSET_INDEX)}: nothing begins at {position}"
        assert at[position].last_offset == segment.base_offset + relative
    highest = -1
    for timestamp, relative in segment.time_index.entries():
        offset = segment.base_offset + relative
        upto = [h.max_timestamp for h in at.values() if h.last_offset <= offset]
        assert timestamp == max(upto), f"{segment.path(TIME_INDEX)}: {timestamp} at {offset}"
        assert timestamp > highest
        highest = timestamp
    assert segment.largest_timestamp() == max((h.max_timestamp for h in at.values()), default=-1)


def indexes_on_disk(disk: Disk, segment: Segment) -> tuple[list[tuple[int, int]], ...]:
    kinds = ((OFFSET_INDEX, OFFSET_ENTRY), (TIME_INDEX, TIME_ENTRY))
    found = []
    for kind, entry in kinds:
        file = disk.open(segment.path(kind), "read")
        found.append(entries_of(kind, file.pread(file.size(), 0), entry))
    return tuple(found)


def check_epochs(log: PartitionLog, held: list[Held]) -> None:
    """V6 and L1."""
    entries = log.epochs.entries
    for (epoch, start), (next_epoch, next_start) in pairwise(entries):
        assert epoch < next_epoch
        assert start < next_start
    for item in held:
        offset = max(item.header.base_offset, log.log_start_offset)
        assert log.epochs.at(offset) == item.header.partition_leader_epoch


def check_lookups(log: PartitionLog, held: list[Held]) -> None:
    """Offsets and times are found where a walk over the whole log finds them."""
    everything = [record for item in held for record in item.records]
    everything = [record for record in everything if record.offset >= log.log_start_offset]
    for item in held[:: max(1, len(held) // 10)]:
        for offset in {item.header.base_offset, item.header.last_offset}:
            if offset >= log.log_start_offset:
                found = log.read(offset, 1, log.log_end_offset)
                assert found.file.pread(found.size, found.position) == item.data
    for record in everything[:: max(1, len(everything) // 8)]:
        for timestamp in (record.timestamp, record.timestamp + 1):
            wanted = next((r for r in everything if r.timestamp >= timestamp), None)
            answer = log.offset_for_timestamp(timestamp)
            assert answer == (None if wanted is None else (wanted.offset, wanted.timestamp))


def producers_of(held: list[Held]) -> Producers:
    """The producer state as a replay of everything makes it."""
    producers = Producers()
    for item in held:
        note_batch(producers, item.header, item.data)
    return producers


def summary(producers: Producers) -> dict[int, tuple[int, ...]]:
    return {
        producer_id: (
            producer.epoch,
            producer.last_sequence,
            producer.last_offset,
            producer.last_timestamp,
            producer.coordinator_epoch,
            producer.txn_first_offset,
        )
        for producer_id, producer in producers.by_id.items()
    }
