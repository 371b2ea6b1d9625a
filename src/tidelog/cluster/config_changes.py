"""Writing settings and announcing them to the other brokers.

A change goes to its node together with a numbered node under `/config/changes`, which is what
the other brokers watch; announcements older than fifteen minutes are cleared away when the
next one is made.
"""

import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from tidelog.base.coordination import (
    CoordinationError,
    Create,
    Delete,
    SetData,
    Stat,
    Trouble,
    Written,
)
from tidelog.base.errors import KafkaError
from tidelog.cluster import paths
from tidelog.cluster.configs import ConfigPlan, NewConfig
from tidelog.cluster.requests import Change, ConfigChange
from tidelog.cluster.standing import Results, Standing, plan_each
from tidelog.cluster.writing import Ask, gather, insist, refusal
from tidelog.cluster.znodes import encode_config, encode_config_change

_log = logging.getLogger(__name__)

Finished = Callable[[CoordinationError | None], None]

KEPT_MS: Final = 15 * 60 * 1000


class ConfigChanges:
    def __init__(self, standing: Standing) -> None:
        self._standing = standing
        self._coordination = standing.coordination
        self._clock = standing.clock
        self._announced: deque[tuple[int, str]] = deque()
        """When each was made, and its path; the oldest first."""

    def alter(
        self, changes: Sequence[ConfigChange], validate_only: bool, done: Results[None]
    ) -> None:
        standing = self._standing
        plan = ConfigPlan(
            image=standing.image,
            static=standing.static,
            settings=standing.settings,
            broker_id=standing.broker_id,
        )
        planned = plan_each(changes, lambda change: (change.kind, change.name), plan.alter)
        refused = [item if isinstance(item, KafkaError) else None for item in planned]
        if validate_only:
            done(refused)
            return
        new = [item for item in planned if isinstance(item, NewConfig)]

        def wrote(errors: list[CoordinationError | None]) -> None:
            outcomes = list(zip(new, errors, strict=True))
            self._take_over([config for config, error in outcomes if error is None])
            left = iter(errors)
            results = [next(left) if item is None else item for item in refused]
            done([refusal(e) if isinstance(e, CoordinationError) else e for e in results])

        gather([partial(self._write, config, True) for config in new], wrote)

    def find_announced(self, done: Finished) -> None:
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

        self._coordination.children(paths.CONFIG_CHANGES, listed)

    def _take_over(self, configs: Sequence[NewConfig]) -> None:
        image = self._standing.image
        for new in configs:
            if new.change.kind == "topic":
                image.put_topic(replace(image.topics[new.change.name], config=new.config))
            elif new.change.name:
                image.broker_configs[self._standing.broker_id] = new.config
            else:
                image.default_broker_config = new.config
        topics = tuple(new.change.name for new in configs if new.change.kind == "topic")
        has_broker = len(topics) < len(configs)
        if has_broker:
            self._standing.refresh_settings()
        self._standing.tell(Change(topic_configs=topics, broker_config=has_broker))

    def _write(self, new: NewConfig, is_there: bool, done: Finished) -> None:
        """A topic's node is there as a rule, a broker's from the first change on; if it is the
        other way round, it is tried that way."""
        data = encode_config(new.config)
        announcement = Create(
            path=paths.CONFIG_CHANGE_PREFIX,
            data=encode_config_change(new.entity_path),
            sequence=True,
        )
        change = SetData(path=new.path, data=data) if is_there else Create(path=new.path, data=data)
        missed = Trouble.no_node if is_there else Trouble.node_exists

        def wrote(result: list[Written] | CoordinationError) -> None:
            if not isinstance(result, CoordinationError):
                self._remember(str(result[-1]))
                done(None)
            elif result.trouble is missed and result.path == new.path:
                self._write(new, not is_there, done)
            else:
                done(result)

        operations = [self._standing.fence, change, announcement]
        insist(partial(self._coordination.write, operations), wrote)

    def _remember(self, path: str) -> None:
        self._announced.append((self._clock.now_ms(), path))
        self._clear_old()

    def _clear_old(self) -> None:
        oldest_kept_ms = self._clock.now_ms() - KEPT_MS
        while self._announced and self._announced[0][0] < oldest_kept_ms:
            _, path = self._announced.popleft()
            self._coordination.write([Delete(path=path)], partial(_cleared, path))


def _cleared(path: str, result: list[Written] | CoordinationError) -> None:
    if isinstance(result, CoordinationError) and result.trouble is not Trouble.no_node:
        _log.warning("the old announcement %s was not cleared away: %s", path, result)
