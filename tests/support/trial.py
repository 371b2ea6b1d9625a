"""A log beside a model of it: a list of batches, where it starts, and what is durable.

`Trial.run` applies one operation to both. `Trial.crash` kills the process or the machine, opens
the log again, and checks that what is there can be explained: after a process death it is
the log before or after the operation that was under way; after a power loss it is a prefix of
one of the two, with everything in it that had been made durable.
"""

from dataclasses import dataclass, field
from typing import Literal

from support.joining import append_together
from support.logs import (
    NOW,
    PARTITION,
    Held,
    Simulated,
    batch,
    check_everything,
    producers_of,
    summary,
)
from tidelog.base.log_settings import LogSettings
from tidelog.log.cleaner import Cleaner
from tidelog.log.logs import Logs
from tidelog.log.partition_log import PartitionLog
from tidelog.log.retention import advance_log_start, delete_old_segments, retain
from tidelog.log.truncation import restart_at, truncate_suffix
from tidelog.records.batch import read_header, stamp
from tidelog.records.control import EndTransaction, encode_end_transaction
from tidelog.records.reference import Record
from tidelog.world.sim.disk import Crashed, Loss, When
from tidelog.world.sim.entropy import SimEntropy
from tidelog.world.sim.workers import SimWorkers

Death = Literal["process", "all", "some", "none"]


@dataclass(frozen=True, slots=True)
class Operation:
    """One step of a trial; `number` says how many, how far or which, as the step needs it."""

    name: str
    number: int = 0


@dataclass(slots=True)
class Model:
    held: list[Held] = field(default_factory=list)
    start: int = 0
    end: int = 0

    def copy(self) -> "Model":
        return Model(list(self.held), self.start, self.end)


