"""Finding the offset of a time without holding the loop.

Which batches may hold it is looked up in steps (`log.time_search`). A batch of a few records is
searched in the loop, once it is in the page cache; any other in a worker, one at a time.
"""

from collections.abc import Callable, Generator
from typing import Any, Final, TypeVar

from tidelog.base.errors import ErrorCode, KafkaError, TaskError
from tidelog.handlers.api import Node
from tidelog.log.files import Cold
from tidelog.log.partition_log import PartitionLog
from tidelog.log.time_search import Batch, learning_times, limit_of, searching, unreadable
from tidelog.partition import Partition
from tidelog.records.time_lookup import (
    FEW_BYTES_MAX,
    FEW_RECORDS_MAX,
    TASK,
    Place,
    argument_for,
    first_not_before,
    found_by,
)
from tidelog.slices import Ask

_WARMING: Final = "warm times"

Result = TypeVar("Result")

Waiting = Generator[Ask | None, None, Result]


def find_in_steps(node: Node, partition: Partition, timestamp: int) -> Waiting[Place | None]:
    """Offset and timestamp of the first record that is at least that young, or None. Raises if the
    partition is led elsewhere before that is known."""
    epoch = partition.leader_epoch
    search, found = searching(partition.log, timestamp), None
    while True:
        try:
            step = search.send(found)
        except StopIteration as end:
            place: Place | None = end.value
            return place
        found = None
        if isinstance(step, Batch):
            found = yield from _search_in(node, partition, step, timestamp)
        else:
            yield from _pause(node, partition, step)
        _check_still_led(partition, epoch)


def largest_in_steps(node: Node, partition: Partition) -> Waiting[int]:
    """The largest timestamp of any record; -1 if none has one."""
    epoch = partition.leader_epoch
    for step in learning_times(partition.log):
        yield from _pause(node, partition, step)
        _check_still_led(partition, epoch)
    return partition.log.largest_timestamp()


def _pause(node: Node, partition: Partition, step: Cold | None) -> Waiting[None]:
    """Lets others come in between, at least until what is cold has been read."""
    if step is None:
        yield None
        return
    file, position, size = step.file, step.position, step.size
    try:
        yield from _beside(node, _WARMING, lambda: file.pread(size, position))
    except OSError as error:
        raise partition.log.failed(error) from error


def _check_still_led(partition: Partition, epoch: int) -> None:
    """Of a partition that is led elsewhere, or deleted, the files may be gone."""
    if not partition.is_led or partition.leader_epoch != epoch:
        raise partition.not_led()
    partition.log.check_online()


def _search_in(
    node: Node, partition: Partition, batch: Batch, timestamp: int
) -> Waiting[Place | None]:
    log = partition.log
    try:
        if batch.size <= FEW_BYTES_MAX and batch.header.record_count <= FEW_RECORDS_MAX:
            data = yield from _read(node, batch)
            found, is_certain = _search_here(log, data, timestamp)
            if is_certain:
                return found
        return (yield from _search_in_worker(node, log, batch, timestamp))
    except OSError as error:
        raise log.failed(error) from error
    except TaskError as error:
        message = f"{partition.name}: not searched: {error}"
        raise KafkaError(ErrorCode.unknown_server_error, message) from error


def _read(node: Node, batch: Batch) -> Waiting[bytes]:
    file, position, size, _ = batch
    if not file.resident(position, size):
        return (yield from _beside(node, _WARMING, lambda: file.pread(size, position)))
    return file.pread(size, position)


def _search_here(log: PartitionLog, data: bytes, timestamp: int) -> tuple[Place | None, bool]:
    """What is found, and whether that is certain: what is not sound, or much larger than it seemed,
    is left to a worker."""
    limit = min(limit_of(log), FEW_BYTES_MAX)
    try:
        return first_not_before(data, timestamp, log.log_start_offset, limit), True
    except KafkaError:
        return None, False


def _search_in_worker(
    node: Node, log: PartitionLog, batch: Batch, timestamp: int
) -> Waiting[Place | None]:
    start, limit = log.log_start_offset, limit_of(log)

    def work() -> dict[str, Any]:
        data = batch.file.pread(batch.size, batch.position)
        try:
            argument = argument_for(data, timestamp, start, limit)
            return node.inspecting.start(TASK, argument).result()
        except OSError as error:
            # Not the disk's: no process could be started, say.
            raise TaskError(str(error)) from error

    result = yield from _beside(node, TASK, work)
    try:
        return found_by(result)
    except KafkaError:
        return unreadable(log, batch)


def _beside(node: Node, lane: str, work: Callable[[], Result]) -> Waiting[Result]:
    """Waits for work beside the loop; raises what it raised."""
    ends: list[Result | Exception] = []

    def ask(go_on: Callable[[], None]) -> None:
        def done(end: Result | Exception) -> None:
            ends.append(end)
            go_on()

        node.loop.offload(lane, work, done)

    yield ask
    (end,) = ends
    if isinstance(end, Exception):
        raise end
    return end
