"""Writing settings and announcing them to all brokers; any broker may do it.

A change goes to its node, on condition that this is still what it was made from, and the topic
the same, together with a numbered node under `/config/changes`, which all brokers watch.
Announcements older than fifteen minutes are cleared away when the next one is made.
"""

import logging
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from tidelog.base.coordination import (
    Check,
    Coordination,
    CoordinationError,
    Create,
    Delete,
    Node,
    Operation,
    SetData,
    Stat,
    Trouble,
    Written,
)
from tidelog.base.errors import BadValue, ErrorCode, KafkaError
from tidelog.base.ids import is_legal_topic
from tidelog.base.ports import Clock
from tidelog.cluster import paths
from tidelog.cluster.config_following import ConfigFollowing
from tidelog.cluster.configs import ConfigPlan, NewConfig, broker_of
from tidelog.cluster.entity_configs import EntityConfig, EntityNode, is_of, read_entities
from tidelog.cluster.image import NO_TOPIC_ID
from tidelog.cluster.requests import ConfigChange
from tidelog.cluster.standing import Results, Standing, plan_each
from tidelog.cluster.topic_nodes import is_incarnation
from tidelog.cluster.writing import Ask, gather, insist, refusal
from tidelog.cluster.znodes import decode_config, encode_config, encode_config_change

_log = logging.getLogger(__name__)

KEPT_MS: Final = 15 * 60 * 1000
TRIES_MAX: Final = 20
"""How often a change is made anew because others changed the same settings at the same time."""
_NOT_THERE: Final = -1

Outcome = Callable[[NewConfig | KafkaError], None]
Versions = dict[str, int]


