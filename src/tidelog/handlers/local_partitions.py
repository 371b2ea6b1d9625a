"""Finding a partition that this broker leads, or saying why it is not found here."""

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.cluster.znodes import id_text
from tidelog.handlers.api import Node
from tidelog.partition import Partition


def find_local(node: Node, topic: str | bytes, index: int) -> Partition:
    """The partition, by its topic's name or id; one that exists elsewhere and one that does not
    exist are told apart, so that a client looks for its leader."""
    image, partitions = node.metadata.image, node.partitions
    name = topic if isinstance(topic, str) else image.topic_names.get(topic)
    info = None if name is None else image.topics.get(name)
    if info is None or not 0 <= index < len(info.partitions):
        if isinstance(topic, bytes) and info is None:
            raise KafkaError(ErrorCode.unknown_topic_id, f"no topic has the id {id_text(topic)}")
        raise KafkaError(
            ErrorCode.unknown_topic_or_partition, f"there is no partition {name}-{index}"
        )
    if partitions.is_here(topic, index):
        return partitions.find(topic, index)
    raise KafkaError(
        ErrorCode.not_leader_or_follower,
        f"{name}-{index} is led by broker {info.partitions[index].leader}",
    )
