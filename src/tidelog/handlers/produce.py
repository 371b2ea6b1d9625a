"""Produce: batches of a client, appended as they are to the partitions this broker leads.

The broker looks at a batch's header and checksum, not at its records. A small batch is
appended at once; one that is large, or has to be looked into, or comes behind such a one, is
appended beside the loop. With acks=-1 a batch is done when it is committed (R5), otherwise when
it is appended, and a request is answered when its last batch is done. acks=0 gets no answer at
all, so an error closes the connection: that is the only way to tell (A1).
"""

from functools import partial
from typing import Final

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.base.ids import is_internal
from tidelog.base.ports import Timer
from tidelog.handlers.api import Api, Node, Part, Request
from tidelog.handlers.local_partitions import find_local
from tidelog.handlers.verifying import must_be_verified, verify
from tidelog.partition import Partition
from tidelog.records.batch import HEADER_SIZE, TRANSACTIONAL
from tidelog.serving.acks import Committed
from tidelog.slow_appends import Appended
from tidelog.wire.produce import ProduceRequest, read_produce_request, write_produce_response

Result = tuple[int, int, int, int, str | None]
"""Error code, first offset, time of the append if that is the records' time, log start offset,
and a sentence where there is an error."""

ALL: Final = -1
_ACKS: Final = (ALL, 0, 1)
_ATTRIBUTES: Final = 22
"""Where in a batch the lower byte of its attributes is."""
_NOTHING: Final = -1
_NOT_YET: Final[Result] = (0, _NOTHING, _NOTHING, _NOTHING, None)


def handle(node: Node, request: Request) -> list[Result] | None:
    produce: ProduceRequest = request.body
    if produce.acks not in _ACKS:
        wrong = KafkaError(
            ErrorCode.invalid_required_acks, f"acks={produce.acks} is none of -1, 0, 1"
        )
        return [_refused(wrong)] * len(produce.partitions)
    now_ms = node.clock.now_ms()
    find = node.partitions.by_key.get
    wants_all = produce.acks == ALL
    results: list[Result] = []
    slow: list[tuple[int, Partition, memoryview]] = []
    uncommitted: list[tuple[int, Partition]] = []
    unverified: list[tuple[int, Partition, memoryview]] = []
    for topic, index, batch in produce.partitions:
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
            if batch[_ATTRIBUTES] & TRANSACTIONAL and must_be_verified(
                node, request, partition, batch
            ):
                unverified.append((len(results), partition, batch))
                results.append(_NOT_YET)
                continue
            if partition.is_slow(batch):
                slow.append((len(results), partition, batch))
                results.append(_NOT_YET)
                continue
            offset = partition.append(batch, now_ms)
            log = partition.log
            if wants_all and partition.replica.high_watermark < log.log_end_offset:
                uncommitted.append((len(results), partition))
            time_ms = now_ms if log.settings.timestamp_type_log_append else _NOTHING
            results.append((0, offset, time_ms, log.log_start_offset, None))
        except KafkaError as error:
            results.append(_refused(error))
    if slow or uncommitted or unverified:
        Producing(node, request, results).wait(slow, uncommitted, unverified)
        return None
    return results


