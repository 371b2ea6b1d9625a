"""The partitions this broker leads, found by topic name or by topic id.

A request names a topic by its name or, in newer versions, by its 16-byte id; either leads to
the same partition in one lookup.
"""

from collections.abc import Iterator

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.partition import Partition


class Partitions:
    def __init__(self) -> None:
        self.by_key: dict[tuple[str | bytes, int], Partition] = {}
        self._offline: set[tuple[str | bytes, int]] = set()

    def __iter__(self) -> Iterator[Partition]:
        return (partition for key, partition in self.by_key.items() if isinstance(key[0], str))

    def __len__(self) -> int:
        return len(self.by_key) // 2

    def add(self, partition: Partition) -> None:
        self.by_key[partition.topic, partition.index] = partition
        self.by_key[partition.topic_id, partition.index] = partition

    def remove(self, partition: Partition) -> None:
        del self.by_key[partition.topic, partition.index]
        del self.by_key[partition.topic_id, partition.index]
        partition.delete()

    def set_offline(self, topic: str, topic_id: bytes, index: int) -> None:
        """The partition is this broker's, but its log cannot be opened."""
        self._offline |= {(topic, index), (topic_id, index)}

    def forget_offline(self, topic: str, topic_id: bytes, index: int) -> None:
        self._offline -= {(topic, index), (topic_id, index)}

    def find(self, topic: str | bytes, index: int) -> Partition:
        """The partition by its topic's name or id."""
        partition = self.by_key.get((topic, index))
        if partition is not None:
            return partition
        if (topic, index) in self._offline:
            name = topic.hex() if isinstance(topic, bytes) else topic
            raise KafkaError(
                ErrorCode.kafka_storage_error, f"the log dir of {name}-{index} is offline"
            )
        if isinstance(topic, bytes):
            raise KafkaError(ErrorCode.unknown_topic_id, f"no topic has the id {topic.hex()}")
        raise KafkaError(
            ErrorCode.unknown_topic_or_partition, f"{topic}-{index} is not on this broker"
        )
