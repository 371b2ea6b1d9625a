"""Journals of coordinators: what is appended is replayed by whoever loads it, in its order (A5)."""

import errno
import itertools
from typing import Any

import pytest

from support.brokers import SimNode
from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.base.ids import CONSUMER_OFFSETS
from tidelog.base.journal import Entry, Journal, Origin
from tidelog.coordinators import Coordinator, Place, hash_of
from tidelog.disk_work import DiskWork
from tidelog.journaling import PartitionJournal
from tidelog.log.retention import advance_log_start
from tidelog.partition import Partition
from tidelog.records.control import EndTransaction, encode_end_transaction
from tidelog.slices import Slices


class Recorder:
    """A shard that remembers what it was told."""

    def __init__(self) -> None:
        self.told: list[object] = []
        self.is_stopped = False

    def replay(self, entry: Entry, origin: Origin) -> None:
        self.told.append((entry, origin.offset, origin.producer_id))

    def replay_marker(self, producer_id: int, producer_epoch: int, *, is_commit: bool) -> None:
        self.told.append((producer_id, producer_epoch, is_commit))

    def start(self) -> None:
        self.told.append("started")

    def stop(self) -> None:
        self.is_stopped = True

    def topics_changed(self) -> None:
        self.told.append("topics changed")


class Stage:
    def __init__(self, buffer_bytes: int = 5 << 20, **configs: Any) -> None:
        self.node = SimNode(offsets_load_buffer_size=buffer_bytes)
        self.node.client().create(CONSUMER_OFFSETS, cleanup_policy="compact", **configs)
        self.made: list[Recorder] = []
        self.journals: list[Journal] = []

    @property
    def partition(self) -> Partition:
        return self.node.broker.partitions.find(CONSUMER_OFFSETS, 0)

    @property
    def journal(self) -> PartitionJournal:
        work = DiskWork(self.node.loop)
        return PartitionJournal(self.partition, self.node.clock, work, lambda: 5_000)

    def coordinator(self) -> Coordinator[Recorder]:
        node = self.node
        place = Place(
            clock=node.clock,
            loop=node.loop,
            work=DiskWork(node.loop),
            slices=Slices(node.loop, node.clock),
            healing=node.broker.healing,
            image=lambda: node.broker.metadata.image,
            settings=lambda: node.settings,
        )
        return Coordinator(CONSUMER_OFFSETS, self._make, place)

    def _make(self, journal: Journal) -> Recorder:
        self.journals.append(journal)
        self.made.append(Recorder())
        return self.made[-1]

    def load(self, coordinator: Coordinator[Recorder]) -> Recorder:
        coordinator.led_changed(self.partition)
        assert self.node.loop.run_until(lambda: not coordinator.is_loading)
        return coordinator.at(0)


@pytest.mark.parametrize(
    ("text", "hashed"),
    [
        ("", 0),
        ("a", 97),
        ("consumer-group-1", 147483020),
        ("tidelog", 1322226226),
        ("polygenelubricants", 0),
        ("\U0001f30a", 1773134),
    ],
)
def test_a_name_is_hashed_as_kafka_does_it(text: str, hashed: int) -> None:
    """Java's hash of "tidelog" is -1322226226, that of "polygenelubricants" the smallest there is.
    So each group is in the partition of `__consumer_offsets` where Kafka looks for it."""
    assert hash_of(text) == hashed


def test_what_was_appended_is_replayed_in_its_order_transactions_and_markers_too() -> None:
    stage = Stage()
    committed: list[KafkaError | None] = []
    first, second = Entry(b"a", b"1"), Entry(b"b", None)
    assert stage.journal.append([first, second], committed.append).offset == 0
    assert stage.journal.append([first], committed.append, producer=(7, 2)).offset == 2
    marker = EndTransaction(producer_id=7, producer_epoch=2, committed=True, coordinator_epoch=0)
    stage.partition.append_own(encode_end_transaction(marker, timestamp=stage.node.clock.now_ms()))
    assert committed == [None, None]
    shard = stage.load(stage.coordinator())
    assert shard.told == [
        (first, 0, -1),
        (second, 1, -1),
        (first, 2, 7),
        (7, 2, True),
        "started",
    ]


def test_it_is_the_same_after_a_crash() -> None:
    stage = Stage()
    for number in range(50):
        stage.journal.append([Entry(b"key", b"%d" % number)] * 3, lambda _: None)
    before = stage.load(stage.coordinator()).told
    stage.node.kill()
    stage.node.start()
    assert stage.load(stage.coordinator()).told == before
    assert len(before) == 151


def test_s7_nobody_is_told_of_entries_that_are_not_durable_where_that_is_asked_for() -> None:
    stage = Stage(flush_messages=1)
    committed: list[KafkaError | None] = []
    journal = stage.journal
    for number in range(3):
        journal.append([Entry(b"key", b"%d" % number)], committed.append)
    journal.settle(committed.append)
    assert committed == []
    assert stage.node.loop.run_until(lambda: len(committed) == 4)
    assert committed == [None] * 4
    stage.node.lose_power()
    stage.node.start()
    told = stage.load(stage.coordinator()).told
    assert told == [(Entry(b"key", b"%d" % number), number, -1) for number in range(3)] + [
        "started"
    ]


