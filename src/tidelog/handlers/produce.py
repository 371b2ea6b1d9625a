"""Produce: batches of a client, appended as they are to the partitions this broker leads.

The broker looks at a batch's header and checksum, not at its records. A small batch is
appended at once; one that is large, or has to be looked into, or comes behind such a one, is
appended beside the loop, and the request is answered when its last batch is. acks=0 gets no
answer at all, so an error closes the connection: that is the only way to tell (A1).
"""

from typing import Final

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.handlers.api import Api, Node, Part, Request
from tidelog.partition import Partition
from tidelog.records.batch import HEADER_SIZE, MAGIC, MAGIC_POSITION, TRANSACTIONAL
from tidelog.slow_appends import Appended
from tidelog.wire.produce import ProduceRequest, read_produce_request, write_produce_response

Result = tuple[int, int, int, int, str | None]
"""Error code, first offset, time of the append if that is the records' time, log start offset,
and a sentence where there is an error."""

_ACKS: Final = (-1, 0, 1)
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
    results: list[Result] = []
    slow: list[tuple[int, Partition, memoryview]] = []
    for topic, index, batch in produce.partitions:
        partition = find((topic, index))
        try:
            if partition is None:
                partition = node.partitions.find(topic, index)
            if batch is None or len(batch) < HEADER_SIZE:
                raise KafkaError(ErrorCode.corrupt_message, f"{partition.name}: no batch was sent")
            if batch[_ATTRIBUTES] & TRANSACTIONAL and batch[MAGIC_POSITION] == MAGIC:
                raise KafkaError(ErrorCode.invalid_txn_state, "there are no transactions here yet")
            if partition.is_slow(batch):
                slow.append((len(results), partition, batch))
                results.append(_NOT_YET)
                continue
            offset = partition.append(batch, now_ms)
            log = partition.log
            time_ms = now_ms if log.settings.timestamp_type_log_append else _NOTHING
            results.append((0, offset, time_ms, log.log_start_offset, None))
        except KafkaError as error:
            results.append(_refused(error))
    if slow:
        Producing(node, request, results).append(slow)
        return None
    return results


class Producing:
    """A request with batches that are appended beside the loop, until the last of them is."""

    __slots__ = ("_left", "_node", "_request", "_results")

    def __init__(self, node: Node, request: Request, results: list[Result]) -> None:
        self._node = node
        self._request = request
        self._results = results
        self._left = 0

    def append(self, slow: list[tuple[int, Partition, memoryview]]) -> None:
        self._left = len(slow)
        for at, partition, batch in slow:
            lasting = self._node.buffers.lasting(batch)
            partition.append_slowly(lasting, self._end_of(at, partition))

    def _end_of(self, at: int, partition: Partition) -> Appended:
        def end(offset: int | KafkaError) -> None:
            self._results[at] = self._result(partition, offset)
            self._left -= 1
            if not self._left:
                self._request.answer(self._results)

        return end

    def _result(self, partition: Partition, offset: int | KafkaError) -> Result:
        if isinstance(offset, KafkaError):
            return _refused(offset)
        log = partition.log
        is_broker_time = log.settings.timestamp_type_log_append
        time_ms = self._node.clock.now_ms() if is_broker_time else _NOTHING
        return 0, offset, time_ms, log.log_start_offset, None


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
