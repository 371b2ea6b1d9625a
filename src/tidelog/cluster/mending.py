"""What a controller puts right when it takes office, beside leaders: ids that topics lack.

Topics made by an older Kafka have none, and no Kafka makes the node that an id stands for. States
that are missing, because a maker died half-way, are made like all others; their parents may or may
not be there, so that is looked up.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial

from tidelog.base.coordination import Coordination, CoordinationError, SetData, Stat
from tidelog.base.ports import Entropy
from tidelog.cluster import paths
from tidelog.cluster.image import NO_TOPIC_ID, TopicInfo
from tidelog.cluster.topic_nodes import Group, new_incarnation, random_topic_id, topic_data
from tidelog.cluster.writing import Ask, gather

Mended = tuple[list[TopicInfo], list[Group]]


def with_ids(
    coordination: Coordination,
    topics: Iterable[TopicInfo],
    entropy: Entropy,
    done: Callable[[Mended | CoordinationError], None],
) -> None:
    """The topics as they will be, all with ids, and the writes that make them so."""
    found: list[TopicInfo] = []
    writes: list[Group] = []
    for topic in topics:
        if topic.topic_id == NO_TOPIC_ID:
            new_id = random_topic_id(entropy)
            named = replace(topic, topic_id=new_id, version=topic.version + 1)
            path, data = paths.topic(topic.name), topic_data(named)
            writes.append([SetData(path=path, data=data, version=topic.version)])
            topic = named
        found.append(topic)

    def looked(missing: list[Group] | CoordinationError) -> None:
        done(missing if isinstance(missing, CoordinationError) else (found, [*writes, *missing]))

    without_existing(coordination, [[new_incarnation(topic)] for topic in found], looked)


def without_existing(
    coordination: Coordination,
    groups: list[Group],
    done: Callable[[list[Group] | CoordinationError], None],
) -> None:
    """The same groups without the nodes that are there already."""
    wanted = list(dict.fromkeys(node.path for group in groups for node in group))
    asks: list[Ask[Stat | CoordinationError | None]] = [
        partial(coordination.exists, path) for path in wanted
    ]

    def looked(stats: list[Stat | CoordinationError | None]) -> None:
        missing: set[str] = set()
        for path, stat in zip(wanted, stats, strict=True):
            if isinstance(stat, CoordinationError):
                done(stat)
                return
            if stat is None:
                missing.add(path)
        left = [[node for node in group if node.path in missing] for group in groups]
        done([group for group in left if group])

    gather(asks, looked)