def test_a_shard_is_found_when_it_is_loaded_and_stopped_when_it_is_led_elsewhere() -> None:
    stage = Stage()
    coordinator = stage.coordinator()
    with pytest.raises(KafkaError, check=lambda error: error.code is ErrorCode.not_coordinator):
        coordinator.find("group")
    stage.journal.append([Entry(b"a", b"1")], lambda _: None)
    coordinator.led_changed(stage.partition)
    in_progress = ErrorCode.coordinator_load_in_progress
    with pytest.raises(KafkaError, check=lambda error: error.code is in_progress):
        coordinator.find("group")
    assert stage.node.loop.run_until(lambda: not coordinator.is_loading)
    shard = coordinator.find("group")
    assert coordinator.shards() == [shard]
    partition = stage.partition
    partition.resign()
    coordinator.led_changed(partition)
    assert shard.is_stopped
    assert coordinator.shards() == []


def test_one_that_is_led_elsewhere_while_it_is_loaded_is_never_started() -> None:
    stage = Stage()
    coordinator = stage.coordinator()
    stage.journal.append([Entry(b"a", b"1")], lambda _: None)
    partition = stage.partition
    coordinator.led_changed(partition)
    partition.resign()
    coordinator.led_changed(partition)
    stage.node.loop.run_for(1_000)
    (shard,) = stage.made
    assert shard.is_stopped
    assert "started" not in shard.told


def test_a_shard_that_was_stopped_appends_nothing_though_its_partition_is_led_here_again() -> None:
    """Whoever asked it before may come to it after: the shard that goes on would not know."""
    stage = Stage()
    coordinator = stage.coordinator()
    stage.load(coordinator)
    partition, state = stage.partition, stage.partition.state
    assert state is not None
    partition.resign()
    coordinator.led_changed(partition)
    partition.lead(state, stage.node.clock.monotonic_ms())
    stage.load(coordinator)
    before, after = stage.journals
    settled: list[KafkaError | None] = []
    before.settle(settled.append)
    elsewhere = ErrorCode.not_leader_or_follower
    assert [error.code for error in settled if error is not None] == [elsewhere]
    with pytest.raises(KafkaError, check=lambda error: error.code is elsewhere):
        before.append([Entry(b"a", b"1")], settled.append)
    assert partition.log.log_end_offset == 0
    assert after.append([Entry(b"a", b"2")], settled.append).offset == 0


@pytest.mark.parametrize("setting", ["max_message_bytes", "segment_bytes"])
def test_too_large_a_change_is_refused_and_leaves_nothing(setting: str) -> None:
    stage = Stage(**{setting: 1_000})
    journal, too_large = stage.journal, ErrorCode.message_too_large
    for _ in range(2):
        with pytest.raises(KafkaError, check=lambda error: error.code is too_large):
            journal.append([Entry(b"a", bytes(1_000))], lambda _: None)
        end = stage.partition.log.log_end_offset
        assert journal.append([Entry(b"a", b"1")], lambda _: None).offset == end


@pytest.mark.parametrize("setting", ["max_message_bytes", "segment_bytes"])
def test_what_must_be_written_need_not_fit(setting: str) -> None:
    """Whatever is in the segment already."""
    stage = Stage(**{setting: 1_000})
    large = [Entry(b"a", bytes(number)) for number in (1_000, 2_000, 3_000)]
    for entry in large:
        stage.journal.append([entry], lambda _: None, must_fit=False)
    stage.journal.append([Entry(b"b", b"1")], lambda _: None)
    stage.node.kill()
    stage.node.start()
    told = stage.load(stage.coordinator()).told
    whole = [*large, Entry(b"b", b"1")]
    assert told == [(entry, offset, -1) for offset, entry in enumerate(whole)] + ["started"]


@pytest.mark.parametrize("count", [1, 3, 4])
def test_what_ages_while_it_is_loaded_is_no_damage(count: int) -> None:
    """If `delete` is a policy of the topic as well: so many of four segments, or all there is."""
    stage = Stage(buffer_bytes=1, segment_bytes=100)
    for _ in range(4):
        stage.journal.append([Entry(b"key", b"1" * 20)], lambda _: None)
    log, coordinator = stage.partition.log, stage.coordinator()
    assert len(log.segments.all) == 4
    coordinator.led_changed(stage.partition)
    log.roll()
    advance_log_start(log, count)
    assert stage.node.loop.run_until(lambda: not coordinator.is_loading)
    coordinator.at(0)
    replayed = [(Entry(b"key", b"1" * 20), offset, -1) for offset in (0, *range(count, 4))]
    assert stage.made[0].told == [*replayed, "started"]


