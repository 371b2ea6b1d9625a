"""Replicas of a topic as brokers leave them in their log dirs, batch by batch: for audits."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tidelog.base.ids import TopicPartition
from tidelog.log.checkpoints import (
    HIGH_WATERMARKS,
    LOG_STARTS,
    META_PROPERTIES,
    format_meta_properties,
    format_offsets,
)
from tidelog.log.files import LOG, file_name
from tidelog.records.reference import Record, encode_batch
from tidelog.spark.audited_files import Subject, of_log_dirs

TOPIC = "orders"
BROKERS = ("1", "2", "3")


@dataclass
class Stored:
    """A batch as it is to lie in a replica's file."""

    offset: int
    values: Sequence[tuple[bytes | None, bytes | None]]
    sequence: int = -1
    is_transactional: bool = False
    timestamp: int = 1000
    headers: tuple[tuple[str, bytes | None], ...] = ()
    """Of each record."""

    @property
    def next_offset(self) -> int:
        return self.offset + len(self.values)

    def encoded(self) -> bytes:
        records = [
            Record(
                offset=self.offset + number,
                timestamp=self.timestamp,
                key=key,
                value=value,
                headers=self.headers,
            )
            for number, (key, value) in enumerate(self.values)
        ]
        is_idempotent = self.sequence >= 0 or self.is_transactional
        return bytes(
            encode_batch(
                records,
                base_offset=self.offset,
                base_sequence=self.sequence,
                leader_epoch=3,
                producer_id=7 if is_idempotent else -1,
                producer_epoch=0 if is_idempotent else -1,
                transactional=self.is_transactional,
            )
        )


def history(count: int = 60, size: int = 5) -> list[Stored]:
    """Batches one after the other, of an idempotent producer."""
    return [
        Stored(
            offset=number * size,
            values=[(b"k%d" % (n % 4), b"v%d-%d" % (number, n)) for n in range(size)],
            sequence=number * size,
        )
        for number in range(count)
    ]


def write_replica(folder: Path, broker: str, batches: Sequence[Stored], watermark: int) -> Path:
    """Three segments of it, and the checkpoints that a broker leaves."""
    log_dir = folder / f"broker-{broker}"
    place = log_dir / f"{TOPIC}-0"
    place.mkdir(parents=True)
    third = max(1, len(batches) // 3)
    for start in range(0, len(batches), third):
        part = batches[start : start + third]
        name = file_name(part[0].offset, LOG)
        (place / name).write_bytes(b"".join(batch.encoded() for batch in part))
    offsets = {TopicPartition(TOPIC, 0): watermark}
    (log_dir / HIGH_WATERMARKS).write_bytes(format_offsets(offsets))
    (log_dir / LOG_STARTS).write_bytes(format_offsets({}))
    fields = {"version": "0", "broker.id": broker}
    (log_dir / META_PROPERTIES).write_bytes(format_meta_properties(fields))
    return log_dir


def replicas(folder: Path, *histories: Sequence[Stored], watermark: int = 300) -> Subject:
    dirs = [
        str(write_replica(folder, broker, batches, watermark))
        for broker, batches in zip(BROKERS, histories, strict=False)
    ]
    return of_log_dirs(dirs, TOPIC, is_compacted=False)
