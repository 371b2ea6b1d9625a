"""The first steps with the log: batches, and two transactions."""

from dataclasses import dataclass
from time import perf_counter
from typing import Final

from tidelog.base.errors import KafkaError
from tidelog.cli.demo_stage import LEADER_EPOCH, ORDERS, Stage, batches, order, orders
from tidelog.log.decided import DecidedTransactions, read_aborted
from tidelog.log.partition_log import PartitionLog
from tidelog.records.compression import NAMES
from tidelog.records.control import EndTransaction, encode_end_transaction
from tidelog.records.reference import Record, encode_batch

DAY_MS: Final = 86_400_000
DAYS: Final = 20
BATCHES: Final = 100
RECORDS_PER_BATCH: Final = 100
COMMITTING: Final = 2001
ABORTING: Final = 2002


@dataclass(slots=True)
class Tally:
    batches: int = 0
    plain_bytes: int = 0
    stored_bytes: int = 0

    def add(self, *, plain: int, stored: int) -> None:
        self.batches += 1
        self.plain_bytes += plain
        self.stored_bytes += stored


def write_batches(stage: Stage) -> None:
    """Appends twenty days of orders, each batch with the next codec."""
    screen = stage.screen
    screen.step("Write: a log is batches of records, stored as the client sent them")
    log = stage.create(ORDERS)
    tallies = [Tally() for _ in NAMES]
    append_seconds = 0.0
    now_ms = stage.clock.now_ms()
    for number in range(BATCHES):
        codec = number % len(NAMES)
        records = _orders_of_batch(number, now_ms)
        batch = encode_batch(records, compression=codec)
        tallies[codec].add(plain=len(encode_batch(records)), stored=len(batch))
        started = perf_counter()
        log.append_as_leader(batch, LEADER_EPOCH, now_ms)
        append_seconds += perf_counter() - started
    stage.commit(log)
    _show_codecs(stage, tallies)
    screen.say(
        f"{log.log_end_offset:,} records went into {ORDERS}, in {BATCHES} appends of "
        f"{append_seconds / BATCHES * 1e6:,.0f} microseconds on average, checksums included."
    )
    _refuse_damage(stage, log)


def _orders_of_batch(number: int, now_ms: int) -> list[Record]:
    """One batch out of an even stream of orders that ends now."""
    first = number * RECORDS_PER_BATCH
    interval_ms = DAYS * DAY_MS // (BATCHES * RECORDS_PER_BATCH)
    first_ms = now_ms - DAYS * DAY_MS + first * interval_ms
    return [
        order(first + index, first_ms + index * interval_ms, offset=index)
        for index in range(RECORDS_PER_BATCH)
    ]


def _show_codecs(stage: Stage, tallies: list[Tally]) -> None:
    stage.screen.table(
        ["codec", "batches", "bytes as records", "bytes in the log", "smaller by"],
        [
            (
                name,
                tally.batches,
                tally.plain_bytes,
                tally.stored_bytes,
                f"{tally.plain_bytes / tally.stored_bytes:.1f}x",
            )
            for name, tally in zip(NAMES, tallies, strict=True)
        ],
    )


def _refuse_damage(stage: Stage, log: PartitionLog) -> None:
    damaged = encode_batch(orders(1, stage.clock.now_ms()))
    damaged[-1] ^= 1
    stage.screen.notice(
        f"A batch with one flipped bit is refused before anything is written: "
        f"{_refusal(stage, log, damaged)}."
    )


def write_transactions(stage: Stage) -> None:
    """Two producers write at the same time; one commits, the other aborts."""
    screen = stage.screen
    screen.step("Transactions: all of it is seen, or nothing")
    log = stage.logs.get(ORDERS)
    start = log.log_end_offset
    seen = []
    _append_in_transaction(stage, log, COMMITTING, count=4)
    _append_in_transaction(stage, log, ABORTING, count=5)
    seen.append(("two transactions open", *_seen(stage, log, start)))
    _end_transaction(stage, log, COMMITTING, committed=True)
    seen.append((f"producer {COMMITTING} commits", *_seen(stage, log, start)))
    _end_transaction(stage, log, ABORTING, committed=False)
    seen.append((f"producer {ABORTING} aborts", *_seen(stage, log, start)))
    screen.table(["after", "log end", "last stable offset", "read_committed sees"], seen)
    aborted = read_aborted(stage.disk, log.folder, 0)
    screen.notice(
        f"The aborted records stay in the log; a .txnindex of {len(aborted)} entry tells readers "
        f"to skip offsets {aborted[0].first_offset:,} to {aborted[0].last_offset:,} of producer "
        f"{aborted[0].producer_id}."
    )


def _append_in_transaction(
    stage: Stage, log: PartitionLog, producer_id: int, *, count: int
) -> None:
    now_ms = stage.clock.now_ms()
    batch = encode_batch(
        orders(count, now_ms),
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )
    log.append_as_leader(batch, LEADER_EPOCH, now_ms)
    stage.commit(log)


def _end_transaction(stage: Stage, log: PartitionLog, producer_id: int, *, committed: bool) -> None:
    marker = EndTransaction(
        producer_id=producer_id, producer_epoch=0, committed=committed, coordinator_epoch=0
    )
    batch = encode_end_transaction(marker, timestamp=stage.clock.now_ms())
    log.append_own(batch, LEADER_EPOCH)
    stage.commit(log)


def _seen(stage: Stage, log: PartitionLog, start: int) -> tuple[int, int, str]:
    """Log end, last stable offset, and how many records from `start` a reader is shown who
    only wants what was committed."""
    unstable = log.producers.first_unstable_offset
    stable = log.log_end_offset if unstable is None else unstable
    decided = DecidedTransactions(read_aborted(stage.disk, log.folder, 0))
    written = [h for h, _ in batches(log) if h.base_offset >= start and not h.is_control]
    shown = [h for h in written if h.base_offset < stable and not decided.is_aborted(h)]
    counts = [sum(header.record_count for header in headers) for headers in (shown, written)]
    return log.log_end_offset, stable, f"{counts[0]} of the {counts[1]} records"


def _refusal(stage: Stage, log: PartitionLog, batch: bytearray) -> str:
    """What a producer of this batch is told."""
    end = log.log_end_offset
    try:
        log.append_as_leader(batch, LEADER_EPOCH, stage.clock.now_ms())
    except KafkaError as error:
        assert log.log_end_offset == end, "a refused batch leaves the log as it was"
        return str(error)
    raise AssertionError("a bad batch was accepted")
