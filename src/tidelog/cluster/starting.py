"""What happens between a broker's start and its first answer, as far as the cluster goes.

It registers, tries to become controller, reads the tree and, as controller, mends what was
left half-done. Deletions that were interrupted are only reported: their data is not here.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from tidelog.base.coordination import Coordination, CoordinationError
from tidelog.base.errors import BadValue
from tidelog.base.ports import Clock, Entropy
from tidelog.cluster.image import BrokerInfo
from tidelog.cluster.leadership import Controller, Election, OtherController
from tidelog.cluster.mending import Restart, mend, without_existing
from tidelog.cluster.reading import Found, read_all
from tidelog.cluster.registration import Registered, Registration
from tidelog.cluster.topic_nodes import Group
from tidelog.cluster.writing import pack, write_parts

Failure = CoordinationError | BadValue


@dataclass(slots=True, kw_only=True)
class Started:
    cluster_id: str
    broker: BrokerInfo
    controller: Controller | OtherController
    found: Found
    """Mended, if this broker is the controller."""


Done = Callable[[Started | Failure], None]


class Start:
    """One start of one broker."""

    def __init__(self, coordination: Coordination, clock: Clock, entropy: Entropy) -> None:
        self._coordination = coordination
        self._clock = clock
        self._entropy = entropy
        self._done: Done = lambda _: None

    def run(self, registration: Registration, expected_cluster_id: str | None, done: Done) -> None:
        self._done = done
        registration.start(expected_cluster_id, self._registered)

    def _registered(self, result: Registered | Failure) -> None:
        if isinstance(result, Failure):
            self._done(result)
            return
        election = Election(self._coordination, self._clock, result.broker.broker_id)
        election.start(partial(self._elected, result))

    def _elected(
        self, registered: Registered, result: Controller | OtherController | Failure
    ) -> None:
        if isinstance(result, Failure):
            self._done(result)
        else:
            read_all(self._coordination, partial(self._read, registered, result))

    def _read(
        self,
        registered: Registered,
        controller: Controller | OtherController,
        found: Found | CoordinationError,
    ) -> None:
        if isinstance(found, CoordinationError):
            self._done(found)
            return
        started = Started(
            cluster_id=registered.cluster_id,
            broker=registered.broker,
            controller=controller,
            found=found,
        )
        if isinstance(controller, Controller):
            self._mend(started, controller)
        else:
            self._done(started)

    def _mend(self, started: Started, controller: Controller) -> None:
        found = started.found
        restart = Restart(
            broker_id=started.broker.broker_id,
            alive=found.brokers.keys(),
            controller_epoch=controller.epoch,
        )
        marked = set(found.marked_for_deletion)
        staying = [topic for topic in found.topics.values() if topic.name not in marked]
        mended = mend(staying, restart, self._entropy)

        def looked(new_states: list[Group] | CoordinationError) -> None:
            if isinstance(new_states, CoordinationError):
                self._done(new_states)
                return
            parts = pack([*mended.changes, *new_states], controller.fence)
            write_parts(self._coordination, parts, wrote)

        def wrote(error: CoordinationError | None) -> None:
            if error is not None:
                self._done(error)
                return
            found.topics.update((topic.name, topic) for topic in mended.topics)
            self._done(started)

        without_existing(self._coordination, mended.new_states, looked)
