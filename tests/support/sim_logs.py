"""Topics in memory, as the driver of a Spark query sees them: they grow, age, are cut, deleted and
made again. What records are there is known, so that a plan can be compared with it.
"""

from collections.abc import Iterable, Mapping
from itertools import count

from tidelog.base.ids import TopicPartition
from tidelog.client.cluster import text_of_id
from tidelog.spark.logs import NO_RECORD, Found
from tidelog.spark.offsets import Positions, TopicOffsets


class SimLog:
    def __init__(self) -> None:
        self.begin = 0
        self.times: list[int] = []
        """Of every record that was ever appended, by offset."""

    @property
    def end(self) -> int:
        return len(self.times)


class SimLogs:
    """Implements `tidelog.spark.logs.Logs`."""

    def __init__(self) -> None:
        self.topics: dict[str, list[SimLog]] = {}
        self.ids: dict[str, str | None] = {}
        self.record_bytes: dict[TopicPartition, int] = {}
        self.groups: dict[str, Found] = {}
        self.asked = 0
        """How often the ends were asked for."""
        self.not_heard_of: set[str] = set()
        """Topics that a broker tells of only when it is asked again, as one that has just started:
        by whoever knows that there are such topics."""
        self._numbers = count(1)

    def create(self, topic: str, partitions: int = 1) -> None:
        self.topics[topic] = [SimLog() for _ in range(partitions)]
        self.ids[topic] = text_of_id(next(self._numbers).to_bytes(16))

    def delete(self, topic: str) -> None:
        del self.topics[topic], self.ids[topic]

    def grow(self, topic: str, more: int) -> None:
        self.topics[topic] += [SimLog() for _ in range(more)]

    def append(self, topic: str, partition: int, records: int, time_ms: int = 0) -> None:
        self.topics[topic][partition].times += [time_ms] * records

    def latest(self, known: Positions | None = None) -> Positions:
        self.asked += 1
        told = self.topics.keys() - (self.not_heard_of - set(known or ()))
        return {
            topic: TopicOffsets(
                topic_id=self.ids[topic],
                offsets={index: log.end for index, log in enumerate(logs)},
            )
            for topic, logs in sorted(self.topics.items())
            if topic in told
        }

    def earliest(self, partitions: Iterable[TopicPartition]) -> Found:
        return {one: self._log(one).begin for one in partitions}

    def since(self, times: Mapping[TopicPartition, int]) -> Found:
        return {one: self._since(self._log(one), when) for one, when in times.items()}

    def log_bytes(self, partitions: Iterable[TopicPartition]) -> Found:
        return {
            one: (self._log(one).end - self._log(one).begin) * self.record_bytes[one]
            for one in partitions
            if one in self.record_bytes
        }

    def committed(self, group_id: str) -> Found:
        return self.groups.get(group_id, {})

    def _log(self, one: TopicPartition) -> SimLog:
        return self.topics[one.topic][one.partition]

    def _since(self, log: SimLog, when: int) -> int:
        return next((at for at in range(log.begin, log.end) if log.times[at] >= when), NO_RECORD)
