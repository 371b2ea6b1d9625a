"""Where batches go: who leads each partition, as far as it is known, and the links to brokers."""

from collections.abc import Mapping, Sequence
from typing import Final

from tidelog.base.errors import KafkaError
from tidelog.client.client import Client
from tidelog.client.cluster import NO_LEADER, Topic
from tidelog.client.errors import Unreachable
from tidelog.client.leaders import PAUSE_MS, Led, leader_of, partition_of
from tidelog.client.produce_link import Parcel, ProduceLink
from tidelog.client.sockets import now_ms
from tidelog.client.write_queue import WriteQueue

_NEW_TOPIC_MS: Final = 5_000
"""How long a topic that is being made is waited for."""


class WriteRoutes:
    def __init__(self, client: Client, acks: int, transactional_id: str | None = None) -> None:
        self._client = client
        self._acks = acks
        self._transactional_id = transactional_id
        self._topics: dict[str, Topic] = {}
        self._leaders: dict[WriteQueue, Led] = {}
        self._links: dict[int, ProduceLink] = {}
        self._doubtful: set[str] = set()
        """Topics whose leaders all brokers are asked for."""

    @property
    def links(self) -> Mapping[int, ProduceLink]:
        return self._links

    def check(self, topic: str, partition: int) -> None:
        """That there is such a partition; a topic may be made by that."""
        known = self._topics.get(topic)
        if known is None or partition not in range(len(known.partitions)):
            known = self._topics[topic] = self._client.topic_soon(topic, _NEW_TOPIC_MS)
            partition_of(known, partition)

    def admit(self, queue: WriteQueue) -> None:
        """A new one, which goes where its topic was led last."""
        found = partition_of(self._topics[queue.topic], queue.partition)
        if found.leader != NO_LEADER:
            self._leaders[queue] = leader_of(self._topics[queue.topic], queue.partition)

    def leader(self, queue: WriteQueue) -> Led | None:
        """None if it must be looked for."""
        return self._leaders.get(queue)

    def look_for(self, queues: Sequence[WriteQueue]) -> None:
        """Those whose leader is not found wait a while."""
        names = sorted({queue.topic for queue in queues})
        if self._doubtful:
            self._client.hear_all(sorted(self._doubtful))
            self._doubtful.clear()
        try:
            cluster = self._client.cluster(names)
        except Unreachable as error:
            for queue in queues:
                queue.wait(str(error), now_ms() + PAUSE_MS)
            return
        for queue in queues:
            try:
                topic = self._topics[queue.topic] = cluster.topic(queue.topic)
                self._leaders[queue] = leader_of(topic, queue.partition)
            except KafkaError as error:
                queue.wait(error.message, now_ms() + PAUSE_MS)

    def forget(self, queue: WriteQueue, *, is_doubtful: bool = False) -> None:
        """It is led by another one now. Whether whoever is asked has heard of that is doubtful
        where it named one that does not lead."""
        self._leaders.pop(queue, None)
        if is_doubtful:
            self._doubtful.add(queue.topic)

    def link(self, broker_id: int) -> ProduceLink:
        if broker_id not in self._links:
            self._links[broker_id] = ProduceLink(
                self._client, broker_id, self._acks, self._transactional_id
            )
        return self._links[broker_id]

    def drop(self, broker_id: int) -> list[Parcel]:
        """What was under way to it."""
        link = self._links.pop(broker_id, None)
        return [] if link is None else link.close()

    def close(self) -> None:
        for broker_id in list(self._links):
            self.drop(broker_id)
