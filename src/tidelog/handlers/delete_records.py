"""DeleteRecords, API 21: moves where partitions begin, and answers where they begin now (S5).

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
from tidelog.partition import Partition

NO_LOW_WATERMARK: Final = -1


def handle(node: Node, request: Request) -> Any:
    """Answers when the new starts are durable: what was deleted must not come back."""
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
    left = len(moved)

    def durable(row: dict[str, Any], error: KafkaError | None) -> None:
        nonlocal left
        left -= 1
        if error is not None:
            row.update(low_watermark=NO_LOW_WATERMARK, error_code=error.code)
        if not left:
            request.answer(respond(request, {"topics": topics}))

    for partition, row in moved:
        node.housekeeping.persist_log_starts(partition.log, partial(durable, row))
    return None


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
        row.update(low_watermark=NO_LOW_WATERMARK, error_code=error.code)
    return row


API = Api(key=21, first=0, last=2, handle=handle)
