"""Produce requests that came together: what they have for one partition is written at once.

A client that sends ahead has several of them waiting, often for the same partitions, and a write of
some thousand bytes takes hardly longer than one of a few hundred. Where a batch must wait for
something, the requests are handled one after the other instead, as if each had come alone. First
everything is written, and only then is anybody told: whoever is may write here himself.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from tidelog.base.errors import KafkaError
from tidelog.handlers.api import Node, Request
from tidelog.handlers.producing import (
    ACKS,
    ALL,
    ATTRIBUTES,
    NOTHING,
    Producing,
    Result,
    refusal,
)
from tidelog.log.joint_append import append_together
from tidelog.partition import Partition
from tidelog.partitions import Key
from tidelog.records.batch import HEADER_SIZE, MAX_TIMESTAMP, NEGATIVE, TRANSACTIONAL
from tidelog.slow_appends import SMALL_BYTES_MAX
from tidelog.wire.produce import ProduceRequest

PARTITIONS_MIN: Final = 2
"""Requests of one partition gain nothing: bringing them together takes what a write does."""


class _Run:
    """The batches for one partition, in the order in which they came."""

    __slots__ = ("batches", "grown_bytes", "partition", "results", "wants_all")

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.batches: list[memoryview] = []
        self.results: Iterator[Result] = iter(())
        self.grown_bytes = 0
        self.wants_all = False

    def can_be_written(self) -> bool:
        """Whether they can be appended in the loop, and now; some may be refused then."""
        partition, segment = self.partition, self.partition.log.segments.active
        size = sum(map(len, self.batches))
        if (
            partition.needs_care
            or partition.is_busy
            or size > SMALL_BYTES_MAX
            or segment.size + size > segment.roll_bytes
        ):
            return False
        if self.wants_all:
            try:
                partition.check_enough_in_sync()
            except KafkaError:
                return False
        self.grown_bytes = size
        return True

    def write(self, now_ms: int) -> None:
        partition, log = self.partition, self.partition.log
        try:
            offsets = append_together(log, self.batches, partition.leader_epoch, now_ms)
        except KafkaError:
            # The one that is not good is refused alone; if it was the disk, all are.
            offsets = None
        if offsets is None:
            self.results = iter(self._write_one_by_one(now_ms))
        else:
            start = log.log_start_offset
            self.results = iter([(0, offset, NOTHING, start, None) for offset in offsets])

    def _write_one_by_one(self, now_ms: int) -> list[Result]:
        partition, log = self.partition, self.partition.log
        results: list[Result] = []
        time_ms = now_ms if log.settings.timestamp_type_log_append else NOTHING
        for batch in self.batches:
            end = log.log_end_offset
            try:
                offset = log.append_as_leader(batch, partition.leader_epoch, now_ms)
                results.append((0, offset, time_ms, log.log_start_offset, None))
            except KafkaError as error:
                results.append(refusal(error))
            if log.log_end_offset == end:
                self.grown_bytes -= len(batch)
        return results


def handle_together(node: Node, requests: Sequence[Request]) -> list[list[Result] | None] | None:
    """The results of each request, None for one that is answered later; None instead of all that if
    they are to be handled one by one."""
    if len(requests[0].body.partitions) < PARTITIONS_MIN:
        return None
    runs: dict[Key, _Run] = {}
    rows: list[list[_Run]] = []
    for request in requests:
        row = _gathered(node, request.body, runs)
        if row is None:
            return None
        rows.append(row)
    if len(runs) == sum(map(len, rows)) or not all(run.can_be_written() for run in runs.values()):
        return None
    now_ms = node.clock.now_ms()
    for run in runs.values():
        run.write(now_ms)
    for run in runs.values():
        run.partition.appended(run.grown_bytes)
    return [_results(node, request, row) for request, row in zip(requests, rows, strict=True)]


def _gathered(node: Node, produce: ProduceRequest, runs: dict[Key, _Run]) -> list[_Run] | None:
    """Adds the batches of a request to the runs; in which of them each is, or None if one of them
    is nothing to be appended, or must be verified or looked into before."""
    if produce.acks not in ACKS:
        return None
    find = node.partitions.by_key.get
    wants_all = produce.acks == ALL
    row: list[_Run] = []
    for topic, index, batch in produce.partitions:
        if batch is None or len(batch) < HEADER_SIZE or batch[ATTRIBUTES] & TRANSACTIONAL:
            return None
        if batch[MAX_TIMESTAMP] & NEGATIVE:
            return None
        key = topic, index
        run = runs.get(key)
        if run is None:
            partition = find(key)
            if partition is None:
                return None
            run = runs[key] = _Run(partition)
        if wants_all:
            run.wants_all = True
        run.batches.append(batch)
        row.append(run)
    return row


def _results(node: Node, request: Request, row: list[_Run]) -> list[Result] | None:
    results = [next(run.results) for run in row]
    if request.body.acks == ALL:
        uncommitted = [
            (at, run.partition)
            for at, run in enumerate(row)
            if not results[at][0]
            and run.partition.high_watermark < run.partition.log.log_end_offset
        ]
        if uncommitted:
            Producing(node, request, results).wait(([], uncommitted, []))
            return None
    return results
