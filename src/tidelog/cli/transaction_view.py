"""Transactions for people, as kafka-transactions.sh lays them out or as a table, and for programs.

All are rows of one kind: names of columns, and cells of which None is said as Kafka says it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tidelog.base.ids import TopicPartition
from tidelog.cli.printing import Format, say, say_json, say_table
from tidelog.client.transactions import ActiveProducer, ListedTransaction, Transaction

_MS_PER_MINUTE: Final = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """What it is called in Kafka's layout, and elsewhere."""

    kafka: str
    name: str


def _columns(*names: tuple[str, str]) -> list[Column]:
    return [Column(kafka=kafka, name=name) for kafka, name in names]


_ID: Final = ("TransactionalId", "transactional_id")
_PRODUCER: Final = ("ProducerId", "producer_id")
_EPOCH: Final = ("ProducerEpoch", "producer_epoch")
_STATE: Final = ("TransactionState", "state")
_LISTED: Final = _columns(_ID, ("Coordinator", "coordinator"), _PRODUCER, _STATE)
_DESCRIBED: Final = _columns(
    ("CoordinatorId", "coordinator"),
    *(_ID, _PRODUCER, _EPOCH, _STATE),
    ("TransactionTimeoutMs", "timeout_ms"),
    ("CurrentTransactionStartTimeMs", "start_ms"),
    ("TransactionDurationMs", "duration_ms"),
    ("TopicPartitions", "partitions"),
)
_PRODUCERS: Final = _columns(
    *(_PRODUCER, _EPOCH),
    ("LatestCoordinatorEpoch", "coordinator_epoch"),
    ("LastSequence", "last_sequence"),
    ("LastTimestamp", "last_timestamp"),
    ("CurrentTransactionStartOffset", "start_offset"),
)
_HANGING: Final = _columns(
    ("Topic", "topic"),
    ("Partition", "partition"),
    *(_PRODUCER, _EPOCH),
    ("CoordinatorEpoch", "coordinator_epoch"),
    ("StartOffset", "start_offset"),
    ("LastTimestamp", "last_timestamp"),
    ("Duration(min)", "duration_minutes"),
)


def show_listed(found: Sequence[ListedTransaction], how: Format) -> None:
    rows = [(one.transactional_id, one.coordinator, one.producer_id, one.state) for one in found]
    _show(_LISTED, rows, how)


def show_described(found: Sequence[Transaction], now_ms: int, how: Format) -> None:
    rows = [
        (
            *(one.coordinator, one.transactional_id, one.producer_id, one.producer_epoch),
            *(one.state, one.timeout_ms, one.start_ms),
            None if one.start_ms is None else now_ms - one.start_ms,
            [str(partition) for partition in one.partitions],
        )
        for one in found
    ]
    _show(_DESCRIBED, rows, how)


def show_producers(found: Sequence[ActiveProducer], how: Format) -> None:
    rows = [
        (
            *(one.producer_id, one.producer_epoch, one.coordinator_epoch),
            *(one.last_sequence, one.last_timestamp_ms, one.start_offset),
        )
        for one in found
    ]
    _show(_PRODUCERS, rows, how)


def show_hanging(
    found: Mapping[TopicPartition, Sequence[ActiveProducer]], now_ms: int, how: Format
) -> None:
    rows = [
        (
            *(one.topic, one.partition, producer.producer_id, producer.producer_epoch),
            *(producer.coordinator_epoch, producer.start_offset, producer.last_timestamp_ms),
            (now_ms - producer.last_timestamp_ms) // _MS_PER_MINUTE,
        )
        for one, producers in found.items()
        for producer in producers
    ]
    _show(_HANGING, rows, how)


def _show(columns: Sequence[Column], rows: Sequence[Sequence[Any]], how: Format) -> None:
    if how is Format.json:
        names = [column.name for column in columns]
        say_json([dict(zip(names, row, strict=True)) for row in rows])
        return
    cells = [[_cell(value) for value in row] for row in rows]
    if how is Format.table:
        say_table([column.name.upper().replace("_", "-") for column in columns], cells)
    else:
        _say_as_kafka_does([[column.kafka for column in columns], *cells])


def _say_as_kafka_does(lines: Sequence[Sequence[str]]) -> None:
    """Columns of one width, with a tab behind each."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        say("".join(f"{cell.ljust(width)}\t" for cell, width in zip(line, widths, strict=True)))


def _cell(value: Any) -> str:
    return ",".join(value) if isinstance(value, list) else str(value)
