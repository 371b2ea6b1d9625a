"""Somebody who deletes the topic and makes it again under its name, on brokers that are there.

What was acknowledged in the one that is deleted is gone with it. The one that is made then is
another, with another id: what comes late for the one before must do it no harm.
"""

from functools import partial
from typing import Any, Final

from tidelog.cluster import paths
from tidelog.cluster.requests import NewTopic
from tidelog.trials.leading import TOPIC
from tidelog.trials.process import Process
from tidelog.trials.world import World

LOOK_MS: Final = 40


class Recreator:
    def __init__(self, world: World) -> None:
        self._world = world
        self._random = world.loop.choices.stream("topics").random
        self._is_over = False
        self._asked: Process | None = None
        """Who has not answered yet."""
        self._deletes_ms = 0
        """When it is to be deleted next."""

    def start(self) -> None:
        if self._world.options.recreate_gap_ms:
            self._draw_deletion()
            self._look_later()

    def end(self) -> None:
        """It is not deleted any more, and made again if it was."""
        self._is_over = True

    def is_settled(self) -> bool:
        return not self._is_waiting() and self._is_there() and not self._is_doomed()

    # -- what is there

    def _is_waiting(self) -> bool:
        asked = self._asked
        return asked is not None and self._world.processes.get(asked.number) is asked

    def _is_there(self) -> bool:
        return self._world.ensemble.tree.exists(paths.topic(TOPIC)) is not None

    def _is_doomed(self) -> bool:
        return self._world.ensemble.tree.exists(paths.delete_topic(TOPIC)) is not None

    # -- what is done

    def _look_later(self) -> None:
        self._world.loop.after(1 + int(self._random() * LOOK_MS), self._look)

    def _look(self) -> None:
        self._look_later()
        controller = self._world.controller()
        if controller is None or self._is_waiting() or self._is_doomed():
            return
        if not self._is_there():
            self._make(controller)
        elif not self._is_over and self._world.loop.now_ms >= self._deletes_ms:
            self._draw_deletion()
            self._ask(controller, controller.metadata.delete_topics, [TOPIC])

    def _draw_deletion(self) -> None:
        gap_ms = int(self._random() * 2 * self._world.options.recreate_gap_ms)
        self._deletes_ms = self._world.loop.now_ms + gap_ms

    def _make(self, controller: Process) -> None:
        live = sorted(controller.metadata.image.brokers)
        count = self._world.options.replication_factor
        if len(live) < count:
            return
        assignment = {
            index: sorted(live, key=lambda _: self._random())[:count]
            for index in range(len(self._world.oracles))
        }
        create = partial(_create, controller)
        self._ask(controller, create, [NewTopic(name=TOPIC, assignment=assignment)])

    def _ask(self, controller: Process, action: Any, what: list[Any]) -> None:
        self._asked = controller
        action(what, partial(self._answered, controller))

    def _answered(self, controller: Process, results: Any) -> None:
        if self._asked is controller:
            self._asked = None
        if self._world.tracing is not None:
            self._world.tracing(f"the topic was to be deleted or made: {results}")


def _create(controller: Process, topics: list[NewTopic], done: Any) -> None:
    controller.metadata.create_topics(topics, False, done)
