"""Which topics a command is about: names said outright, or an expression as Kafka's `--topic`.

An expression that is the name of a topic means that topic and no other, though its dots would
match more.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from tidelog.base.errors import BadValue, ErrorCode, KafkaError
from tidelog.client.cluster import Cluster, Topic


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    names: list[str]
    expression: str | None = None
    topic_id: str | None = None
    with_internal: bool = True

    @property
    def is_everything(self) -> bool:
        return not self.names and self.expression is None and self.topic_id is None


def choose(cluster: Cluster, choice: Choice, *, may_miss: bool = False) -> list[Topic]:
    """What was asked for, in the order of the names; something must be there for each name and
    expression unless it may miss."""
    found = {
        name: topic
        for name, topic in cluster.topics.items()
        if choice.with_internal or not topic.is_internal
    }
    chosen: set[str] = set(found) if choice.is_everything else set()
    for wanted, matching in _wanted(found.values(), choice):
        if not matching and not may_miss:
            raise KafkaError(ErrorCode.unknown_topic_or_partition, f"there is no topic {wanted}")
        chosen.update(matching)
    return [topic for name, topic in found.items() if name in chosen]


def _wanted(topics: Iterable[Topic], choice: Choice) -> Iterable[tuple[str, list[str]]]:
    names = [topic.name for topic in topics]
    for name in choice.names:
        yield name, [name] if name in names else []
    if choice.expression is not None:
        parts = [part.strip() for part in choice.expression.split(",")]
        for part in filter(None, parts):
            yield part, _matching(part, names)
        if not any(parts):
            yield f"'{choice.expression}'", []
    if choice.topic_id is not None:
        same = [topic.name for topic in topics if topic.topic_id == choice.topic_id]
        yield f"with the id {choice.topic_id}", same


def _matching(expression: str, names: list[str]) -> list[str]:
    if expression in names:
        return [expression]
    try:
        compiled = re.compile(expression)
    except re.error as error:
        raise BadValue(f"--topic {expression}: is no regular expression: {error}") from None
    return [name for name in names if compiled.fullmatch(name)]
