"""Rules of topics that are deleted and made again, each replaced by the mistake that somebody could
make (T6).

As with the mutants of the machine: one small production function is put in the place of another.
"""

from typing import Any

import pytest

from tidelog.base.coordination import Check
from tidelog.cluster import paths
from tidelog.cluster.dispatch import Dispatch
from tidelog.cluster.fencing import Fencing
from tidelog.cluster.topic_changes import TopicChanges


def tell_nobody_that_it_is_gone(patch: pytest.MonkeyPatch) -> None:
    """The nodes of a topic go, and its data stays."""

    def forget(self: Dispatch, topics: Any) -> None:
        for topic in topics:
            self._desk.told.forget(topic.name)

    patch.setattr(Dispatch, "topics_deleted", forget)


def write_the_set_of_any_topic_of_that_name(patch: pytest.MonkeyPatch) -> None:
    """A leader writes to a node of that name and version, whose topic is another by now."""

    def is_any(_name: str, _topic_id: bytes) -> Check:
        return Check(path=paths.BROKER_IDS, version=0)

    patch.setattr("tidelog.cluster.isr_writes.is_incarnation", is_any)


def forget_deletions_under_way(patch: pytest.MonkeyPatch) -> None:
    """Who becomes controller does not look for topics that are marked."""
    finish = TopicChanges.finish_deletions

    def unfinished(self: TopicChanges, topics: Any, done: Any) -> None:
        asked = [topic for topic in topics if topic.name in self._image.topics]
        if asked:
            finish(self, asked, done)
        else:
            done([None for _ in topics])

    patch.setattr(TopicChanges, "finish_deletions", unfinished)


def give_the_same_id_again(patch: pytest.MonkeyPatch) -> None:
    """A topic is known by its name."""
    patch.setattr("tidelog.cluster.topic_changes.random_topic_id", lambda _entropy: b"t" * 16)


def hear_what_comes_late(patch: pytest.MonkeyPatch) -> None:
    """What was said of a topic before it was deleted is acted on after that."""
    patch.setattr(Fencing, "without_removed", lambda _self, request: request)


def believe_full_requests_whenever_they_come(patch: pytest.MonkeyPatch) -> None:
    """What a broker was first told to hold is all it holds, whatever it was told since."""
    patch.setattr(Fencing, "is_late", lambda _self, _request: False)
