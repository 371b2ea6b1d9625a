"""The settings of one topic on one broker: its own, else what the broker falls back to.

`retention.ms` of a topic that does not set it is the broker's `log.retention.ms`, else its
`log.retention.minutes`, else its `log.retention.hours`, each in its own unit.
"""

from collections.abc import Mapping
from types import MappingProxyType

from tidelog.base.errors import BadValue
from tidelog.base.settings.broker import find_topic_setting
from tidelog.base.settings.kinds import Setting, Value
from tidelog.base.settings.topic import TOPIC
from tidelog.base.settings.typed import TypedValues
from tidelog.base.settings.values import Entry, Settings, Source


class TopicSettings(TypedValues):
    """Every topic setting with its value. Made by `topic_settings`."""

    __slots__ = ("broker", "overrides")

    def __init__(self, broker: Settings, overrides: Mapping[str, Value]) -> None:
        super().__init__(
            {
                name: overrides[name] if name in overrides else _inherited(broker, setting)
                for name, setting in TOPIC.items()
            }
        )
        self.broker = broker
        self.overrides = MappingProxyType(dict(overrides))

    def synonyms(self, name: str) -> tuple[Entry, ...]:
        """All places where the value could come from, the one that counts first."""
        setting = TOPIC[name]
        own: tuple[Entry, ...] = ()
        if name in self.overrides:
            own = (Entry(name=name, value=self.overrides[name], source="DYNAMIC_TOPIC_CONFIG"),)
        inherited = self.broker.entries(synonym.name for synonym in setting.synonyms)
        if not setting.synonyms:
            inherited = (Entry(name=name, value=setting.default, source="DEFAULT_CONFIG"),)
        return own + inherited

    def source(self, name: str) -> Source:
        """Who set the value that counts."""
        if name in self.overrides:
            return "DYNAMIC_TOPIC_CONFIG"
        counting = _counting_synonym(self.broker, TOPIC[name])
        return "DEFAULT_CONFIG" if counting is None else self.broker.source(counting)


def topic_settings(settings: Settings, overrides: Mapping[str, Value]) -> TopicSettings:
    """A topic's effective settings; `overrides` are its own, as text or with their type."""
    own = {name: find_topic_setting(name).accept(value) for name, value in overrides.items()}
    topic = TopicSettings(settings, own)
    least, most = topic.whole("min.compaction.lag.ms"), topic.whole("max.compaction.lag.ms")
    if least > most:
        raise BadValue(
            f"min.compaction.lag.ms={least}: must be at most max.compaction.lag.ms={most}"
        )
    return topic


def _counting_synonym(broker: Settings, setting: Setting) -> str | None:
    return next(
        (synonym.name for synonym in setting.synonyms if broker[synonym.name] is not None), None
    )


def _inherited(broker: Settings, setting: Setting) -> Value:
    for synonym in setting.synonyms:
        value = broker[synonym.name]
        if value is not None:
            return synonym.convert(value)
    return setting.default