def test_a_journal_that_cannot_be_read_is_not_available() -> None:
    stage = Stage()
    stage.journal.append([Entry(b"a", b"1" * 100)], lambda _: None)
    log = stage.partition.log
    file = log.segments.active.file
    assert file is not None
    file.pwrite(b"\xff", 80)
    coordinator = stage.coordinator()
    coordinator.led_changed(stage.partition)
    assert stage.node.loop.run_until(lambda: not coordinator.is_loading)
    not_available = ErrorCode.coordinator_not_available
    with pytest.raises(KafkaError, check=lambda error: error.code is not_available):
        coordinator.at(0)


FIRST_BYTE_OF_OFFSET, BYTE_OF_OFFSET, BYTE_OF_LENGTH, ATTRIBUTES, MARKER_TYPE = 0, 6, 9, 22, 69
CONTROL_BIT = 5


def is_refused(stage: Stage) -> bool:
    """Whether what is in the journal is not taken for all there was."""
    coordinator = stage.coordinator()
    coordinator.led_changed(stage.partition)
    assert stage.node.loop.run_until(lambda: not coordinator.is_loading)
    assert "started" not in stage.made[-1].told
    with pytest.raises(KafkaError) as refused:
        coordinator.at(0)
    return refused.value.code is ErrorCode.coordinator_not_available


def flip(stage: Stage, number: int, where: int, bit: int = 0) -> None:
    """A bit in one of the batches, each of which has one offset."""
    log = stage.partition.log
    position = log.read(number, 1, log.log_end_offset).position
    stage.node.disk.flip_bit(log.segments.active.path(".log"), position + where, bit)


@pytest.mark.parametrize("was_there", [True, False], ids=["at the start", "written since"])
@pytest.mark.parametrize(
    ("where", "bit"),
    [
        (FIRST_BYTE_OF_OFFSET, 7),
        (BYTE_OF_OFFSET, 0),
        (BYTE_OF_LENGTH, 0),
        (ATTRIBUTES, CONTROL_BIT),
        (MARKER_TYPE, 0),
    ],
    ids=["sign of the offset", "offset", "length", "control bit", "commit or abort"],
)
@pytest.mark.parametrize("number", [0, 1, 2])
def test_nothing_rotten_is_taken_for_what_was_written(
    number: int, where: int, bit: int, *, was_there: bool
) -> None:
    """F12, A5: offset and length are not in the CRC; the others are, of a marker as well."""
    stage = Stage()
    marker = EndTransaction(producer_id=7, producer_epoch=2, committed=True, coordinator_epoch=0)
    stage.journal.append([Entry(b"a key", b"1")], lambda _: None, producer=(7, 2))
    stage.partition.append_own(encode_end_transaction(marker, timestamp=stage.node.clock.now_ms()))
    stage.journal.append([Entry(b"a key", b"3")], lambda _: None)
    if was_there:
        stage.node.stop()
        stage.node.start()
    flip(stage, number, where, bit)
    assert is_refused(stage)


@pytest.mark.parametrize("segment_bytes", [200, 1 << 30], ids=["many segments", "one segment"])
@pytest.mark.parametrize("buffer_bytes", [1, 5 << 20], ids=["batch by batch", "at once"])
def test_whichever_bit_has_changed_all_is_replayed_or_nothing_served(
    buffer_bytes: int, segment_bytes: int
) -> None:
    """F12, A5: an epoch of a leader is not looked at, everything else is."""
    stage = Stage(buffer_bytes, segment_bytes=segment_bytes)
    for number in range(4):
        stage.journal.append([Entry(b"key", b"%d" % number)] * (1 + number % 2), lambda _: None)
    coordinator = stage.coordinator()
    whole = stage.load(coordinator).told
    for segment in stage.partition.log.segments.all:
        for position, bit in itertools.product(range(segment.size), range(8)):
            stage.node.disk.flip_bit(segment.path(".log"), position, bit)
            coordinator.led_changed(stage.partition)
            assert stage.node.loop.run_until(lambda: not coordinator.is_loading)
            told = stage.made[-1].told
            assert told == whole or "started" not in told, f"bit {bit} of byte {position}"
            stage.node.disk.flip_bit(segment.path(".log"), position, bit)
            segment.unverified = None
    assert stage.load(coordinator).told == whole


def test_a_disk_that_fails_while_a_journal_is_loaded_is_offline() -> None:
    """S10: so others are to lead what lies there."""
    stage = Stage()
    stage.journal.append([Entry(b"a", b"1")], lambda _: None)
    log = stage.partition.log
    stage.node.disk.fail(errno.EIO, operations=["pread"], path=log.segments.active.path(".log"))
    assert is_refused(stage)
    assert log.home.failure is not None


def test_nothing_is_appended_while_too_few_replicas_are_in_sync() -> None:
    stage = Stage()
    stage.partition.replica.min_isr = 2
    with pytest.raises(KafkaError, match="replicas are in sync"):
        stage.journal.append([Entry(b"a", b"1")], lambda _: None)
    assert stage.partition.log.log_end_offset == 0
