"""Finding a partition that this broker leads, or saying why it is not found here."""

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.handlers.api import Node
from tidelog.partition import Partition


def find_local(node: Node, topic: str, index: int) -> Partition:
    """The partition; one that exists elsewhere and one that does not exist are told apart."""
    info = node.metadata.image.topics.get(topic)
    if info is None or not 0 <= index < len(info.partitions):
        raise KafkaError(
            ErrorCode.unknown_topic_or_partition, f"there is no partition {topic}-{index}"
        )
    if node.partitions.is_here(topic, index):
        return node.partitions.find(topic, index)
    raise KafkaError(
        ErrorCode.not_leader_or_follower,
        f"{topic}-{index} is led by broker {info.partitions[index].leader}",
    )