class Producing:
    """A request with batches that are not done yet, until the last of them is. Who wants them
    committed waits no longer than he said; they may be committed all the same."""

    __slots__ = ("_node", "_request", "_results", "_timer", "_undone")

    def __init__(self, node: Node, request: Request, results: list[Result]) -> None:
        self._node = node
        self._request = request
        self._results = results
        self._undone: set[int] = set()
        self._timer: Timer | None = None

    def wait(
        self,
        slow: list[tuple[int, Partition, memoryview]],
        uncommitted: list[tuple[int, Partition]],
        unverified: list[tuple[int, Partition, memoryview]],
    ) -> None:
        node = self._node
        produce: ProduceRequest = self._request.body
        self._undone = {row[0] for row in uncommitted}
        self._undone |= {row[0] for row in (*slow, *unverified)}
        if produce.acks == ALL:
            ends_at = node.clock.monotonic_ms() + max(0, produce.timeout_ms)
            self._timer = node.loop.call_at(ends_at, self._give_up)
        for at, partition in uncommitted:
            partition.acks.wait(partition.log.log_end_offset, self._commit_of(at))
        for at, partition, batch in slow:
            partition.append_slowly(node.buffers.lasting(batch), self._append_of(at, partition))
        for at, partition, batch in unverified:
            append = partial(self._append_verified, at, partition, node.buffers.lasting(batch))
            verify(node, self._request, partition, batch, append)

    def _append_verified(
        self, at: int, partition: Partition, batch: memoryview, error: KafkaError | None
    ) -> None:
        end = self._append_of(at, partition)
        if error is not None:
            end(error)
        elif not partition.is_led:
            end(partition.not_led())
        else:
            try:
                self._append(partition, batch, end)
            except KafkaError as refused:
                end(refused)

    def _append(self, partition: Partition, batch: memoryview, end: Appended) -> None:
        if partition.is_slow(batch):
            partition.append_slowly(batch, end)
        else:
            end(partition.append(batch, self._node.clock.now_ms()))

    def _append_of(self, at: int, partition: Partition) -> Appended:
        def end(offset: int | KafkaError) -> None:
            self._results[at] = self._result(partition, offset)
            log = partition.log
            if (
                self._request.body.acks == ALL
                and not isinstance(offset, KafkaError)
                and partition.high_watermark < log.log_end_offset
            ):
                if partition.is_led:
                    partition.acks.wait(log.log_end_offset, self._commit_of(at))
                    return
                self._results[at] = _refused(partition.not_led())
            self._done(at)

        return end

    def _commit_of(self, at: int) -> Committed:
        def end(error: KafkaError | None) -> None:
            if error is not None and at in self._undone:
                self._results[at] = _refused(error)
            self._done(at)

        return end

    def _done(self, at: int) -> None:
        self._undone.discard(at)
        if not self._undone and self._request.parts is None:
            if self._timer is not None:
                self._timer.cancel()
            self._request.answer(self._results)

    def _give_up(self) -> None:
        late = KafkaError(
            ErrorCode.request_timed_out,
            f"not all replicas in sync had it after {self._request.body.timeout_ms} ms",
        )
        for at in self._undone:
            self._results[at] = _refused(late)
        self._undone.clear()
        self._request.answer(self._results)

    def _result(self, partition: Partition, offset: int | KafkaError) -> Result:
        if isinstance(offset, KafkaError):
            return _refused(offset)
        log = partition.log
        is_broker_time = log.settings.timestamp_type_log_append
        time_ms = self._node.clock.now_ms() if is_broker_time else _NOTHING
        return 0, offset, time_ms, log.log_start_offset, None


def _check_is_for_clients(partition: Partition) -> None:
    """What coordinators keep is theirs to write."""
    if is_internal(partition.topic):
        what = f"{partition.name} is written by coordinators only"
        raise KafkaError(ErrorCode.invalid_topic_exception, what)


def _refused(error: KafkaError) -> Result:
    return int(error.code), _NOTHING, _NOTHING, _NOTHING, error.message


def write(request: Request, results: list[Result]) -> list[Part]:
    produce: ProduceRequest = request.body
    if produce.acks:
        return [write_produce_response(request.correlation_id, request.version, produce, results)]
    refused = next((result for result in results if result[0]), None)
    if refused is not None:
        request.connection.close(f"a batch sent with acks=0 was refused: {refused[4]}")
    return []


def read(_key: int, version: int, frame: memoryview, at: int) -> ProduceRequest:
    return read_produce_request(frame, at, version)


API = Api(key=0, first=3, last=13, advertised_first=0, handle=handle, read=read, write=write)
