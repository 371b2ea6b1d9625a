"""DeleteRecords, API 21: moves where partitions begin, and answers where they begin now (S5).

Offset -1 asks for everything that is committed. Records of internal topics, and of topics that
are only compacted, are not deleted on request.
"""

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
    moved: list[Partition] = []
    topics = [
        {
            "name": topic.name,
            "partitions": [_delete(node, topic.name, asked, moved) for asked in topic.partitions],
        }
        for topic in request.body.topics
    ]
    response = respond(request, {"topics": topics})
    if not moved:
        return response
    left = len(moved)

    def durable() -> None:
        nonlocal left
        left -= 1
        if not left:
            request.answer(response)

    for partition in moved:
        node.housekeeping.persist_log_starts(partition.log, durable)
    return None


def _delete(node: Node, topic: str, asked: Any, moved: list[Partition]) -> Values:
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
        low_watermark, code = partition.delete_records(asked.offset), ErrorCode.none
        moved.append(partition)
    except KafkaError as error:
        low_watermark, code = NO_LOW_WATERMARK, error.code
    return {
        "partition_index": asked.partition_index,
        "low_watermark": low_watermark,
        "error_code": code,
    }


API = Api(key=21, first=0, last=2, handle=handle)
