"""WriteTxnMarkers, API 27: ends transactions in partitions that this broker leads.

Coordinators send it to one another's brokers. So does whoever aborts a transaction that its
coordinator knows nothing of and that keeps readers waiting: such a request comes from a client. A
marker in `__consumer_offsets` is told to the groups there: what the transaction has committed of
their offsets counts from then on, or never (A4).
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.base.ids import CONSUMER_OFFSETS, TopicPartition
from tidelog.handlers.api import Api, Node, Request
from tidelog.handlers.building import Values, respond
from tidelog.handlers.local_partitions import find_local
from tidelog.handlers.rows import work_in_slices
from tidelog.marker_appends import Marker, append_marker
from tidelog.marker_sending import Lot, Results
from tidelog.records.control import EndTransaction
from tidelog.slices import Sliced

Key = tuple[int, TopicPartition]
"""Producer id and partition."""
Written = Callable[[Results], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One marker for some partitions."""

    end: EndTransaction
    transaction_version: int
    partitions: Iterable[TopicPartition]


class _Writing:
    """Markers that are being written, until the last is committed or refused."""

    def __init__(self, done: Written) -> None:
        self._done = done
        self._undone = 1
        self._results: dict[Key, ErrorCode] = {}

    def expect(self, key: Key) -> Callable[[KafkaError | None], None]:
        self._undone += 1
        return partial(self._end, key)

    def all_asked(self) -> None:
        self._finish_one()

    def _end(self, key: Key, error: KafkaError | None) -> None:
        self._results[key] = ErrorCode.none if error is None else error.code
        self._finish_one()

    def _finish_one(self) -> None:
        self._undone -= 1
        if not self._undone:
            self._done(self._results)


def write_markers(node: Node, asked: Iterable[Asked], done: Written) -> Sliced:
    """Tells what came of each when all are committed or refused."""
    writing = _Writing(done)
    for each in asked:
        for partition in each.partitions:
            end = writing.expect((each.end.producer_id, partition))
            try:
                _write(node, each, partition, end)
            except KafkaError as error:
                end(error)
            yield None
    writing.all_asked()


def _write(
    node: Node, asked: Asked, at: TopicPartition, done: Callable[[KafkaError | None], None]
) -> None:
    if asked.end.producer_id < 0 or asked.end.producer_epoch < 0:
        raise KafkaError(ErrorCode.invalid_request, "a marker names a producer and its epoch")
    partition = find_local(node, at.topic, at.partition)
    partition.check_enough_in_sync()
    on_append = _nobody
    if at.topic == CONSUMER_OFFSETS:
        shard = node.coordinators.groups.at(at.partition)
        end = asked.end
        on_append = partial(
            shard.replay_marker, end.producer_id, end.producer_epoch, is_commit=end.committed
        )
    marker = Marker(
        end=asked.end, transaction_version=asked.transaction_version, on_append=on_append
    )
    append_marker(partition, marker, node.clock.now_ms(), done)


def _nobody() -> None:
    """Other topics have nobody who must know."""


def write_lot(node: Node, lot: Lot, done: Written) -> None:
    """For the coordinator on this broker itself."""
    asked = [
        Asked(
            end=EndTransaction(
                producer_id=ending.producer_id,
                producer_epoch=ending.producer_epoch,
                committed=ending.is_commit,
                coordinator_epoch=ending.coordinator_epoch,
            ),
            transaction_version=ending.transaction_version,
            partitions=partitions,
        )
        for ending, partitions in lot
    ]
    failed = {
        (ending.producer_id, partition): ErrorCode.unknown_server_error
        for ending, partitions in lot
        for partition in partitions
    }
    node.slices.run(write_markers(node, asked, done), partial(done, failed))


def handle(node: Node, request: Request) -> None:
    markers = request.body.markers
    asked = [_asked(marker) for marker in markers]

    def answer(results: Results) -> None:
        rows = [_row(marker, results) for marker in markers]
        request.answer(respond(request, {"markers": rows}))

    work_in_slices(node, request, write_markers(node, asked, answer))


def _asked(marker: Any) -> Asked:
    return Asked(
        end=EndTransaction(
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            committed=marker.transaction_result,
            coordinator_epoch=marker.coordinator_epoch,
        ),
        transaction_version=getattr(marker, "transaction_version", 0),
        partitions=[
            TopicPartition(topic.name, index)
            for topic in marker.topics
            for index in topic.partition_indexes
        ],
    )


def _row(marker: Any, results: Results) -> Values:
    return {
        "producer_id": marker.producer_id,
        "topics": [
            {
                "name": topic.name,
                "partitions": [
                    {
                        "partition_index": index,
                        "error_code": results[
                            marker.producer_id, TopicPartition(topic.name, index)
                        ],
                    }
                    for index in topic.partition_indexes
                ],
            }
            for topic in marker.topics
        ],
    }


API: Final = Api(key=27, first=1, last=2, handle=handle)
