"""Whether what is wished for partitions of a topic fits into its node.

A partition that moves takes about four times as much room there as one that stays. ZooKeeper takes
nothing that is too large, so who wishes for too many at a time is told so before any is written.
"""

from collections.abc import Mapping

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.cluster.image import PartitionInfo, TopicInfo
from tidelog.cluster.realm import PartitionName
from tidelog.cluster.topic_nodes import topic_data
from tidelog.cluster.znodes import NODE_BYTES_MAX


class NodeRoom:
    """For what is planned at one time, all of which may be written."""

    def __init__(self, topics: Mapping[str, TopicInfo]) -> None:
        self._topics = topics
        self._left: dict[str, int] = {}

    def take(self, name: PartitionName, before: PartitionInfo, after: PartitionInfo) -> None:
        """Raises KafkaError if there is too little."""
        topic, index = name
        growth = _size(index, after) - _size(index, before)
        if growth <= 0:
            return
        if topic not in self._left:
            self._left[topic] = NODE_BYTES_MAX - len(topic_data(self._topics[topic]))
        if growth > self._left[topic]:
            raise KafkaError(
                ErrorCode.invalid_replica_assignment,
                f"the replicas of {topic} would take more than {NODE_BYTES_MAX} bytes while so "
                "many of its partitions move: wait for some of them, then ask again",
            )
        self._left[topic] -= growth


def _size(index: int, partition: PartitionInfo) -> int:
    """How many bytes it takes in its topic's node."""
    lists = (partition.replicas, partition.adding_replicas, partition.removing_replicas)
    return sum(
        len(f'"{index}":[],') + sum(len(f"{replica},") for replica in replicas)
        for replicas in lists
        if replicas
    )
