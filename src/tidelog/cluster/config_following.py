"""Following the settings that any broker may change.

Every change is announced by a numbered node under `/config/changes`. A broker notes which it
has seen, reads all settings, and from then on reads what each new announcement names: every look
at the list leaves the next watch, so none is missed. What it reads may be newer than what was
announced, which does no harm; what is another topic's of that name is left alone. After
a session that expired it begins again.
"""

import logging
from collections.abc import Callable, Iterable
from functools import partial

from tidelog.base.coordination import (
    Coordination,
    CoordinationError,
    Node,
    Trouble,
    WatchKind,
)
from tidelog.base.errors import BadValue
from tidelog.cluster import fields, paths
from tidelog.cluster.entity_configs import EntityConfig, EntityNode, is_of, read_entities
from tidelog.cluster.reading import Found, read_settings
from tidelog.cluster.requests import Change
from tidelog.cluster.standing import Standing
from tidelog.cluster.writing import Ask, gather, insist
from tidelog.cluster.znodes import decode_config

_log = logging.getLogger(__name__)

GotNode = Node | CoordinationError
_NONE_SEEN = -1


class ConfigFollowing:
    def __init__(
        self,
        coordination: Coordination,
        standing: Standing,
        changed: Callable[[Change], None],
    ) -> None:
        """`changed` is told before the listeners are."""
        self._coordination = coordination
        self._standing = standing
        self._changed = changed
        self._last_seen = _NONE_SEEN
        self._is_looking = False
        self._is_told = False
        self._is_closed = False
        self._session_id: int | None = None
        """The one that the watch is left in."""
        self._early: dict[str, None] = {}
        """Topics whose settings changed when this broker did not know them, or had not been told
        that they are others now."""

    def start(self, done: Callable[[Found | CoordinationError], None]) -> None:
        """Reads all settings; from then on changes of them are followed."""
        self._is_looking = True
        self._is_told = False

        def listed(names: list[str] | CoordinationError) -> None:
            if isinstance(names, CoordinationError):
                self._is_looking = False
                done(names)
                return
            self._session_id = self._coordination.session_id
            self._last_seen = max(map(_number, names), default=_NONE_SEEN)
            insist(partial(read_settings, self._coordination), read)

        def read(found: Found | CoordinationError) -> None:
            self._is_looking = False
            done(found)
            if self._is_told:
                self._look()

        insist(self._list, listed)

    def go_on(self) -> None:
        """In a new session whatever changed meanwhile is found and told of; in the same one
        nothing was missed."""
        if self._session_id == self._coordination.session_id:
            return

        def read(found: Found | CoordinationError) -> None:
            if isinstance(found, CoordinationError):
                self._stop(found)
            else:
                self._take_over(found)

        self.start(read)

    def close(self) -> None:
        self._is_closed = True

    def topics_appeared(self, names: Iterable[str]) -> None:
        """What this broker was told with a new topic may be older than a change it saw."""
        early = [name for name in names if name in self._early]
        for name in early:
            del self._early[name]
        if early:
            self._read_entities([f"topics/{name}" for name in early], lambda: None)

    def apply(self, configs: Iterable[EntityConfig]) -> None:
        """Takes over settings, but not those of another topic than the one that is known."""
        standing, topics, has_broker = self._standing, [], False
        for entity, config, topic_id in configs:
            kind, _, name = entity.partition("/")
            if kind == "topics":
                if not is_of(standing.image, entity, topic_id):
                    self._early[name] = None
                elif standing.put_topic_config(name, config):
                    topics.append(name)
            elif kind == "brokers":
                broker_id = None if name == paths.DEFAULT_ENTITY else int(name)
                has_broker |= standing.put_broker_config(broker_id, config)
        if has_broker:
            standing.refresh_settings()
        change = Change(topic_configs=tuple(topics), broker_config=has_broker)
        self._changed(change)
        standing.tell(change)

    # -- a look

    def _list(self, done: Callable[[list[str] | CoordinationError], None]) -> None:
        self._coordination.children(paths.CONFIG_CHANGES, done, self._told)

    def _told(self, _kind: WatchKind, _path: str) -> None:
        if self._is_looking:
            self._is_told = True
        elif not self._is_closed:
            self._look()

    def _look(self) -> None:
        self._is_looking = True
        self._is_told = False
        insist(self._list, self._listed)

    def _listed(self, names: list[str] | CoordinationError) -> None:
        if isinstance(names, CoordinationError):
            self._stop(names)
            return
        new = sorted((name for name in names if _number(name) > self._last_seen), key=_number)
        if not new:
            self._end_look()
            return
        found = [f"{paths.CONFIG_CHANGES}/{name}" for name in new]
        asks: list[Ask[GotNode]] = [
            partial(insist, partial(self._coordination.get, path)) for path in found
        ]
        gather(asks, partial(self._got, _number(new[-1])))

    def _got(self, last: int, nodes: list[GotNode]) -> None:
        for node in nodes:
            if isinstance(node, CoordinationError):
                if node.trouble is Trouble.no_node:
                    # Nobody knows any more what it was: everything is read.
                    insist(partial(read_settings, self._coordination), partial(self._read, last))
                else:
                    self._stop(node)
                return
        entities = [_entity(node.data) for node in nodes if isinstance(node, Node)]
        known = list(dict.fromkeys(entity for entity in entities if entity is not None))
        self._read_entities(known, partial(self._seen, last))

    def _read(self, last: int, found: Found | CoordinationError) -> None:
        if isinstance(found, CoordinationError):
            self._stop(found)
        else:
            self._take_over(found)
            self._seen(last)

    def _seen(self, last: int) -> None:
        self._last_seen = max(last, self._last_seen)
        self._end_look()

    def _end_look(self) -> None:
        self._is_looking = False
        if self._is_told and not self._is_closed:
            self._look()

    def _stop(self, error: CoordinationError) -> None:
        self._is_looking = False
        if error.trouble is not Trouble.session_expired:
            _log.error("changes of settings cannot be followed: %s", error)

    # -- reading

    def _read_entities(self, entities: list[str], done: Callable[[], None]) -> None:
        def got(nodes: list[EntityNode]) -> None:
            read = [_config(node) for node in nodes]
            self.apply([found for found in read if found is not None])
            done()

        read_entities(self._coordination, entities, got)

    def _take_over(self, found: Found) -> None:
        image = self._standing.image
        configs = [
            EntityConfig(f"topics/{topic.name}", dict(topic.config), topic.topic_id)
            for topic in found.topics.values()
        ]
        broker_ids = sorted(found.broker_configs.keys() | image.broker_configs.keys())
        configs += [
            EntityConfig(f"brokers/{known}", found.broker_configs.get(known, {}))
            for known in broker_ids
        ]
        default = f"brokers/{paths.DEFAULT_ENTITY}"
        configs.append(EntityConfig(default, found.default_broker_config))
        self.apply(configs)


def _number(name: str) -> int:
    """That of an announcement; none of it if it is not one."""
    digits = name.rpartition("_")[2]
    return int(digits) if digits.isascii() and digits.isdigit() else _NONE_SEEN


def _entity(data: bytes) -> str | None:
    try:
        entity = fields.text(fields.decode(data), "entity_path")
    except BadValue as error:
        _log.error("an announcement of settings cannot be read: %s", error)
        return None
    kind, _, name = entity.partition("/")
    is_known = (kind == "topics" and name and "/" not in name) or (
        kind == "brokers" and (name == paths.DEFAULT_ENTITY or (name.isascii() and name.isdigit()))
    )
    return entity if is_known else None


def _config(found: EntityNode) -> EntityConfig | None:
    """A node that is not there is an empty one, unless it is a topic's, which went with it."""
    entity, node, topic_id = found
    if isinstance(node, CoordinationError):
        is_empty = node.trouble is Trouble.no_node and entity.startswith("brokers/")
        return EntityConfig(entity, {}) if is_empty else None
    try:
        return EntityConfig(entity, decode_config(node.data), topic_id)
    except BadValue as error:
        _log.error("the settings of %s cannot be read: %s", entity, error)
        return None