class ConfigChanges:
    def __init__(
        self,
        coordination: Coordination,
        clock: Clock,
        standing: Standing,
        following: ConfigFollowing,
        is_member: Callable[[], bool],
    ) -> None:
        """`is_member`: whether the broker is registered. If not, the tree that it reaches may be
        another cluster's, where its number and the names of its topics are others'."""
        self._coordination = coordination
        self._clock = clock
        self._standing = standing
        self._following = following
        self._is_member = is_member
        self._announced: deque[tuple[int, str]] = deque()
        """When each was made, and its path; the oldest first."""

    def alter(
        self, changes: Sequence[ConfigChange], validate_only: bool, done: Results[None]
    ) -> None:
        """An answer comes when the settings are durable and act here."""

        def read(versions: Versions) -> None:
            planned = plan_each(changes, lambda change: (change.kind, change.name), self._plan)
            asks: list[Ask[NewConfig | KafkaError]] = [
                partial(_answer, item)
                if isinstance(item, KafkaError) or validate_only
                else partial(self._write, item, versions.get(item.path, _NOT_THERE), TRIES_MAX)
                for item in planned
            ]
            gather(asks, wrote)

        def wrote(results: list[NewConfig | KafkaError]) -> None:
            if not validate_only:
                made = [item for item in results if isinstance(item, NewConfig)]
                self._following.apply(
                    [EntityConfig(item.entity_path, item.config, item.topic_id) for item in made]
                )
            done([item if isinstance(item, KafkaError) else None for item in results])

        if self._is_member():
            self._read(changes, read)
        else:
            done([_no_member()] * len(changes))

    def find_announced(self, done: Callable[[CoordinationError | None], None]) -> None:
        """Learns which announcements are there, from before this broker started."""

        def listed(names: list[str] | CoordinationError) -> None:
            if isinstance(names, CoordinationError):
                done(names)
                return
            found = [f"{paths.CONFIG_CHANGES}/{name}" for name in names]
            asks: list[Ask[Stat | CoordinationError | None]] = [
                partial(self._coordination.exists, path) for path in found
            ]
            gather(asks, partial(looked, found))

        def looked(found: list[str], stats: list[Stat | CoordinationError | None]) -> None:
            known = [
                (stat.created_ms, path)
                for path, stat in zip(found, stats, strict=True)
                if isinstance(stat, Stat)
            ]
            self._announced = deque(sorted(known))
            self._clear_old()
            done(None)

        insist(partial(self._coordination.children, paths.CONFIG_CHANGES), listed)

    def _plan(self, change: ConfigChange) -> NewConfig:
        standing = self._standing
        plan = ConfigPlan(
            image=standing.image,
            static=standing.static,
            settings=standing.settings,
            broker_id=standing.broker_id,
        )
        return plan.alter(change)

    # -- what stands there now

    def _read(self, changes: Sequence[ConfigChange], done: Callable[[Versions], None]) -> None:
        """Takes over the settings that are to be changed as they stand in the tree, so that a
        change that another broker has just made is not undone."""
        entities = list(dict.fromkeys(filter(None, map(self._entity, changes))))

        def got(nodes: list[EntityNode]) -> None:
            versions: Versions = {}
            found: list[EntityConfig] = []
            for entity, node, topic_id in nodes:
                if isinstance(node, Node) and is_of(self._standing.image, entity, topic_id):
                    versions[f"/config/{entity}"] = node.stat.version
                    found += _readable(entity, node, topic_id)
            self._following.apply(found)
            done(versions)

        read_entities(self._coordination, entities, got)

    def _entity(self, change: ConfigChange) -> str | None:
        """None for what will be refused."""
        if change.kind == "topic":
            is_known = change.name in self._standing.image.topics and is_legal_topic(change.name)
            return f"topics/{change.name}" if is_known else None
        try:
            broker_id = broker_of(change.name, self._standing.broker_id)
        except KafkaError:
            # The plan says what is wrong with it.
            return None
        return f"brokers/{paths.entity(broker_id)}"

    # -- writing

    def _write(self, new: NewConfig, version: int, tries_left: int, done: Outcome) -> None:
        if not self._is_member():
            done(_no_member())
            return
        data = encode_config(new.config)
        is_there = version != _NOT_THERE
        change: Operation = Create(path=new.path, data=data)
        if is_there:
            change = SetData(path=new.path, data=data, version=version)
        announcement = Create(
            path=paths.CONFIG_CHANGE_PREFIX,
            data=encode_config_change(new.entity_path),
            sequence=True,
        )
        fence = _fence(new)
        lost_race = (Trouble.bad_version, Trouble.no_node, Trouble.node_exists)

        def wrote(result: list[Written] | CoordinationError) -> None:
            if not isinstance(result, CoordinationError):
                self._remember(str(result[-1]))
                done(new)
            elif result.trouble in lost_race and result.path == new.path and tries_left:
                self._try_again(new.change, tries_left - 1, done)
            elif fence and (result.trouble, result.path) == (Trouble.no_node, fence[0].path):
                done(_gone(new.change.name))
            else:
                done(refusal(result))

        insist(partial(self._coordination.write, [*fence, change, announcement]), wrote)

    def _try_again(self, change: ConfigChange, tries_left: int, done: Outcome) -> None:
        def read(versions: Versions) -> None:
            try:
                new = self._plan(change)
            except KafkaError as error:
                done(error)
                return
            self._write(new, versions.get(new.path, _NOT_THERE), tries_left, done)

        self._read([change], read)

    # -- announcements

    def _remember(self, path: str) -> None:
        self._announced.append((self._clock.now_ms(), path))
        self._clear_old()

    def _clear_old(self) -> None:
        oldest_kept_ms = self._clock.now_ms() - KEPT_MS
        while self._announced and self._announced[0][0] < oldest_kept_ms:
            _, path = self._announced.popleft()
            self._coordination.write([Delete(path=path)], partial(_cleared, path))


def _answer(item: NewConfig | KafkaError, done: Outcome) -> None:
    done(item)


def _fence(new: NewConfig) -> list[Check]:
    """The versions of settings begin anew with each topic of that name."""
    if new.topic_id is None or new.topic_id == NO_TOPIC_ID:
        return []
    return [is_incarnation(new.change.name, new.topic_id)]


def _no_member() -> KafkaError:
    return KafkaError(ErrorCode.request_timed_out, "the broker is not in the cluster just now")


def _gone(name: str) -> KafkaError:
    return KafkaError(
        ErrorCode.unknown_topic_or_partition, f"the topic {name} was deleted meanwhile"
    )


def _readable(entity: str, node: Node, topic_id: bytes | None) -> list[EntityConfig]:
    try:
        return [EntityConfig(entity, decode_config(node.data), topic_id)]
    except BadValue as error:
        _log.error("the settings of %s cannot be read and are replaced: %s", entity, error)
        return []


def _cleared(path: str, result: list[Written] | CoordinationError) -> None:
    if isinstance(result, CoordinationError) and result.trouble is not Trouble.no_node:
        _log.warning("the old announcement %s was not cleared away: %s", path, result)
