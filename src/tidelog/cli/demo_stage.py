"""What the steps of the demo share: a log dir on the real disk, and how its records look.

There is one replica of everything, so a record is committed as soon as it is appended:
`commit` moves the high watermark, as the leader of a partition does once its followers have
fetched.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tidelog.base.ids import TopicPartition
from tidelog.base.log_settings import LogSettings
from tidelog.cli.demo_screen import Screen
from tidelog.log.log_dir import LogDir
from tidelog.log.logs import Logs
from tidelog.log.partition_log import PartitionLog
from tidelog.records.batch import BatchHeader, check_stored, walk
from tidelog.records.reference import Record
from tidelog.world.real.clock import RealClock
from tidelog.world.real.disk import RealDisk
from tidelog.world.real.workers import RealWorkers

IDENTITY: Final = {"broker.id": "1", "cluster.id": "demo"}
LEADER_EPOCH: Final = 0
READ_BYTES: Final = 1 << 20
CUSTOMERS: Final = 200

ORDERS: Final = TopicPartition("orders", 0)
PRICES: Final = TopicPartition("prices", 0)

SETTINGS: Final = {
    ORDERS: LogSettings(segment_bytes=64 << 10),
    PRICES: LogSettings(segment_bytes=64 << 10, cleanup_compact=True, cleanup_delete=False),
}


@dataclass(slots=True, kw_only=True)
class Stage:
    screen: Screen
    disk: RealDisk
    clock: RealClock
    workers: RealWorkers
    log_dir: LogDir
    logs: Logs

    def create(self, partition: TopicPartition) -> PartitionLog:
        return self.logs.create(partition, SETTINGS[partition])

    def commit(self, log: PartitionLog) -> None:
        self.log_dir.high_watermarks[log.partition] = log.log_end_offset
        log.producers.committed_up_to(log.log_end_offset)


def open_stage(folder: str, screen: Screen) -> Stage:
    disk, clock, workers = RealDisk(), RealClock(), RealWorkers()
    log_dir = LogDir(folder, disk, clock, workers)
    logs = Logs([log_dir])
    logs.open(IDENTITY, SETTINGS.__getitem__)
    return Stage(screen=screen, disk=disk, clock=clock, workers=workers, log_dir=log_dir, logs=logs)


def order(number: int, timestamp: int, *, offset: int = 0) -> Record:
    customer = number * 37 % CUSTOMERS
    value = {
        "order": number,
        "customer": customer,
        "item": ("lamp", "desk", "chair", "shelf", "rug")[number % 5],
        "cents": 1_000 + number * 7_919 % 90_000,
    }
    return Record(
        offset=offset,
        timestamp=timestamp,
        key=f"customer-{customer}".encode(),
        value=json.dumps(value).encode(),
    )


def orders(count: int, timestamp: int) -> list[Record]:
    return [order(number, timestamp, offset=number) for number in range(count)]


def batches(log: PartitionLog) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Every batch of a log as a reader fetches it, with its checksum verified."""
    offset = log.log_start_offset
    while (piece := log.read(offset, READ_BYTES, log.log_end_offset)).size:
        data = memoryview(piece.file.pread(piece.size, piece.position))
        for position, header in walk(data):
            check_stored(data, position)
            offset = header.next_offset
            yield header, data[position : position + header.size]
