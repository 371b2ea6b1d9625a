"""The steps of the demo that make a log smaller: retention, and compaction in a child process."""

import sys
from time import perf_counter
from typing import Final

from tidelog.base.errors import KafkaError
from tidelog.cli.demo_stage import LEADER_EPOCH, ORDERS, PRICES, Stage, batches
from tidelog.cli.demo_writing import DAY_MS
from tidelog.log.cleaner import Cleaner
from tidelog.log.files import DELETED
from tidelog.log.partition_log import PartitionLog
from tidelog.records.reference import Record, encode_batch, read_records
from tidelog.world.real.entropy import RealEntropy

ITEMS: Final = 500
PRICE_BATCHES: Final = 100
RECORDS_PER_BATCH: Final = 100
STEADY_ITEMS: Final = 20
DISCONTINUED: Final = 50
MAP_BYTES: Final = 1 << 20


def apply_retention(stage: Stage) -> None:
    """Drops the segments that are wholly older than a topic keeps them by default."""
    screen = stage.screen
    screen.step("Retention: old segments leave the log as a whole")
    log = stage.logs.get(ORDERS)
    before, oldest_before = _extent(log), _oldest_days(stage, log)
    removed = stage.logs.retain()
    after, oldest_after = _extent(log), _oldest_days(stage, log)
    screen.table(
        ["", "log start", "log end", "segments", "bytes", "oldest order"],
        [("before", *before, oldest_before), ("after", *after, oldest_after)],
    )
    waiting = sum(name.endswith(DELETED) for name in stage.disk.list(log.folder))
    screen.say(
        f"retention.ms is {log.settings.retention_ms // DAY_MS} days, the default, so {removed} "
        f"segments went. Their {waiting} files are renamed to *{DELETED} and stay for "
        f"{log.settings.file_delete_delay_ms // 1000} seconds, for readers in the middle of them."
    )
    screen.notice(f"Whoever asks for offset 0 now is told: {_told_at_0(log)}.")


def _extent(log: PartitionLog) -> tuple[int, int, int, int]:
    return log.log_start_offset, log.log_end_offset, len(log.segments.all), log.segments.size


def _oldest_days(stage: Stage, log: PartitionLog) -> str:
    header, _ = next(batches(log))
    return f"{(stage.clock.now_ms() - header.base_timestamp) / DAY_MS:.1f} days"


def _told_at_0(log: PartitionLog) -> str:
    try:
        log.read(0, 1, log.log_end_offset)
    except KafkaError as error:
        return str(error)
    raise AssertionError("offset 0 is still there")


def compact_prices(stage: Stage) -> None:
    """Writes prices, a few that stay and many that change, and keeps the last of each item."""
    screen = stage.screen
    screen.step("Compaction: of every key, the last record stays")
    log = _write_prices(stage)
    before, prices = _shape(log), _prices(log)
    cleaner = Cleaner(stage.logs, stage.workers, RealEntropy(), MAP_BYTES)
    started = perf_counter()
    figures = cleaner.run_once()
    seconds = perf_counter() - started
    assert figures is not None, "a log of nothing but updates is worth compacting"
    screen.table(
        ["", "records", "bytes", "log end", "items with a price"],
        [("before", *before, len(prices)), ("after", *_shape(log), len(_prices(log)))],
    )
    loaded = "has" if "numba" in sys.modules else "has not"
    screen.say(
        f"A child process read {figures['records_read']:,} records and kept "
        f"{figures['records_kept']:,}, the last of {figures['keys']:,} keys, in compiled loops: "
        f"{seconds:.1f} s with its start. This process, as a broker, {loaded} loaded numba."
    )
    assert _prices(log) == prices, "compaction changed what the log says"
    deletes = sum(record.value is None for record in _last_records(log).values())
    screen.notice(
        f"Read from start to end, the log gives the same price for every item as before, and no "
        f"record has changed its offset. The {deletes} deletes stay as records for another "
        f"{log.settings.delete_retention_ms // 3_600_000} hours, so that every reader learns of "
        f"them."
    )


def _write_prices(stage: Stage) -> PartitionLog:
    log = stage.create(PRICES)
    now_ms = stage.clock.now_ms()
    for number in range(PRICE_BATCHES):
        records = [
            _price(number * RECORDS_PER_BATCH + index, now_ms, offset=index)
            for index in range(RECORDS_PER_BATCH)
        ]
        log.append_as_leader(encode_batch(records), LEADER_EPOCH, now_ms)
    gone = [
        Record(offset=index, timestamp=now_ms, key=f"item-{index}".encode())
        for index in range(DISCONTINUED)
    ]
    log.append_as_leader(encode_batch(gone), LEADER_EPOCH, now_ms)
    log.roll()
    stage.commit(log)
    # Only what is durable is compacted.
    stage.logs.flush(all_of_it=True)
    return log


def _price(number: int, timestamp: int, *, offset: int) -> Record:
    item = ITEMS + number if number < STEADY_ITEMS else number * 31 % ITEMS
    cents = 1_000 + number * 7_919 % 90_000
    return Record(
        offset=offset,
        timestamp=timestamp,
        key=f"item-{item}".encode(),
        value=f'{{"item": {item}, "cents": {cents}}}'.encode(),
    )


def _shape(log: PartitionLog) -> tuple[int, int, int]:
    records = sum(header.record_count for header, _ in batches(log))
    return records, log.segments.size, log.log_end_offset


def _prices(log: PartitionLog) -> dict[bytes | None, Record]:
    """The log read as a table: the last record of each key, without the deleted ones."""
    last = _last_records(log)
    return {key: record for key, record in last.items() if record.value is not None}


def _last_records(log: PartitionLog) -> dict[bytes | None, Record]:
    return {record.key: record for _, batch in batches(log) for record in read_records(batch)}
