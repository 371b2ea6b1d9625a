"""What a broker knows and may do while it is in the cluster: shared by all that changes it."""

import logging
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from tidelog.base.coordination import Check, Coordination
from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.base.ports import Clock, Entropy
from tidelog.base.settings import Settings
from tidelog.cluster.effective import effective_broker_settings
from tidelog.cluster.image import Image
from tidelog.cluster.leadership import Controller
from tidelog.cluster.requests import Change
from tidelog.cluster.topics import Situation

_log = logging.getLogger(__name__)

Item = TypeVar("Item")
Planned = TypeVar("Planned")
Results = Callable[[list[Item | KafkaError]], None]
Listener = Callable[[Change], None]


@dataclass(slots=True, kw_only=True)
class Standing:
    coordination: Coordination
    clock: Clock
    entropy: Entropy
    static: Settings
    """What the broker's file says."""
    settings: Settings
    """With what was changed since."""
    image: Image = field(default_factory=Image)
    broker_id: int = -1
    controller: Controller | None = None
    listeners: list[Listener] = field(default_factory=list)

    @property
    def fence(self) -> Check:
        assert self.controller is not None, "only the controller writes"
        return self.controller.fence

    def situation(self) -> Situation:
        assert self.controller is not None, "only the controller plans"
        return Situation(
            image=self.image,
            settings=self.settings,
            entropy=self.entropy,
            controller_epoch=self.controller.epoch,
        )

    def tell(self, change: Change) -> None:
        """What is written is written: a listener that cannot follow, say because its disk
        fails, is reported and holds up nobody."""
        if change == Change():
            return
        for listener in self.listeners:
            try:
                listener(change)
            except (KafkaError, OSError) as error:
                _log.error("a change of the cluster could not be followed here: %s", error)
            except Exception:
                # A bug, but the changes that others ask for must not wait for ever behind it.
                _log.exception("bug: a change of the cluster could not be followed here")

    def refresh_settings(self) -> None:
        """Takes over what the image has of dynamic settings."""
        own = self.image.broker_configs.get(self.broker_id, {})
        self.settings = effective_broker_settings(
            self.static, self.image.default_broker_config, own
        )

    def not_controller(self) -> KafkaError | None:
        """What a broker answers that may not change the cluster."""
        if self.controller is not None:
            return None
        return KafkaError(
            ErrorCode.not_controller,
            f"the controller is the broker {self.image.controller_id}, not this one",
        )


def plan_each(
    items: Sequence[Item], key: Callable[[Item], Hashable], plan: Callable[[Item], Planned]
) -> list[Planned | KafkaError]:
    """Plans items one by one; those that are named twice in a request are refused, all of
    them, because nobody can know which was meant."""
    keys = [key(item) for item in items]
    twice = {found for found, count in Counter(keys).items() if count > 1}
    planned: list[Planned | KafkaError] = []
    for item, found in zip(items, keys, strict=True):
        try:
            if found in twice:
                raise KafkaError(ErrorCode.invalid_request, f"{found} stands more than once here")
            planned.append(plan(item))
        except KafkaError as error:
            # Its traceback would keep all that was there when it was raised, for every item.
            planned.append(error.with_traceback(None))
    return planned
