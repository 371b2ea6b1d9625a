"""What the driver asks brokers: which partitions there are, where they begin and end, their sizes.

Only topics that are subscribed to are told of, and internal ones only if they are named. What
cannot be answered for the moment is asked again, as often as the options say.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol, TypeVar

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.base.ids import TopicPartition
from tidelog.client.client import Client
from tidelog.client.cluster import NO_LEADER, Topic
from tidelog.client.errors import Unreachable
from tidelog.client.leaders import MOVED, PAUSE_MS
from tidelog.client.offsets import (
    EARLIEST,
    LATEST,
    commit_offsets,
    committed_offsets,
    list_many_offsets,
)
from tidelog.client.reassignments import replica_sizes
from tidelog.client.sockets import now_ms, pause_ms
from tidelog.spark.offsets import (
    Positions,
    TopicOffsets,
    each_partition,
    topics_behind,
    topics_replaced,
    with_offsets,
)
from tidelog.spark.options import Connecting, Subscription

Answer = TypeVar("Answer")
Found = dict[TopicPartition, int]
NO_RECORD: Final = -1


class Logs(Protocol):
    """The logs of the topics that are subscribed to."""

    def latest(self, known: Positions | None = None) -> Positions:
        """Every partition there is now, at its end. What was read before is known."""

    def earliest(self, partitions: Iterable[TopicPartition]) -> Found: ...

    def since(self, times: Mapping[TopicPartition, int]) -> Found:
        """The offset of the first record since a time in ms; NO_RECORD if there is none."""

    def log_bytes(self, partitions: Iterable[TopicPartition]) -> Found:
        """How large logs are; those left out of which brokers do not tell."""

    def committed(self, group_id: str) -> Found:
        """How far a group is; partitions of which it has said nothing are left out."""


class BrokerLogs:
    def __init__(self, connecting: Connecting, subscription: Subscription) -> None:
        self._connecting = connecting
        self._subscription = subscription
        self._expected = subscription.topics or tuple(subscription.assigned or ())
        self._client: Client | None = None

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def latest(self, known: Positions | None = None) -> Positions:
        """A broker that has just started knows of no topics yet, so that one which seems to be
        gone is looked for again; and one that is cut off from the others may take itself for the
        leader still, so that where an end has gone back all are asked who leads, and where a topic
        is another one, or none, whether most know it as it was."""
        known = known or {}
        expected = {*self._expected, *known}
        found = self._held(self._retried(self._latest), known)
        for _ in range(self._connecting.retries):
            behind = topics_behind(found, known)
            missing = sorted(topic for topic in expected if topic not in found)
            is_told_wrong = self._is_told_of_former(found, known) or self._is_told_of_none(
                missing, known
            )
            if not behind and not is_told_wrong and not missing:
                break
            pause_ms(self._connecting.retry_delay_ms)
            if behind:
                self._connected().hear_all(behind)
            if is_told_wrong:
                self._connected().turn_away()
            found = self._held(self._retried(self._latest), known)
        self._expected = tuple(found)
        return found

    def _is_told_of_former(self, found: Positions, known: Positions) -> bool:
        """Whether a topic was found that is another one than the known, which most brokers know:
        whoever told of it has not heard that it was deleted."""
        replaced = topics_replaced(found, known)
        heard = self._connected().hear_all(replaced) if replaced else []
        for name, known_id in replaced.items():
            ids = [cluster.topics[name].topic_id for cluster in heard if name in cluster.topics]
            if ids.count(known_id) > ids.count(found[name].topic_id):
                return True
        return False

    def _is_told_of_none(self, missing: list[str], known: Positions) -> bool:
        """Whether one of these topics is there by what no fewer brokers say than say otherwise:
        whoever does not tell of it has not heard that it was made."""
        heard = self._connected().hear_all(missing) if missing else []
        for name in missing:
            there = [cluster.topics[name] for cluster in heard if name in cluster.topics]
            if name in known and known[name].topic_id is not None:
                there = [topic for topic in there if topic.topic_id == known[name].topic_id]
            if there and 2 * len(there) >= len(heard):
                return True
        return False

    def _held(self, found: Positions, known: Positions) -> Positions:
        """A query that counted what is not committed, and no longer does, may have read into a
        transaction that is open still: that is there, and the query goes on behind it."""
        behind = topics_behind(found, known)
        if not behind or not self._connecting.committed_only:
            return found
        ends = dict(each_partition(found))
        read = dict(each_partition({topic: known[topic] for topic in behind}))
        asked = {one: LATEST for one, at in read.items() if ends.get(one, at) < at}
        marks = self._retried(lambda client: list_many_offsets(client, asked))
        return with_offsets(found, {one: read[one] for one in marks if marks[one] >= read[one]})

    def earliest(self, partitions: Iterable[TopicPartition]) -> Found:
        return self.since(dict.fromkeys(partitions, EARLIEST))

    def since(self, times: Mapping[TopicPartition, int]) -> Found:
        return self._retried(lambda client: self._list(client, times))

    def log_bytes(self, partitions: Iterable[TopicPartition]) -> Found:
        wanted = sorted(set(partitions))
        return self._retried(lambda client: _log_bytes(client, wanted)) if wanted else {}

    def committed(self, group_id: str) -> Found:
        return self._retried(lambda client: committed_offsets(client, group_id, stable_only=True))

    def commit(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
        commit_offsets(self._connected(), group_id, offsets)

    def _latest(self, client: Client) -> Positions:
        ids: dict[str, str | None] = {}
        asked: dict[TopicPartition, int] = {}
        for topic, partitions in self._subscribed(client):
            ids[topic.name] = topic.topic_id
            asked |= {TopicPartition(topic.name, one): LATEST for one in partitions}
        ends: dict[str, dict[int, int]] = {name: {} for name in ids}
        for one, offset in self._list(client, asked).items():
            ends[one.topic][one.partition] = offset
        return {
            name: TopicOffsets(topic_id=topic_id, offsets=ends[name])
            for name, topic_id in ids.items()
        }

    def _subscribed(self, client: Client) -> Iterable[tuple[Topic, Iterable[int]]]:
        chosen = self._subscription
        names = chosen.topics if chosen.assigned is None else tuple(chosen.assigned)
        cluster = client.cluster(names)
        for refusal in cluster.refused.values():
            if refusal.code is not ErrorCode.unknown_topic_or_partition:
                raise refusal
        for topic in cluster.topics.values():
            there = [partition.index for partition in topic.partitions]
            if chosen.assigned is not None:
                there = [one for one in there if one in chosen.assigned[topic.name]]
            if chosen.pattern is None or _matches(chosen.pattern, topic):
                yield topic, there

    def _list(self, client: Client, times: Mapping[TopicPartition, int]) -> Found:
        committed_only = self._connecting.committed_only
        return list_many_offsets(client, times, committed_only=committed_only)

    def _retried(self, ask: Callable[[Client], Answer]) -> Answer:
        for _ in range(self._connecting.retries):
            try:
                return ask(self._connected())
            except Unreachable:
                self.close()
            except KafkaError as error:
                if error.code not in MOVED:
                    raise
            pause_ms(self._connecting.retry_delay_ms)
        return ask(self._connected())

    def _connected(self) -> Client:
        if self._client is None:
            options = self._connecting
            self._client = Client(
                options.bootstrap_servers,
                client_id=options.client_id,
                timeout_ms=options.timeout_ms,
            )
        return self._client


def _matches(pattern: re.Pattern[str], topic: Topic) -> bool:
    return not topic.is_internal and pattern.search(topic.name) is not None


def _log_bytes(client: Client, partitions: list[TopicPartition]) -> Found:
    """As large as the leader's replica is."""
    leaders = _leaders(client, partitions)
    sizes = replica_sizes(client, set(leaders.values()), partitions)
    found = {one: sizes.get((leaders.get(one, NO_LEADER), one)) for one in partitions}
    return {one: size for one, size in found.items() if size is not None}


def _leaders(client: Client, partitions: list[TopicPartition]) -> Found:
    """Where there is none it is waited for as long as for an answer, as one is being elected."""
    deadline_ms = now_ms() + client.timeout_ms
    while True:
        topics = client.cluster(sorted({one.topic for one in partitions})).topics
        found = {
            TopicPartition(topic.name, partition.index): partition.leader
            for topic in topics.values()
            for partition in topic.partitions
        }
        led = {one: found[one] for one in partitions if found.get(one, NO_LEADER) != NO_LEADER}
        awaited = [one for one in partitions if one in found and one not in led]
        if not awaited or now_ms() + PAUSE_MS > deadline_ms:
            return led
        pause_ms(PAUSE_MS)


def average_sizes(
    logs: Logs, ends: Positions, begins: Mapping[TopicPartition, int]
) -> dict[TopicPartition, float]:
    """The bytes that one offset stands for, in partitions of which it is known."""
    ends_of = dict(each_partition(ends))
    filled = [one for one, begin in begins.items() if ends_of[one] > begin]
    return {
        one: size / (ends_of[one] - begins[one]) for one, size in logs.log_bytes(filled).items()
    }
