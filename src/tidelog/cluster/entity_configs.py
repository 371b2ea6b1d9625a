"""Settings of topics and brokers as they are read, with the topic they belong to.

A node of settings is known by the topic's name, and so is that of the next topic of that name. So
the topic's own node is read before it: settings that were read late are then known to be those
of a topic that is gone.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from tidelog.base.coordination import Coordination, CoordinationError, Node
from tidelog.base.errors import BadValue
from tidelog.cluster import paths
from tidelog.cluster.image import NO_TOPIC_ID, Image
from tidelog.cluster.writing import Ask, gather, insist
from tidelog.cluster.znodes import decode_topic

GotNode = Node | CoordinationError


class EntityConfig(NamedTuple):
    """Settings of `topics/<name>`, `brokers/<id>` or `brokers/<default>`."""

    entity: str
    config: dict[str, str]
    topic_id: bytes | None = None
    """Whose they are, if they are a topic's."""


class EntityNode(NamedTuple):
    """What stands in the tree for an entity."""

    entity: str
    node: GotNode
    topic_id: bytes | None = None
    """None for a broker, or if there is no topic of that name."""


def read_entities(
    coordination: Coordination,
    entities: Sequence[str],
    done: Callable[[list[EntityNode]], None],
) -> None:
    asks: list[Ask[EntityNode]] = [partial(_read, coordination, entity) for entity in entities]
    gather(asks, done)


def is_of(image: Image, entity: str, topic_id: bytes | None) -> bool:
    """Whether settings are those of a broker, or of the topic that is known by that name."""
    kind, _, name = entity.partition("/")
    topic = image.topics.get(name)
    return kind != "topics" or (topic is not None and topic.topic_id == topic_id)


def _read(coordination: Coordination, entity: str, done: Callable[[EntityNode], None]) -> None:
    kind, _, name = entity.partition("/")
    of_topic = [paths.topic(name)] if kind == "topics" else []
    asks: list[Ask[GotNode]] = [
        partial(insist, partial(coordination.get, path))
        for path in [*of_topic, f"/config/{entity}"]
    ]

    def got(nodes: list[GotNode]) -> None:
        topic_id = _topic_id(nodes[0]) if of_topic else None
        done(EntityNode(entity, nodes[-1], topic_id))

    gather(asks, got)


def _topic_id(node: GotNode) -> bytes | None:
    try:
        return (decode_topic(node.data)[0] or NO_TOPIC_ID) if isinstance(node, Node) else None
    except BadValue:
        # Who reads topics reports it.
        return None
