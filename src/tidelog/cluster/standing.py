"""What a broker knows and may do while it is in the cluster: shared by all that acts for it."""

import logging
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.base.settings import Settings
from tidelog.cluster.effective import effective_broker_settings
from tidelog.cluster.image import Image
from tidelog.cluster.requests import Change

_log = logging.getLogger(__name__)

Item = TypeVar("Item")
Planned = TypeVar("Planned")
Results = Callable[[list[Item | KafkaError]], None]
Listener = Callable[[Change], None]


@dataclass(slots=True, kw_only=True)
class Standing:
    static: Settings
    """What the broker's file says."""
    settings: Settings
    """With what was changed since."""
    image: Image = field(default_factory=Image)
    """What this broker was told of the cluster."""
    broker_id: int = -1
    listeners: list[Listener] = field(default_factory=list)

    def tell(self, change: Change) -> None:
        """What is so is so: a listener that cannot follow, say because its disk fails, is
        reported and holds up nobody."""
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

    def put_topic_config(self, name: str, config: Mapping[str, str]) -> bool:
        """Whether that is something new."""
        topic = self.image.topics.get(name)
        if topic is None or topic.config == config:
            return False
        self.image.put_topic(replace(topic, config=config))
        return True

    def put_broker_config(self, broker_id: int | None, config: dict[str, str]) -> bool:
        """The same for a broker, or with None for all of them."""
        image = self.image
        if broker_id is None:
            before, image.default_broker_config = image.default_broker_config, config
        else:
            before = image.broker_configs.get(broker_id, {})
            image.broker_configs[broker_id] = config
        return before != config

    def refresh_settings(self) -> None:
        """Takes over what the image has of dynamic settings."""
        own = self.image.broker_configs.get(self.broker_id, {})
        self.settings = effective_broker_settings(
            self.static, self.image.default_broker_config, own
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
