"""What a coordinator of transactions needs of the broker it is on."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from tidelog.base.errors import KafkaError
from tidelog.base.ids import TopicPartition
from tidelog.base.ports import Clock, Loop
from tidelog.base.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How a transaction ends, for all of its partitions to be told."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    is_commit: bool
    transaction_version: int
    partitions: tuple[TopicPartition, ...]


class Markers(Protocol):
    def write(
        self, ending: Ending, is_over: Callable[[], bool], done: Callable[[KafkaError | None], None]
    ) -> None:
        """Has a marker written in every partition, by whoever leads it, as often as it has to be
        tried; `done` once, when all that still exist have it. With an error if another coordinator
        has taken over. Nothing more is tried, nor told, when `is_over` says so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionSurroundings:
    clock: Clock
    loop: Loop
    settings: Callable[[], Settings]
    markers: Markers
    next_producer_id: Callable[[Callable[[int | KafkaError], None]], None]
