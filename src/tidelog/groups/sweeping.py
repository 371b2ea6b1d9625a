"""Offsets that nobody needs any more, removed: those that have expired, and those of topics that
were deleted. A group that has neither members nor offsets goes with them.

A topic counts as deleted when it was there and is not there any more. One that this broker has not
heard of yet is not taken for deleted.
"""

from collections import deque
from collections.abc import Mapping
from typing import Final

from tidelog.base.errors import KafkaError
from tidelog.base.journal import Entry
from tidelog.groups.deadline import Deadline
from tidelog.groups.group import Group
from tidelog.groups.journaled import Journaled
from tidelog.groups.offsets import Offsets, expired, tombstone
from tidelog.groups.surroundings import GroupSurroundings

_GROUPS_AT_ONCE: Final = 100
_MS_PER_MINUTE: Final = 60_000


class Sweeping:
    def __init__(
        self,
        surroundings: GroupSurroundings,
        groups: Mapping[str, Group],
        offsets: Offsets,
        journaled: Journaled,
        topic_ids: dict[str, bytes],
    ) -> None:
        self._surroundings = surroundings
        self._groups = groups
        self._offsets = offsets
        self._journaled = journaled
        self._next = Deadline(surroundings.clock, surroundings.loop)
        self._seen = topic_ids
        """Of the topics that offsets are for, by name, as they were when last looked at."""

    def start(self) -> None:
        self._look_at_topics()
        self._wait()

    def stop(self) -> None:
        self._next.cancel()

    # -- what expires

    def _wait(self) -> None:
        interval_ms = self._surroundings.settings().whole("offsets.retention.check.interval.ms")
        self._next.set(interval_ms, self._begin)

    def _begin(self) -> None:
        self._go_on(deque(self._groups))

    def _go_on(self, group_ids: deque[str]) -> None:
        """Some groups in each turn, so that others come in between."""
        entries: list[Entry] = []
        for _ in range(min(_GROUPS_AT_ONCE, len(group_ids))):
            group = self._groups.get(group_ids.popleft())
            if group is not None:
                entries += self._expired(group)
        self._journaled.write_in_parts(entries, _another_time)
        if group_ids:
            self._next.set(0, lambda: self._go_on(group_ids))
        else:
            self._wait()

    def _expired(self, group: Group) -> list[Entry]:
        minutes = self._surroundings.settings().whole("offsets.retention.minutes")
        now_ms = self._surroundings.clock.now_ms()
        keys, is_all = expired(group, self._offsets, now_ms, minutes * _MS_PER_MINUTE)
        entries = [tombstone(key) for key in keys]
        return entries + group.tombstones() if is_all and group.is_empty else entries

    # -- topics that are gone

    def topics_changed(self) -> None:
        gone: list[Entry] = []
        topics = self._surroundings.topics
        for topic, seen_id in list(self._seen.items()):
            if topics.topic_id(topic) not in (seen_id, None) or topics.is_gone(topic):
                del self._seen[topic]
                keys = dict.fromkeys(self._offsets.keys_of_topic(topic, seen_id))
                gone += [tombstone(key) for key in keys]
        self._journaled.write_in_parts(gone, _another_time)
        self._look_at_topics()

    def _look_at_topics(self) -> None:
        for topic in self._offsets.topics():
            topic_id = self._surroundings.topics.topic_id(topic)
            if topic_id is not None:
                self._seen[topic] = topic_id


def _another_time(_error: KafkaError | None) -> None:
    """What could not be removed is found again: an offset that has expired at the next look, one
    of a topic that is gone when it has expired."""
