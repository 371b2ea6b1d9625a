"""Fetches that go straight through: of one partition, without a session, by a consumer who finds
enough there to be answered at once.

In bulk most records leave this way, and what a core does between two megabytes it does with
caches that hold something else by then: so nothing is made here that only waiting, sessions or
followers need. A fetch that is not as plain goes the long way (`fetching`) from the start.
"""

from typing import Final

from tidelog.base.errors import KafkaError
from tidelog.handlers.api import Node, Part, Request
from tidelog.handlers.fetching import READ_COMMITTED
from tidelog.handlers.found import COPIED_BYTES_MAX, UNKNOWN
from tidelog.handlers.ranges import must_be_read
from tidelog.log.aborted import aborted_in
from tidelog.log.files import Cold, Warmed
from tidelog.serving.fetch_sessions import FINAL_EPOCH, NO_FOLLOWER, NO_SESSION
from tidelog.wire.fetch import TOPIC_IDS, FetchRequest
from tidelog.wire.one_fetch import ANSWER_END, write_one_fetched

_NOTHING_WARMED: Final = Warmed()


def answer_straight(node: Node, request: Request) -> list[Part] | None:
    """The answer, as it is sent; None if the fetch has to go the long way. Then nothing has
    happened, and what was wrong is found again."""
    fetch: FetchRequest = request.body
    if (
        fetch.session_epoch != FINAL_EPOCH
        or fetch.session_id != NO_SESSION
        or fetch.replica_id != NO_FOLLOWER
        or len(fetch.partitions) != 1
        or request.version < TOPIC_IDS
    ):
        return None
    topic, index, leader_epoch, offset, _, _, max_bytes = fetch.partitions[0]
    assert isinstance(topic, bytes)
    partition = node.partitions.by_key.get((topic, index))
    if partition is None:
        return None
    log, committed_only = partition.log, fetch.isolation_level == READ_COMMITTED
    try:
        if leader_epoch != UNKNOWN:
            partition.check_epoch(leader_epoch)
        room = min(max_bytes, fetch.max_bytes, node.fetch_bytes_max)
        records = partition.read(offset, room, committed_only, _NOTHING_WARMED)
        if records is None or records.size + records.left_out < fetch.min_bytes:
            return None
        stable = partition.last_stable_offset
        if committed_only and aborted_in(log, records, offset, stable):
            return None
        if must_be_read(log, records):
            return None
        size = records.size
        copied = records.file.pread(size, records.position) if size <= COPIED_BYTES_MAX else None
    except (Cold, KafkaError, OSError):
        return None
    if copied is not None and len(copied) < size:
        return None
    partition.bytes_out += size
    marks = (partition.replica.high_watermark, stable, log.log_start_offset)
    head = write_one_fetched(request.correlation_id, topic, index, marks, committed_only, size)
    if copied is not None:
        return [head + copied + ANSWER_END]
    return [head, records, ANSWER_END]
