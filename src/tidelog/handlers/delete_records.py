"""DeleteRecords, API 21: moves where partitions begin, and answers where they begin now (S5).

It answers when the new starts are durable here, and the replicas elsewhere have them too; a
broker that leads no more by then cannot know that, and says so. The request's timeout is for those
other replicas, as in Kafka: without any, even a timeout of 0 is enough.
Offset -1 asks for everything that is committed. Records of internal topics, and of topics that
are only compacted, are not deleted on request.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.base.ids import is_internal
from tidelog.handlers.api import Api, Node, Request
from tidelog.handlers.local_partitions import find_local
from tidelog.handlers.rows import Answering, Rows, answer_in_slices, work_in_slices
from tidelog.handlers.waiting import Patience
from tidelog.partition import Partition
from tidelog.slices import Sliced

NO_LOW_WATERMARK: Final = -1

Row = dict[str, Any]
"""Of the answer: where a partition begins now."""


def handle(node: Node, request: Request) -> None:
    work_in_slices(node, request, Deleting(node, request).work())


class Deleting:
    """One request. What was deleted must not come back, whoever leads next."""

    def __init__(self, node: Node, request: Request) -> None:
        self._node = node
        self._request = request
        self._topics: dict[str, dict[int, Row]] = {}
        self._undone: dict[tuple[str, int], tuple[Partition, Row]] = {}
        self._not_durable = 0
        self._patience: Patience | None = None

    def work(self) -> Sliced:
        """A partition that is named twice counts once, as it was named last."""
        for topic in self._request.body.topics:
            rows = self._topics.setdefault(topic.name, {})
            asked = {partition.partition_index: partition.offset for partition in topic.partitions}
            for index, offset in asked.items():
                rows[index] = self._delete(topic.name, index, offset)
                yield None
        if not self._undone:
            self._answer()
        self._not_durable = len(self._undone)
        for name, (partition, row) in list(self._undone.items()):
            durable = partial(self._durable, partition, row, partial(self._done, name))
            self._node.housekeeping.persist_log_starts(partition.log, durable)
            yield None

    def _delete(self, topic: str, index: int, offset: int) -> Row:
        row: Row = {"partition_index": index, "error_code": ErrorCode.none}
        try:
            partition = find_local(self._node, topic, index)
            _check(topic, partition)
            row["low_watermark"] = partition.delete_records(offset)
            self._undone[topic, index] = partition, row
        except KafkaError as error:
            _refuse(row, error.code)
        return row

    def _durable(
        self, partition: Partition, row: Row, done: Callable[[], None], error: KafkaError | None
    ) -> None:
        if error is None:
            partition.when_low(row["low_watermark"], partial(self._low, row, done))
        else:
            _refuse(row, error.code)
            done()
        self._not_durable -= 1
        if not self._not_durable:
            self._await_others()

    def _await_others(self) -> None:
        if self._undone:
            self._patience = Patience(self._node, self._request.body.timeout, self._too_late)
        else:
            self._answer()

    def _low(self, row: Row, done: Callable[[], None], error: KafkaError | None) -> None:
        if error is not None:
            _refuse(row, error.code)
        done()

    def _done(self, name: tuple[str, int]) -> None:
        self._undone.pop(name, None)
        if not self._undone and self._patience is not None:
            self._patience.end(self._answer)

    def _too_late(self) -> None:
        for _, row in self._undone.values():
            _refuse(row, ErrorCode.request_timed_out)
        self._answer()

    def _answer(self) -> None:
        answer_in_slices(self._node, self._request, self._answering())

    def _answering(self) -> Answering:
        topics = Rows(self._request, "topics")
        for name, found in self._topics.items():
            partitions = Rows(self._request, "topics", "partitions")
            for row in found.values():
                partitions.put(row)
                yield None
            topics.put({"name": name, "partitions": partitions})
            yield None
        return {"topics": topics}


def _check(topic: str, partition: Partition) -> None:
    if is_internal(topic):
        raise KafkaError(ErrorCode.invalid_topic_exception, f"records of {topic} cannot be deleted")
    if not partition.log.settings.cleanup_delete:
        raise KafkaError(ErrorCode.policy_violation, f"{topic} does not have cleanup.policy=delete")


def _refuse(row: Row, code: ErrorCode) -> None:
    row.update(low_watermark=NO_LOW_WATERMARK, error_code=code)


API = Api(key=21, first=0, last=2, handle=handle)