class Trial:
    def __init__(self, settings: LogSettings, seed: int = 0) -> None:
        self.world = Simulated(settings, seed)
        self.model = Model()
        self.before = Model()
        self.after = Model()
        self.durable = 0
        self.durable_start = 0
        self.epoch = 0
        self.sequences: dict[int, int] = {}
        self.open_transaction = False
        self.was_compacted = False
        self.under_way = ""

    @property
    def log(self) -> PartitionLog:
        return self.world.log

    # -- operations

    def run(self, operation: Operation) -> None:
        self.before = self.model.copy()
        self.after = self.model.copy()
        self.under_way = operation.name
        getattr(self, f"_{operation.name}")(operation.number)
        self.model = self.after
        self.under_way = ""

    def _append(self, number: int) -> None:
        data = batch(
            1 + number % 4,
            key=b"k%d" % (number % 5),
            value=None if number % 7 == 3 else b"v%d" % number * (number % 9),
            at=self.world.clock.now_ms() + number % 11,
            compression=number % 5 if number % 3 == 0 else 0,
        )
        self._append_data(data)

    def _append_idempotent(self, number: int) -> None:
        producer_id = 100 + number % 3
        sequence = self.sequences.get(producer_id, 0)
        count = 1 + number % 3
        data = batch(
            count,
            key=b"k%d" % (number % 5),
            at=self.world.clock.now_ms(),
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=sequence,
        )
        self._append_data(data)
        self.sequences[producer_id] = sequence + count

    def _append_transactional(self, number: int) -> None:
        sequence = self.sequences.get(200, 0)
        data = batch(
            2,
            key=b"k%d" % (number % 5),
            at=self.world.clock.now_ms(),
            producer_id=200,
            producer_epoch=0,
            base_sequence=sequence,
            transactional=True,
        )
        self._append_data(data)
        self.sequences[200] = sequence + 2
        self.open_transaction = True

    def _end_transaction(self, number: int) -> None:
        if self.open_transaction:
            end = EndTransaction(
                producer_id=200, producer_epoch=0, committed=number % 2 == 0, coordinator_epoch=1
            )
            data = encode_end_transaction(end, timestamp=self.world.clock.now_ms())
            self._expect(data)
            self.log.append_own(data, self.epoch)
            self.open_transaction = False

    def _append_together(self, number: int) -> None:
        """What several requests have for this log, at once; or one by one, where not all of it is
        ordinary."""
        now_ms = self.world.clock.now_ms()
        sequence = self.sequences.get(100, 0)
        count = 1 + number % 3
        data = [
            batch(count, key=b"k%d" % (number % 5), at=now_ms + number % 11),
            batch(1, at=now_ms, producer_id=100, producer_epoch=0, base_sequence=sequence),
            batch(2, at=now_ms, producer_id=100, producer_epoch=0, base_sequence=sequence + 1),
        ]
        for one in data:
            self._expect(one, self.after.end)
        sent = [memoryview(one) for one in data]
        if append_together(self.log, sent, self.epoch, now_ms) is None:
            for one in data:
                self.log.append_as_leader(one, self.epoch, now_ms)
        assert self.log.log_end_offset == self.after.end
        self.sequences[100] = sequence + 3

    def _append_data(self, data: bytearray) -> None:
        self._expect(data)
        offset = self.log.append_as_leader(data, self.epoch, self.world.clock.now_ms())
        assert offset == self.before.end

    def _expect(self, data: bytearray, offset: int | None = None) -> None:
        stamped = bytearray(data)
        stamp(stamped, self.before.end if offset is None else offset, self.epoch)
        header = read_header(stamped)
        self.after.held.append(Held(header, bytes(stamped)))
        self.after.end = header.next_offset

    def _follow(self, number: int) -> None:
        """Three batches of a leader at once."""
        data = bytearray()
        for n in range(3):
            one = batch(1 + n, key=b"k%d" % number, at=self.world.clock.now_ms() + n)
            stamp(one, self.after.end, self.epoch)
            header = read_header(one)
            self.after.held.append(Held(header, bytes(one)))
            self.after.end = header.next_offset
            data += one
        assert self.log.append_as_follower(data, self.epoch) == self.after.end

    def _new_epoch(self, _number: int) -> None:
        self.epoch += 1

    def _roll(self, _number: int) -> None:
        self.log.roll()

    def _flush(self, _number: int) -> None:
        self.log.flush(NOW)
        self.durable = self.model.end

    def _checkpoint(self, _number: int) -> None:
        self._flush(0)
        self.world.log_dir.checkpoint()
        self.durable_start = self.model.start

    def _snapshot(self, _number: int) -> None:
        self.log.take_snapshot()

    def _wait(self, number: int) -> None:
        self.world.clock.advance(number * 10_000)
        self.world.log_dir.remove_doomed()

    def _truncate(self, number: int) -> None:
        """A new leader, in a new epoch, has less than this log."""
        to = self.model.start + number % (self.model.end - self.model.start + 1)
        kept = [held for held in self.model.held if held.header.next_offset <= to]
        dropped = self.model.held[len(kept) :]
        self.after = Model(kept, self.model.start, to)
        if dropped:
            self.after.end = min(to, dropped[0].header.base_offset)
            self.after.start = min(self.model.start, self.after.end)
        self.durable = min(self.durable, self.after.end)
        self.durable_start = min(self.durable_start, self.after.end)
        truncate_suffix(self.log, to, self.world.clock.now_ms())
        self._forget_producers()

    def _restart_at(self, number: int) -> None:
        offset = self.model.end + number % 20
        self.after = Model([], offset, offset)
        self.durable = self.durable_start = 0
        restart_at(self.log, offset, self.world.clock.now_ms())
        self._forget_producers()
        self.durable_start = offset

    def _truncate_below(self, number: int) -> None:
        """A new leader has nothing of what this log has: its log ends before this one starts."""
        to = max(0, self.log.segments.first.base_offset - 1 - number)
        if to < self.log.segments.first.base_offset:
            self.after = Model([], to, to)
            self.durable = self.durable_start = 0
            truncate_suffix(self.log, to, self.world.clock.now_ms())
            self._forget_producers()

    def _forget_producers(self) -> None:
        self.epoch += 1
        state = self.log.producers.by_id
        self.sequences = {
            producer_id: producer.last_sequence + 1 for producer_id, producer in state.items()
        }
        self.open_transaction = 200 in state and state[200].txn_first_offset >= 0

    def _delete_records(self, number: int) -> None:
        self.after.start += number % (self.model.end - self.model.start + 1)
        advance_log_start(self.log, self.after.start)
        self.world.log_dir.persist_log_starts()
        self.durable_start = self.after.start
        delete_old_segments(self.log, self.world.clock.now_ms())

    def _retain(self, _number: int) -> None:
        """By size; the high watermark is the log end."""
        retain(self.log, self.model.end, self.world.clock.now_ms())
        self.world.log_dir.persist_log_starts()
        self.after.start = self.durable_start = self.log.log_start_offset
        delete_old_segments(self.log, self.world.clock.now_ms())

    def _compact(self, _number: int) -> None:
        log_dir = self.world.log_dir
        log_dir.high_watermarks[PARTITION] = self.model.end
        self.log.producers.committed_up_to(self.model.end)
        workers = SimWorkers(self.world.disk)
        Cleaner(Logs([log_dir]), workers, SimEntropy(), 4096).run_once()
        self.was_compacted = True
        held = check_everything(self.log)
        check_compaction(self._visible(self.before), held)
        below = [item for item in self.before.held if item.header.last_offset < self.before.start]
        self.after.held = below + held

    # -- crashes

    def crash(self, death: Death) -> None:
        """Ends the process or the machine, and opens the log again."""
        disk = self.world.disk
        if death == "process":
            disk.process_dies()
        else:
            loss: dict[Death, Loss] = {"all": "all", "some": "some", "none": "none"}
            disk.machine_dies(loss[death])
        self.world.open()
        self.check(lost_power=death != "process")

    def run_and_crash(self, operation: Operation, number: int, when: When, death: Death) -> bool:
        """Runs an operation that is cut short at its n-th disk operation; False if it had fewer."""
        self.world.disk.crash_at(number, when)
        try:
            self.run(operation)
        except Crashed:
            self.crash(death)
            return True
        self.world.disk.crash_at(None)
        return False

    def check(self, *, lost_power: bool) -> None:
        """V18: what is there is what was there."""
        log = self.log
        held = check_everything(log)
        assert self.durable_start <= log.log_start_offset
        if self.under_way == "compact":
            upto = [
                h for h in self._visible(self.before) if h.header.next_offset <= log.log_end_offset
            ]
            check_compaction(upto, held)
            self.was_compacted = True
            if not lost_power:
                assert log.log_end_offset == self.before.end
            chosen = Model(held, log.log_start_offset, log.log_end_offset)
        else:
            chosen = self._explanation(held, lost_power=lost_power)
        if self.under_way in ("restart_at", "truncate_below") and not (held or lost_power):
            ends = {self.after.end}
            if not self.before.held:
                # It was empty before: then a crash may have come before anything was done.
                ends.add(self.before.end)
            assert log.log_end_offset in ends, "an emptied log knows where it goes on"
            if self._visible(self.before):
                assert not log.producers.by_id, "it knows nobody of those before"
        if log.log_start_offset <= self.durable:
            assert log.log_end_offset >= self.durable, "what was durable is there"
        below = [h for h in chosen.held if h.header.last_offset < log.log_start_offset]
        self.model = Model(below + held, log.log_start_offset, log.log_end_offset)
        self.durable = log.log_end_offset if lost_power else min(self.durable, self.model.end)
        self.durable_start = log.durable_log_start
        if log.log_start_offset == 0 and not self.was_compacted:
            assert summary(log.producers) == summary(producers_of(held))
        self._forget_producers()

    def _explanation(self, held: list[Held], *, lost_power: bool) -> Model:
        start = self.log.log_start_offset
        for option in (self.after, self.before) if self.under_way else (self.model,):
            visible = [h for h in option.held if h.header.last_offset >= start]
            is_prefix = [h.data for h in visible[: len(held)]] == [h.data for h in held]
            is_whole = len(held) == len(visible)
            if self.under_way in ("truncate", "truncate_below", "restart_at"):
                is_whole = len(held) >= len([h for h in self.after.held if h in visible])
            if self.under_way in ("follow", "append_together"):
                is_whole = len(held) >= len([h for h in self.before.held if h in visible])
            if is_prefix and (lost_power or is_whole):
                return option
        raise AssertionError(
            f"after {self.under_way or 'a quiet moment'} the log holds "
            f"{[tuple(h.header[:3]) for h in held]} from {start}, which is neither "
            f"{[tuple(h.header[:3]) for h in self.before.held]} nor "
            f"{[tuple(h.header[:3]) for h in self.after.held]}"
        )

    def restart_cleanly(self) -> None:
        self.world.stop_and_start()
        self.durable = self.model.end
        self.durable_start = self.model.start
        self.check(lost_power=False)

    @staticmethod
    def _visible(model: Model) -> list[Held]:
        return [held for held in model.held if held.header.last_offset >= model.start]


def check_compaction(before: list[Held], after: list[Held]) -> None:
    """V16: no record is new or moved, and the last value of each key is the same."""
    old = {record.offset: record for record in _data_records(before)}
    for record in _data_records(after):
        assert old.get(record.offset) == record, f"offset {record.offset} changed"
    assert _last_values(before) == _last_values(after)


def _data_records(held: list[Held]) -> list[Record]:
    return [record for item in held if not item.header.is_control for record in item.records]


def _last_values(held: list[Held]) -> dict[bytes | None, bytes]:
    """What a consumer with read_committed has in the end."""
    aborted: set[int] = set()
    open_batches: list[int] = []
    for item in held:
        if item.header.is_control and item.header.record_count:
            if item.records[0].key == b"\0\0\0\0":
                aborted.update(open_batches)
            open_batches = []
        elif item.header.is_transactional:
            open_batches.append(item.header.base_offset)
    last: dict[bytes | None, bytes] = {}
    for item in held:
        if not item.header.is_control and item.header.base_offset not in aborted:
            for record in item.records:
                last.pop(record.key, None)
                if record.value is not None:
                    last[record.key] = record.value
    return last
