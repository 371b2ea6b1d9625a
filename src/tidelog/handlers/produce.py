"""Produce: batches of a client, appended as they are to the partitions this broker leads.

The broker looks at a batch's header and checksum, not at its records. A small batch is
appended at once; one that is large, or has to be looked into, or comes behind such a one, is
appended beside the loop. With acks=-1 a batch is done when it is committed (R5), otherwise when
it is appended, and a request is answered when its last batch is done. acks=0 gets no answer at
all, so an error closes the connection: that is the only way to tell (A1).
"""

from collections.abc import Sequence
from typing import Final

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.base.ids import is_internal
from tidelog.handlers.api import Api, Node, Part, Request
from tidelog.handlers.local_partitions import find_local
from tidelog.handlers.produce_together import Answer, handle_together
from tidelog.handlers.producing import (
    ACKS,
    ALL,
    ATTRIBUTES,
    NOTHING,
    Producing,
    Result,
    Undone,
    refusal,
)
from tidelog.handlers.rows import work_in_slices
from tidelog.handlers.verifying import must_be_verified
from tidelog.handlers.wide_produce import ROWS_MAX, producing_in_slices
from tidelog.partition import Partition
from tidelog.records.batch import HEADER_SIZE, TRANSACTIONAL
from tidelog.records.joiner import the_joiner
from tidelog.wire.produce import ProducePartition, ProduceRequest, read_produce_request
from tidelog.wire.produce_answer import RecordsRefused, write_produce_response

_NOT_YET: Final[Result] = (0, NOTHING, NOTHING, NOTHING, None)


def handle(node: Node, request: Request) -> Answer:
    produce: ProduceRequest = request.body
    if produce.acks not in ACKS:
        wrong = KafkaError(
            ErrorCode.invalid_required_acks, f"acks={produce.acks} is none of -1, 0, 1"
        )
        return [refusal(wrong)] * produce.partition_count
    if produce.partition_count > ROWS_MAX:
        work_in_slices(node, request, producing_in_slices(node, request, append_rows))
        return None
    joined = None if produce.rows is None else handle_together(node, (request,))
    if joined is not None:
        return joined[0]
    results: list[Result] = []
    undone = append_rows(node, request, produce.partitions, results)
    if undone is not None:
        Producing(node, request, results).wait(undone)
        return None
    return results


def append_rows(
    node: Node, request: Request, rows: Sequence[ProducePartition], results: list[Result]
) -> Undone | None:
    """Adds a result for each row; those that are not done yet are returned, if there are any."""
    now_ms = node.clock.now_ms()
    find = node.partitions.by_key.get
    wants_all = request.body.acks == ALL
    slow: list[tuple[int, Partition, memoryview]] = []
    uncommitted: list[tuple[int, Partition]] = []
    unverified: list[tuple[int, Partition, memoryview]] = []
    for topic, index, batch in rows:
        partition = find((topic, index))
        try:
            if partition is None:
                partition = find_local(node, topic, index)
            if batch is None or len(batch) < HEADER_SIZE:
                raise KafkaError(ErrorCode.corrupt_message, f"{partition.name}: no batch was sent")
            if partition.needs_care:
                _check_is_for_clients(partition)
            if wants_all:
                partition.check_enough_in_sync()
            if batch[ATTRIBUTES] & TRANSACTIONAL and must_be_verified(
                node, request, partition, batch
            ):
                unverified.append((len(results), partition, batch))
                results.append(_NOT_YET)
                continue
            # A partition that is named twice gets what it is sent in that order.
            if partition.is_slow(batch) or (slow and _is_among(partition, slow)):
                slow.append((len(results), partition, batch))
                results.append(_NOT_YET)
                continue
            offset = partition.append(batch, now_ms)
            log = partition.log
            if wants_all and partition.replica.high_watermark < log.log_end_offset:
                uncommitted.append((len(results), partition))
            time_ms = now_ms if log.settings.timestamp_type_log_append else NOTHING
            results.append((0, offset, time_ms, log.log_start_offset, None))
        except KafkaError as error:
            results.append(refusal(error))
    if slow or uncommitted or unverified:
        return slow, uncommitted, unverified
    return None


def _is_among(partition: Partition, slow: list[tuple[int, Partition, memoryview]]) -> bool:
    return any(other is partition for _, other, _ in slow)


def _check_is_for_clients(partition: Partition) -> None:
    """What coordinators keep is theirs to write."""
    if is_internal(partition.topic):
        what = f"{partition.name} is written by coordinators only"
        raise KafkaError(ErrorCode.invalid_topic_exception, what)


def write(request: Request, results: list[Result] | bytes) -> list[Part]:
    produce: ProduceRequest = request.body
    if isinstance(results, bytes):
        return [results] if produce.acks else []
    if produce.acks:
        return [write_produce_response(request.correlation_id, request.version, produce, results)]
    refused = next((result for result in results if result[0]), None)
    if refused is not None:
        why = refused[4].message if isinstance(refused[4], RecordsRefused) else refused[4]
        request.connection.close(f"a batch sent with acks=0 was refused: {why}")
    return []


def read(_key: int, version: int, frame: memoryview, at: int) -> ProduceRequest:
    return read_produce_request(frame, at, version, the_joiner())


API = Api(
    key=0,
    first=3,
    last=13,
    advertised_first=0,
    handle=handle,
    together=handle_together,
    read=read,
    write=write,
)
