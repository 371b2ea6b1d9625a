"""DeleteRecords, API 21: moves where partitions begin, and answers where they begin now (S5).

It answers when the new starts are durable here, and the replicas elsewhere have them too.
Offset -1 asks for everything that is committed. Records of internal topics, and of topics that
are only compacted, are not deleted on request.
"""

from functools import partial
from typing import Any, Final

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.handlers.api import Api, Node, Request
from tidelog.handlers.building import Values, respond
from tidelog.handlers.describing import is_internal
from tidelog.handlers.local_partitions import find_local
from tidelog.handlers.waiting import Patience
from tidelog.partition import Partition

NO_LOW_WATERMARK: Final = -1


def handle(node: Node, request: Request) -> Any:
    """What was deleted must not come back, whoever leads next."""
    moved: list[tuple[Partition, dict[str, Any]]] = []
    topics = [
        {
            "name": topic.name,
            "partitions": [_delete(node, topic.name, asked, moved) for asked in topic.partitions],
        }
        for topic in request.body.topics
    ]
    if not moved:
        return respond(request, {"topics": topics})
    Deleting(node, request, topics).wait(moved)
    return None


class Deleting:
    def __init__(self, node: Node, request: Request, topics: list[dict[str, Any]]) -> None:
        self._node = node
        self._request = request
        self._topics = topics
        self._undone: list[dict[str, Any]] = []
        self._patience = Patience(node, request, request.body.timeout, self._too_late)

    def wait(self, moved: list[tuple[Partition, dict[str, Any]]]) -> None:
        self._undone = [row for _, row in moved]
        for partition, row in moved:
            self._node.housekeeping.persist_log_starts(
                partition.log, partial(self._durable, partition, row)
            )

    def _durable(self, partition: Partition, row: dict[str, Any], error: KafkaError | None) -> None:
        if error is None:
            partition.when_low(row["low_watermark"], partial(self._done, row))
        else:
            _refuse(row, error.code)
            self._done(row)

    def _done(self, row: dict[str, Any]) -> None:
        self._undone = [other for other in self._undone if other is not row]
        if not self._undone:
            self._patience.answer(respond(self._request, {"topics": self._topics}))

    def _too_late(self) -> Any:
        for row in self._undone:
            _refuse(row, ErrorCode.request_timed_out)
        return respond(self._request, {"topics": self._topics})


def _refuse(row: dict[str, Any], code: ErrorCode) -> None:
    row.update(low_watermark=NO_LOW_WATERMARK, error_code=code)


def _delete(
    node: Node, topic: str, asked: Any, moved: list[tuple[Partition, dict[str, Any]]]
) -> Values:
    row = {"partition_index": asked.partition_index, "error_code": ErrorCode.none}
    try:
        partition = find_local(node, topic, asked.partition_index)
        if is_internal(topic):
            raise KafkaError(
                ErrorCode.invalid_topic_exception, f"records of {topic} cannot be deleted"
            )
        if not partition.log.settings.cleanup_delete:
            raise KafkaError(
                ErrorCode.policy_violation, f"{topic} does not have cleanup.policy=delete"
            )
        row["low_watermark"] = partition.delete_records(asked.offset)
        moved.append((partition, row))
    except KafkaError as error:
        _refuse(row, error.code)
    return row


API = Api(key=21, first=0, last=2, handle=handle)
