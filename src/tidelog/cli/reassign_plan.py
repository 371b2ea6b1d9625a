"""Where replicas are to be: read from words or from Kafka's JSON, written as that, or proposed.

A plan is what `kafka-reassign-partitions.sh` calls a reassignment: for each partition the brokers
of its replicas, the preferred leader first. A proposal spreads replicas as new topics have them,
over racks too, and of all such layouts takes the one that moves the least.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tidelog.base.errors import BadValue, ErrorCode, KafkaError
from tidelog.base.ids import TopicPartition
from tidelog.cli.printing import json_text
from tidelog.client.cluster import Cluster, Partition, Topic
from tidelog.cluster.assignment import Replicas, Spread, assign
from tidelog.cluster.image import BrokerInfo

Plan = dict[TopicPartition, Replicas]

_SHIFTS_MAX: Final = 8
_ANY_FOLDER: Final = "any"


def read_plan(file: Path) -> Plan:
    """From what `--reassignment-json-file` names."""
    plan: Plan = {}
    for entry in _entries(file, "partitions"):
        match entry:
            case {"topic": str(topic), "partition": int(index), "replicas": [*replicas]} if all(
                type(broker) is int for broker in replicas
            ):
                one = TopicPartition(topic, index)
            case _:
                raise BadValue(
                    f"{file}: a partition must have topic, partition and replicas, "
                    f"not {json_text(entry)}"
                )
        if one in plan:
            raise BadValue(f"{file}: {one} stands there more than once")
        _check_folders(file, one, entry)
        plan[one] = tuple(replicas)
    if not plan:
        raise BadValue(f"{file}: has no partitions")
    return plan


def read_topics_to_move(file: Path) -> list[str]:
    """From what `--topics-to-move-json-file` names."""
    topics = []
    for entry in _entries(file, "topics"):
        if not isinstance(entry, dict) or not isinstance(entry.get("topic"), str):
            raise BadValue(f"{file}: a topic must be {{'topic': NAME}}, not {json_text(entry)}")
        topics.append(entry["topic"])
    if not topics:
        raise BadValue(f"{file}: has no topics")
    return topics


def _entries(file: Path, name: str) -> list[Any]:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise BadValue(f"{file}: is not JSON: {error}") from None
    found = content.get(name) if isinstance(content, dict) else None
    if not isinstance(found, list):
        raise BadValue(f'{file}: must be {{"version": 1, "{name}": [...]}}')
    if content.get("version", 1) != 1:
        raise BadValue(f"{file}: version {content['version']} is not known, only 1")
    return found


def _check_folders(file: Path, one: TopicPartition, entry: Mapping[str, Any]) -> None:
    folders = entry.get("log_dirs", [])
    if any(folder != _ANY_FOLDER for folder in folders):
        raise BadValue(f"{file}: {one}: replicas cannot be moved to a log dir of choice")


def plan_text(plan: Plan) -> str:
    """One line of Kafka's JSON."""
    partitions = [
        {
            "topic": one.topic,
            "partition": one.partition,
            "replicas": list(replicas),
            "log_dirs": [_ANY_FOLDER] * len(replicas),
        }
        for one, replicas in sorted(plan.items())
    ]
    return json.dumps({"version": 1, "partitions": partitions}, separators=(",", ":"))


def parse_brokers(text: str, option: str) -> Replicas:
    try:
        brokers = tuple(int(part) for part in text.split(","))
    except ValueError:
        raise BadValue(f"{option} {text}: must be brokers' numbers, such as 1,2,3") from None
    if len(set(brokers)) < len(brokers):
        raise BadValue(f"{option} {text}: a broker stands there more than once")
    return brokers


def find_partitions(cluster: Cluster, words: Iterable[str]) -> list[TopicPartition]:
    """Of `TOPIC` all its partitions, of `TOPIC:0,2` those."""
    found: dict[TopicPartition, None] = {}
    for word in words:
        name, colon, numbers = word.partition(":")
        topic = cluster.topic(name)
        indexes = (
            _numbers(word, numbers)
            if colon
            else [partition.index for partition in topic.partitions]
        )
        for index in indexes:
            one = TopicPartition(name, index)
            partition_of(cluster, one)
            found[one] = None
    return list(found)


def _numbers(word: str, text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise BadValue(f"{word}: must be TOPIC, TOPIC:PARTITION or TOPIC:0,1,2") from None


def partition_of(cluster: Cluster, one: TopicPartition) -> Partition:
    for partition in cluster.topic(one.topic).partitions:
        if partition.index == one.partition:
            return partition
    raise KafkaError(ErrorCode.unknown_topic_or_partition, f"there is no partition {one}")


def plan_of_words(cluster: Cluster, words: Sequence[str], replicas: Replicas) -> Plan:
    """The partitions that are named get these replicas. Those of a whole topic begin with one
    after the other, so that each broker leads its share."""
    plan: Plan = {}
    for word in words:
        for one in find_partitions(cluster, [word]):
            first = 0 if ":" in word else one.partition % len(replicas)
            plan[one] = (*replicas[first:], *replicas[:first])
    return plan


def current_plan(cluster: Cluster, partitions: Iterable[TopicPartition]) -> Plan:
    return {one: partition_of(cluster, one).replicas for one in partitions}


def propose(
    topics: Iterable[Topic], brokers: Sequence[BrokerInfo], replication_factor: int | None
) -> Plan:
    """Without a replication factor each topic keeps its own."""
    plan: Plan = {}
    for topic in topics:
        factor = replication_factor or topic.replication_factor
        if factor > len(brokers):
            raise BadValue(
                f"{topic.name}: {factor} replicas need as many brokers, and there are "
                f"{len(brokers)} to choose from"
            )
        layout = _closest_layout(topic, brokers, factor)
        for partition, replicas in zip(topic.partitions, layout, strict=True):
            plan[TopicPartition(topic.name, partition.index)] = replicas
    return plan


def _closest_layout(topic: Topic, brokers: Sequence[BrokerInfo], factor: int) -> list[Replicas]:
    count = len(brokers)
    layouts = [
        assign(brokers, len(topic.partitions), factor, Spread(start_index=start, shift=shift))
        for start in range(count)
        for shift in range(min(count, _SHIFTS_MAX))
    ]
    return max(layouts, key=lambda layout: _likeness(topic.partitions, layout))


def _likeness(now: Sequence[Partition], then: Sequence[Replicas]) -> tuple[int, int]:
    """How many replicas stay where they are, and how many leaders."""
    pairs = list(zip(now, then, strict=True))
    stay = sum(len({*partition.replicas} & {*replicas}) for partition, replicas in pairs)
    leaders = sum(partition.replicas[:1] == replicas[:1] for partition, replicas in pairs)
    return stay, leaders
