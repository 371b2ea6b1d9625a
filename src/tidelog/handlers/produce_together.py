"""Produce requests that came together: what they have for one partition is written at once.

A client that sends ahead has several of them waiting, often for the same partitions, and a write of
some thousand bytes takes hardly longer than one of a few hundred; and of many batches kernels do
what would be the same for each (`records/joiner`). Where a batch must wait for something, the
requests are handled one after the other instead, as if each had come alone. First everything is
written, and only then is anybody told: whoever is may write here himself.
"""

from array import array
from collections.abc import Sequence

from tidelog.base.errors import KafkaError
from tidelog.handlers.api import Node, Request
from tidelog.handlers.producing import ACKS, ALL, NOTHING, Producing, Result, refusal
from tidelog.log.joint_append import Run, append_run, can_be_appended, words_of
from tidelog.partition import Partition
from tidelog.records import join_layout as layout
from tidelog.records.joiner import Joined, the_joiner
from tidelog.wire.produce import ProduceRequest
from tidelog.wire.produce_answer import frame_packed
from tidelog.wire.topics import Topic

Answer = list[Result] | bytes | None
"""What each batch came to, or all of that packed; None if it will be told later."""


class _Lot:
    """The batches of all requests, by the partitions that they are for."""

    def __init__(self, node: Node) -> None:
        self._find = node.partitions.by_key.get
        self.rows: list[array[int]] = []
        self.run_of: list[int] = []
        """For each batch, which of the partitions it is for."""
        self.partitions: list[Partition] = []
        self._numbers: dict[Topic, dict[int, int]] = {}

    def add(self, produce: ProduceRequest, rows: "array[int]") -> bool:
        """Whether all its batches are for partitions that are here."""
        self.rows.append(rows)
        indexes = rows[:: layout.ROW_WORDS].tolist()
        at = 0
        for topic, (_, count) in zip(produce.topics, produce.groups, strict=True):
            numbers = self._numbers.setdefault(topic, {})
            for index in indexes[at : at + count]:
                number = numbers.get(index, -1)
                if number < 0:
                    partition = self._find((topic, index))
                    if partition is None:
                        return False
                    number = numbers[index] = len(self.partitions)
                    self.partitions.append(partition)
                self.run_of.append(number)
            at += count
        return True

    def log_words(self, wants_all: bool, now_ms: int) -> list[int] | None:
        """For each partition what kernels must know of it; None if one of them has to wait."""
        words: list[int] = []
        for partition in self.partitions:
            if partition.needs_care or partition.is_busy:
                return None
            if wants_all:
                try:
                    partition.check_enough_in_sync()
                except KafkaError:
                    return None
            of_log = words_of(partition.log, partition.leader_epoch, now_ms)
            if of_log is None:
                return None
            words += of_log
        return words


def handle_together(node: Node, requests: Sequence[Request]) -> list[Answer] | None:
    """What each request came to; None instead of all that if they are to be handled one by one, and
    nothing was done."""
    joiner, lot = the_joiner(), _gathered(node, requests)
    if joiner is None or lot is None or node.slow_appends.is_at_limit:
        return None
    now_ms = node.clock.now_ms()
    wants_all = any(request.body.acks == ALL for request in requests)
    logs = lot.log_words(wants_all, now_ms)
    if logs is None:
        return None
    joined = joiner.join(lot.rows, lot.run_of, logs)
    if joined is None:
        return None
    runs = [Run(joined.runs, at) for at in range(0, len(joined.runs), layout.RUN_WORDS)]
    for partition, run in zip(lot.partitions, runs, strict=True):
        if not can_be_appended(partition.log, run, joined):
            return None
    errors = _write(lot.partitions, runs, joined)
    # Whoever is told may have others served, whose batches are joined in the same memory.
    packed = bytes(joiner.answers[: len(lot.run_of) * layout.ANSWER.size])
    for number, partition in enumerate(lot.partitions):
        if number not in errors:
            partition.appended(runs[number].end - runs[number].start)
    if errors or (wants_all and not _are_committed(lot.partitions)):
        return _told(node, requests, lot, _results(lot, packed, errors))
    return _packed(requests, memoryview(packed))


def _gathered(node: Node, requests: Sequence[Request]) -> _Lot | None:
    lot = _Lot(node)
    for request in requests:
        produce: ProduceRequest = request.body
        rows = produce.rows
        if rows is None or produce.acks not in ACKS or not lot.add(produce, rows):
            return None
    return lot


def _write(partitions: list[Partition], runs: list[Run], joined: Joined) -> dict[int, KafkaError]:
    """The errors of disks, by the numbers of the runs that could not be written."""
    errors: dict[int, KafkaError] = {}
    for number, partition in enumerate(partitions):
        try:
            append_run(partition.log, runs[number], joined)
        except KafkaError as error:
            errors[number] = error
    return errors


def _are_committed(partitions: list[Partition]) -> bool:
    return all(partition.high_watermark >= partition.log.log_end_offset for partition in partitions)


def _packed(requests: Sequence[Request], packed: memoryview) -> list[Answer]:
    """Kernels have packed a part of the answer for each batch, in the order of the requests."""
    answers: list[Answer] = []
    at = 0
    for request in requests:
        end = at + request.body.partition_count * layout.ANSWER.size
        answers.append(frame_packed(request.correlation_id, request.body, packed[at:end]))
        at = end
    return answers


def _results(lot: _Lot, packed: bytes, errors: dict[int, KafkaError]) -> list[Result]:
    """What each batch came to, in the order of the requests."""
    refused = {number: refusal(error) for number, error in errors.items()}
    answers = layout.ANSWER.iter_unpack(packed)
    return [
        refused.get(number) or (0, answer[2], NOTHING, answer[4], None)
        for number, answer in zip(lot.run_of, answers, strict=True)
    ]


def _told(
    node: Node, requests: Sequence[Request], lot: _Lot, results: list[Result]
) -> list[Answer]:
    """Whoever wants his batches committed waits for those that are not yet."""
    answers: list[Answer] = []
    at = 0
    for request in requests:
        end = at + request.body.partition_count
        own = results[at:end]
        uncommitted: list[tuple[int, Partition]] = []
        if request.body.acks == ALL:
            for place, number in enumerate(lot.run_of[at:end]):
                partition = lot.partitions[number]
                if not own[place][0] and partition.high_watermark < partition.log.log_end_offset:
                    uncommitted.append((place, partition))
        if uncommitted:
            Producing(node, request, own).wait(([], uncommitted, []))
        answers.append(None if uncommitted else own)
        at = end
    return answers
