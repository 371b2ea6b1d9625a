"""Rules of logs and their dirs, each replaced by the mistake that somebody has made (X24-X28).

As with the mutants of the machine: one small production function is put in the place of another.
"""

from typing import Any

import pytest

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.log import (
    checkpointing,
    followed_batches,
    leftovers,
    log_dir,
    recovery,
    retention,
    truncation,
)
from tidelog.log.checkpoints import CLEAN_SHUTDOWN, HIGH_WATERMARKS
from tidelog.log.flush import Flush
from tidelog.log.log_dir import CLEAN_SHUTDOWN_CONTENT, LogDir
from tidelog.log.partition_log import PartitionLog
from tidelog.log.producers import Producers
from tidelog.log.replay import note_batch
from tidelog.records.batch import read_header


def save_watermarks_that_moved(patch: pytest.MonkeyPatch) -> None:
    """X24 (KAFKA-1647): replicas that nobody has spoken of yet are not in the next checkpoint."""
    read = checkpointing.read_checkpoints
    saved: dict[Any, int] = {}

    def reading(opened: LogDir) -> None:
        read(opened)
        saved.update(opened.high_watermarks)

    def persist(self: LogDir) -> None:
        moved = {p: at for p, at in self.high_watermarks.items() if saved.get(p) != at}
        self._write_offsets(HIGH_WATERMARKS, moved)

    patch.setattr(log_dir, "read_checkpoints", reading)
    patch.setattr(LogDir, "persist_high_watermarks", persist)


def give_up_what_is_not_committed(patch: pytest.MonkeyPatch) -> None:
    """X25 (KAFKA-5634): retention looks at sizes and times only."""
    by_size, by_time = retention._start_by_size, retention._start_by_time
    patch.setattr(
        retention, "_start_by_size", lambda log, _watermark: by_size(log, log.log_end_offset)
    )
    patch.setattr(
        retention,
        "_start_by_time",
        lambda log, _watermark, now_ms: by_time(log, log.log_end_offset, now_ms),
    )


def forgive_disk_errors(patch: pytest.MonkeyPatch) -> None:
    """X26 (KAFKA-10778): who asked is told, and the dir stays in use."""

    def forgiven(_self: LogDir, error: OSError) -> KafkaError:
        return KafkaError(ErrorCode.kafka_storage_error, str(error))

    patch.setattr(LogDir, "fail", forgiven)


def keep_the_marker_of_a_clean_stop(patch: pytest.MonkeyPatch) -> None:
    """X27 (KAFKA-10471): it is there until the next clean stop writes another."""
    forget = LogDir._forget_clean_shutdown

    def kept(self: LogDir) -> None:
        forget(self)
        if self.was_closed:
            self._write(CLEAN_SHUTDOWN, CLEAN_SHUTDOWN_CONTENT)

    patch.setattr(LogDir, "_forget_clean_shutdown", kept)


def believe_the_recovery_point(patch: pytest.MonkeyPatch) -> None:
    """X27 (KAFKA-10101): what the checkpoint says is durable is, whether it is there or not."""
    settle = recovery._settle_bounds

    def settled(log: PartitionLog, found: recovery.Found) -> None:
        settle(log, found)
        log.recovery_point = max(log.recovery_point, found.recovery_point)

    patch.setattr(recovery, "_settle_bounds", settled)


def leave_names_to_the_system(patch: pytest.MonkeyPatch) -> None:
    """X27 (KAFKA-3968): a flush syncs files, and not the folder that names them."""

    def put_in_place(self: Flush) -> None:
        if self.epochs is not None:
            self.disk.rename(f"{self._epochs_path}.flushing.tmp", self._epochs_path)

    patch.setattr(Flush, "put_in_place", put_in_place)


def remove_all_leftovers(patch: pytest.MonkeyPatch) -> None:
    """X27 (KAFKA-12520): a complete segment that was to take the place of others goes."""

    def settle(disk: Any, folder: str) -> None:
        for name in disk.list(folder):
            if name.endswith((".swap", ".cleaned", ".deleted", ".tmp")):
                disk.remove(f"{folder}/{name}")

    patch.setattr(leftovers, "settle", settle)


def note_producers_before_the_write(patch: pytest.MonkeyPatch) -> None:
    """X28 (KAFKA-6683): a batch counts as appended before it is."""
    write = PartitionLog._write_produced

    def noted(self: PartitionLog, batch: Any, length: int, delta: int, *rest: Any) -> int:
        header = read_header(batch)
        offsets = (self.log_end_offset, self.log_end_offset + delta)
        producer = (header.producer_id, header.producer_epoch, header.base_sequence)
        self.producers.append(*producer, offsets, rest[0], header.attributes)
        return write(self, batch, length, delta, *rest)

    patch.setattr(PartitionLog, "_write_produced", noted)


def check_sequences_of_followers(patch: pytest.MonkeyPatch) -> None:
    """X28 (KAFKA-6003): a replica takes nothing from the middle of what it does not know."""

    def checked(producers: Producers, header: Any, data: Any) -> Any:
        if header.producer_id not in producers.by_id and header.base_sequence > 0:
            raise KafkaError(ErrorCode.out_of_order_sequence_number, "where 0 is next")
        return note_batch(producers, header, data)

    patch.setattr(followed_batches, "note_batch", checked)


def note_no_producers_as_follower(patch: pytest.MonkeyPatch) -> None:
    """X28: only a leader knows which batches were there before."""
    patch.setattr(followed_batches, "note_batch", lambda *_arguments: None)


def age_from_the_last_record(patch: pytest.MonkeyPatch) -> None:
    """X28 (KAFKA-9144): a marker is no sign of life."""
    end = Producers.end_transaction

    def ended(self: Producers, producer_id: int, *rest: Any) -> Any:
        producer = self.by_id.get(producer_id)
        before = None if producer is None else producer.last_timestamp
        aborted = end(self, producer_id, *rest)
        if before is not None:
            self.by_id[producer_id].last_timestamp = before
        return aborted

    patch.setattr(Producers, "end_transaction", ended)


def forget_producers_of_deleted_records(patch: pytest.MonkeyPatch) -> None:
    """X28 (KAFKA-7298): with its records a producer goes, and its open transaction stays."""
    delete = retention.delete_records

    def forgetful(log: PartitionLog, before: int, high_watermark: int) -> int:
        start = delete(log, before, high_watermark)
        producers = log.producers.by_id
        for producer_id in [each for each, one in producers.items() if one.last_offset < start]:
            del producers[producer_id]
        return start

    patch.setattr(retention, "delete_records", forgetful)


def keep_producers_of_what_is_cut(patch: pytest.MonkeyPatch) -> None:
    """X28 (KAFKA-12153): batches that were cut off are still known."""
    patch.setattr(truncation, "reload_producers", lambda *_arguments: None)
