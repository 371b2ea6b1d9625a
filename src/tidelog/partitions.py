"""The partitions this broker holds a replica of, and among them those it leads.

A request names a topic by its name or, in newer versions, by its 16-byte id; either leads to
the same partition in one lookup. Clients find what is led here; what is followed here is
found by those who look after replicas.
"""

from collections.abc import Callable, Iterator

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.partition import Partition

Key = tuple[str | bytes, int]


class Partitions:
    def __init__(self) -> None:
        self.by_key: dict[Key, Partition] = {}
        """Those that are led here."""
        self._held: dict[Key, Partition] = {}
        self._offline: set[Key] = set()
        self.on_led: Callable[[Partition], None] = lambda _partition: None
        """Told of one that begins to be led here, or no longer is."""

    def __iter__(self) -> Iterator[Partition]:
        return (partition for key, partition in self._held.items() if isinstance(key[0], str))

    def __len__(self) -> int:
        return len(self._held) // 2

    def add(self, partition: Partition) -> None:
        for topic in (partition.topic, partition.topic_id):
            self._held[topic, partition.index] = partition

    def set_led(self, partition: Partition) -> None:
        """Lets clients find it, or no more, as it is led here now."""
        was_led = (partition.topic_id, partition.index) in self.by_key
        for topic in (partition.topic, partition.topic_id):
            if partition.is_led:
                self.by_key[topic, partition.index] = partition
            else:
                self.by_key.pop((topic, partition.index), None)
        if partition.is_led != was_led:
            self.on_led(partition)

    def remove(self, partition: Partition) -> None:
        for topic in (partition.topic, partition.topic_id):
            del self._held[topic, partition.index]
        partition.delete()
        self.set_led(partition)

    def held(self, topic: str | bytes, index: int) -> Partition | None:
        """A replica that is here, led or followed."""
        return self._held.get((topic, index))

    def set_offline(self, topic: str, topic_id: bytes, index: int) -> None:
        """The partition is this broker's, but its log cannot be opened."""
        self._offline |= {(topic, index), (topic_id, index)}

    def forget_offline(self, topic: str, topic_id: bytes, index: int) -> None:
        self._offline -= {(topic, index), (topic_id, index)}

    def is_here(self, topic: str | bytes, index: int) -> bool:
        """Whether this broker has a replica, be its log dir online or not."""
        return (topic, index) in self._held or (topic, index) in self._offline

    def find(self, topic: str | bytes, index: int) -> Partition:
        """A partition that is led here, by its topic's name or id."""
        partition = self.by_key.get((topic, index))
        if partition is not None:
            return partition
        name = topic.hex() if isinstance(topic, bytes) else topic
        if (topic, index) in self._offline:
            raise KafkaError(
                ErrorCode.kafka_storage_error, f"the log dir of {name}-{index} is offline"
            )
        held = self._held.get((topic, index))
        if held is not None:
            raise KafkaError(
                ErrorCode.not_leader_or_follower,
                f"{held.name} is led by broker {held.replica.leader_id}",
            )
        if isinstance(topic, bytes):
            raise KafkaError(ErrorCode.unknown_topic_id, f"no topic has the id {name}")
        raise KafkaError(
            ErrorCode.unknown_topic_or_partition, f"{topic}-{index} is not on this broker"
        )
