"""Removing a topic's nodes, once its data is out of the way.

The mark under `/admin/delete_topics` was written before anything was removed, and goes in the
same write as the topic's own node, last of all: whatever happens in between, the next start
finds the mark and removes what is left.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from tidelog.base.coordination import (
    Check,
    Coordination,
    CoordinationError,
    Delete,
    Operation,
    Stat,
    Trouble,
)
from tidelog.cluster import paths
from tidelog.cluster.writing import Ask, gather, pack, write_parts

Listed = Callable[[list[str] | CoordinationError], None]


TRIES_MAX: Final = 5


def remove_nodes(
    coordination: Coordination,
    fence: Check,
    name: str,
    done: Callable[[CoordinationError | None], None],
) -> None:
    """Removes all of a topic that is marked for deletion. A state that was being made meanwhile
    is found when it is looked again."""

    def remove(tries_left: int) -> None:
        def removed(error: CoordinationError | None) -> None:
            is_changed = error is not None and error.trouble in (Trouble.not_empty, Trouble.no_node)
            if is_changed and error is not None and error.path != fence.path and tries_left:
                remove(tries_left - 1)
            else:
                done(error)

        _remove_once(coordination, fence, name, removed)

    remove(TRIES_MAX)


def _remove_once(
    coordination: Coordination,
    fence: Check,
    name: str,
    done: Callable[[CoordinationError | None], None],
) -> None:

    def listed(found: list[str] | CoordinationError) -> None:
        if isinstance(found, CoordinationError):
            done(found)
        else:
            _look_at_ends(coordination, name, partial(looked, found))

    def looked(below: list[str], ends: list[str] | CoordinationError) -> None:
        if isinstance(ends, CoordinationError):
            done(ends)
            return
        write_parts(coordination, pack(_groups(below, ends), fence), done)

    _list_below(coordination, paths.topic(name), listed)


def _groups(below: list[str], ends: list[str]) -> Iterator[list[Operation]]:
    """Children before their parents; the ends together, last of all."""
    for path in reversed(below):
        yield [Delete(path=path)]
    yield [Delete(path=path) for path in ends]


def _look_at_ends(coordination: Coordination, name: str, done: Listed) -> None:
    """Which of the nodes that go last are there."""
    wanted = [paths.topic(name), paths.topic_config(name), paths.delete_topic(name)]
    asks: list[Ask[Stat | CoordinationError | None]] = [
        partial(coordination.exists, path) for path in wanted
    ]

    def looked(stats: list[Stat | CoordinationError | None]) -> None:
        failed = next((stat for stat in stats if isinstance(stat, CoordinationError)), None)
        there = [path for path, stat in zip(wanted, stats, strict=True) if stat is not None]
        done(there if failed is None else failed)

    gather(asks, looked)


def _list_below(coordination: Coordination, path: str, done: Listed) -> None:
    """Everything under a node, parents before their children; nothing if it is not there."""

    def listed(names: list[str] | CoordinationError) -> None:
        if isinstance(names, CoordinationError):
            done([] if names.trouble is Trouble.no_node else names)
            return
        children = [f"{path}/{name}" for name in names]
        asks: list[Ask[list[str] | CoordinationError]] = [
            partial(_list_below, coordination, child) for child in children
        ]
        gather(asks, partial(went_on, children))

    def went_on(children: list[str], lists: list[list[str] | CoordinationError]) -> None:
        below: list[str] = []
        for child, found in zip(children, lists, strict=True):
            if isinstance(found, CoordinationError):
                done(found)
                return
            below += [child, *found]
        done(below)

    coordination.children(path, listed)
