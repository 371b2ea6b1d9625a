"""Reading the tree into an `Image`.

All reads are asked for at once and answered in order. A node that cannot be understood costs
only what it describes: a broker is left out, a topic goes to `unreadable` with the reason, and
a line in the log says so.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

from tidelog.base.coordination import Coordination, CoordinationError, Node, Trouble, Watch
from tidelog.base.errors import BadValue
from tidelog.base.ids import is_legal_topic
from tidelog.cluster import paths
from tidelog.cluster.image import (
    NO_LEADER,
    NO_STATE,
    NO_TOPIC_ID,
    BrokerInfo,
    PartitionInfo,
    TopicInfo,
)
from tidelog.cluster.topic_nodes import with_state
from tidelog.cluster.writing import Ask, gather
from tidelog.cluster.znodes import (
    Assignment,
    decode_broker,
    decode_config,
    decode_state,
    decode_topic,
)

_log = logging.getLogger(__name__)

Result = TypeVar("Result")
GotNode = Node | CoordinationError
TopicRead = TopicInfo | BadValue | CoordinationError | None
"""BadValue: it is there but cannot be understood; None: it is not there."""


@dataclass(slots=True)
class Found:
    """What stands in the tree."""

    brokers: dict[int, BrokerInfo] = field(default_factory=dict)
    topics: dict[str, TopicInfo] = field(default_factory=dict)
    """Also those that are marked for deletion; an old one may still lack its id."""
    names: dict[bytes, str] = field(default_factory=dict)
    unreadable: dict[str, str] = field(default_factory=dict)
    marked_for_deletion: list[str] = field(default_factory=list)
    broker_configs: dict[int, dict[str, str]] = field(default_factory=dict)
    default_broker_config: dict[str, str] = field(default_factory=dict)


def read_topics(
    coordination: Coordination, done: Callable[[Found | CoordinationError], None]
) -> None:
    """All topics with their states, and which of them are to be deleted."""
    _read([partial(_read_topics, read_topic), _read_marks], coordination, done)


def read_settings(
    coordination: Coordination, done: Callable[[Found | CoordinationError], None]
) -> None:
    """The settings of topics and brokers; the topics without states."""
    _read([partial(_read_topics, _read_named), _read_broker_configs], coordination, done)


def read_brokers(
    coordination: Coordination,
    watch: Watch,
    done: Callable[[Found | CoordinationError], None],
) -> None:
    """Those that are registered, with their epochs; the watch is told when others are."""
    _read([partial(_read_brokers, watch)], coordination, done)


def _read(
    steps: Sequence[Callable[[Coordination, Found, "Finished"], None]],
    coordination: Coordination,
    done: Callable[[Found | CoordinationError], None],
) -> None:
    found = Found()

    def answered(errors: list[CoordinationError | None]) -> None:
        failed = next((error for error in errors if error is not None), None)
        done(found if failed is None else failed)

    gather([partial(step, coordination, found) for step in steps], answered)


def read_topic(coordination: Coordination, name: str, done: Callable[[TopicRead], None]) -> None:
    """One topic with its settings and the state of each partition."""

    def read(found: TopicRead) -> None:
        if isinstance(found, TopicInfo):
            coordination.get(paths.topic_config(name), partial(_add_config, found, done))
        else:
            done(found)

    read_topic_part(coordination, name, None, read)


def read_topic_part(
    coordination: Coordination,
    name: str,
    numbers: Sequence[int] | None,
    done: Callable[[TopicRead], None],
) -> None:
    """One topic with the states of some partitions, or of all, and without settings; the others
    are as if they had none.

    A reassignment changes the topic's node and states in one write. So the node is read again
    after the states: if it is another by then, they may be of before and after such a write.
    """
    path = paths.topic(name)

    def got(node: GotNode) -> None:
        topic = _topic_without_states(name, node)
        if not isinstance(node, Node) or not isinstance(topic, TopicInfo):
            done(topic)
            return
        count = len(topic.partitions)
        there = range(count) if numbers is None else [n for n in numbers if n < count]
        asks: list[Ask[GotNode]] = [partial(coordination.get, paths.state(name, n)) for n in there]
        asks.append(partial(coordination.get, path))
        gather(asks, partial(read, topic, there, node))

    def read(topic: TopicInfo, there: Sequence[int], before: Node, nodes: list[GotNode]) -> None:
        *states, after = nodes
        if isinstance(after, Node) and after.stat.modified_zxid == before.stat.modified_zxid:
            done(_with_states(topic, there, states))
        else:
            got(after)

    coordination.get(path, got)


def _read_named(coordination: Coordination, name: str, done: Callable[[TopicRead], None]) -> None:
    """One topic with its settings and without states."""
    asks: list[Ask[GotNode]] = [
        partial(coordination.get, paths.topic(name)),
        partial(coordination.get, paths.topic_config(name)),
    ]

    def got(nodes: list[GotNode]) -> None:
        topic = _topic_without_states(name, nodes[0])
        if isinstance(topic, TopicInfo):
            _add_config(topic, done, nodes[1])
        else:
            done(topic)

    gather(asks, got)


def _topic_without_states(name: str, node: GotNode) -> TopicRead:
    if isinstance(node, CoordinationError):
        return None if node.trouble is Trouble.no_node else node
    try:
        topic_id, assignments = _naming(paths.topic(name), partial(decode_topic, node.data))
    except BadValue as error:
        return error
    return TopicInfo(
        name=name,
        topic_id=topic_id or NO_TOPIC_ID,
        partitions=tuple(map(_partition_without_state, assignments)),
        version=node.stat.version,
    )


def _add_config(topic: TopicInfo, done: Callable[[TopicRead], None], node: GotNode) -> None:
    if isinstance(node, CoordinationError):
        done(topic if node.trouble is Trouble.no_node else node)
        return
    try:
        own = _naming(paths.topic_config(topic.name), partial(decode_config, node.data))
    except BadValue as error:
        done(error)
        return
    done(replace(topic, config=own))


def _partition_without_state(assignment: Assignment) -> PartitionInfo:
    return PartitionInfo(
        replicas=assignment.replicas,
        isr=(),
        leader=NO_LEADER,
        leader_epoch=NO_STATE,
        state_version=NO_STATE,
        adding_replicas=assignment.adding,
        removing_replicas=assignment.removing,
    )


def _with_states(
    topic: TopicInfo, numbers: Sequence[int], nodes: Sequence[GotNode]
) -> TopicInfo | BadValue | CoordinationError:
    partitions = list(topic.partitions)
    try:
        for number, node in zip(numbers, nodes, strict=True):
            partitions[number] = _with_state(topic.name, number, partitions[number], node)
    except (BadValue, CoordinationError) as error:
        return error
    return replace(topic, partitions=tuple(partitions))


def _with_state(topic: str, number: int, partition: PartitionInfo, node: GotNode) -> PartitionInfo:
    if isinstance(node, CoordinationError):
        if node.trouble is Trouble.no_node:
            return partition
        raise node
    state = _naming(paths.state(topic, number), partial(decode_state, node.data))
    return with_state(partition, state, node.stat.version)


Finished = Callable[[CoordinationError | None], None]


def _read_topics(
    read_one: Callable[[Coordination, str, Callable[[TopicRead], None]], None],
    coordination: Coordination,
    found: Found,
    done: Finished,
) -> None:
    def got(names: list[str], reads: list[TopicRead]) -> None:
        for name, read in zip(names, reads, strict=True):
            match read:
                case TopicInfo():
                    _add_topic(found, read)
                case BadValue():
                    _leave_alone(found, name, str(read))
                case CoordinationError():
                    done(read)
                    return
        done(None)

    def listed(names: list[str] | CoordinationError) -> None:
        if isinstance(names, CoordinationError):
            done(names)
            return
        legal = [name for name in names if is_legal_topic(name)]
        for name in sorted(set(names) - set(legal)):
            _leave_alone(found, name, "it is not a name that a topic can have")
        gather([partial(read_one, coordination, name) for name in legal], partial(got, legal))

    coordination.children(paths.TOPICS, listed)


def _add_topic(found: Found, topic: TopicInfo) -> None:
    if topic.topic_id == NO_TOPIC_ID or topic.topic_id not in found.names:
        found.topics[topic.name] = topic
        found.names[topic.topic_id] = topic.name
    else:
        twin = found.names[topic.topic_id]
        _leave_alone(found, topic.name, f"the topic {twin} has the same id")


def _leave_alone(found: Found, name: str, why: str) -> None:
    _log.error("the topic %s cannot be read and is left alone: %s", name, why)
    found.unreadable[name] = why


def _read_marks(coordination: Coordination, found: Found, done: Finished) -> None:
    def listed(names: list[str] | CoordinationError) -> None:
        if isinstance(names, CoordinationError):
            done(names)
        else:
            found.marked_for_deletion = names
            done(None)

    coordination.children(paths.DELETE_TOPICS, listed)


def _read_brokers(watch: Watch, coordination: Coordination, found: Found, done: Finished) -> None:
    def keep(name: str, node: Node) -> None:
        broker_id = _broker_id(name)
        found.brokers[broker_id] = decode_broker(broker_id, node.data, node.stat.created_zxid)

    _read_children(coordination, paths.BROKER_IDS, keep, done, watch)


def _read_broker_configs(coordination: Coordination, found: Found, done: Finished) -> None:
    def keep(name: str, node: Node) -> None:
        config = decode_config(node.data)
        if name == paths.DEFAULT_ENTITY:
            found.default_broker_config = config
        else:
            found.broker_configs[_broker_id(name)] = config

    _read_children(coordination, paths.BROKER_CONFIGS, keep, done)


def _read_children(
    coordination: Coordination,
    path: str,
    keep: Callable[[str, Node], None],
    done: Finished,
    watch: Watch | None = None,
) -> None:
    """Reads every child; one that went meanwhile or cannot be understood is left out."""

    def got(names: list[str], nodes: list[GotNode]) -> None:
        for name, node in zip(names, nodes, strict=True):
            if isinstance(node, CoordinationError):
                if node.trouble is not Trouble.no_node:
                    done(node)
                    return
                continue
            try:
                keep(name, node)
            except BadValue as error:
                _log.error("%s/%s cannot be read and is left out: %s", path, name, error)
        done(None)

    def listed(names: list[str] | CoordinationError) -> None:
        if isinstance(names, CoordinationError):
            done(names)
            return
        asks: list[Ask[GotNode]] = [partial(coordination.get, f"{path}/{name}") for name in names]
        gather(asks, partial(got, names))

    coordination.children(path, listed, watch)


def _broker_id(name: str) -> int:
    if not name.isascii() or not name.isdigit() or len(name) > 10 or str(int(name)) != name:
        raise BadValue(f"{name[:30]} is not a broker's number")
    return int(name)


def _naming(path: str, read: Callable[[], Result]) -> Result:
    try:
        return read()
    except BadValue as error:
        raise BadValue(f"{path}: {error}") from error
