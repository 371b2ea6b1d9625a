"""What DescribeConfigs answers: every setting with its value, who set it, and what it means.

Sources and types are Kafka's numbers. The synonyms of a setting are all places where its value
could come from, the one that counts first. Values of passwords are never shown.
"""

from collections.abc import Collection
from dataclasses import dataclass
from itertools import dropwhile
from typing import Final

from tidelog.base.settings import (
    BROKER,
    TOPIC,
    Entry,
    Setting,
    Settings,
    Source,
    Value,
    find_broker_setting,
)
from tidelog.cluster.configs import broker_of
from tidelog.cluster.effective import usable_topic_settings
from tidelog.cluster.image import Image, TopicInfo
from tidelog.cluster.topic_names import check_name
from tidelog.cluster.topics import unknown_topic

SOURCES: Final[dict[Source, int]] = {
    "DYNAMIC_TOPIC_CONFIG": 1,
    "DYNAMIC_BROKER_CONFIG": 2,
    "DYNAMIC_DEFAULT_BROKER_CONFIG": 3,
    "STATIC_BROKER_CONFIG": 4,
    "DEFAULT_CONFIG": 5,
}
TYPES: Final = {
    "boolean": 1,
    "string": 2,
    "int": 3,
    "short": 4,
    "long": 5,
    "double": 6,
    "list": 7,
    "class": 8,
    "password": 9,
}
_CHAINS: Final = {
    setting.synonyms[0].name: tuple(synonym.name for synonym in setting.synonyms)
    for setting in TOPIC.values()
    if setting.synonyms
}
"""A broker setting, and those in other units that count where it is not set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SynonymView:
    name: str
    value: str | None
    source: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigView:
    name: str
    value: str | None
    source: int
    synonyms: tuple[SynonymView, ...]
    config_type: int
    documentation: str
    read_only: bool
    is_sensitive: bool

    @property
    def is_default(self) -> bool:
        """What the first versions of the protocol had in place of a source."""
        return self.source == SOURCES["DEFAULT_CONFIG"]


def describe_topic(
    image: Image, settings: Settings, topic: str, names: Collection[str] | None = None
) -> list[ConfigView]:
    """The settings of a topic, or those of them that are named; `settings` are the broker's,
    dynamic ones included: `Metadata.settings`."""
    check_name(topic)
    known = image.topics.get(topic)
    if known is None:
        raise unknown_topic(image, topic)
    return describe_new_topic(settings, known, names)


def describe_new_topic(
    settings: Settings, topic: TopicInfo, names: Collection[str] | None = None
) -> list[ConfigView]:
    """The same for a topic that is just made, or would be: CreateTopics answers with it."""
    found = usable_topic_settings(settings, topic.name, topic.config)
    return [
        _view(setting, found[name], found.source(name), found.synonyms(name))
        for name, setting in TOPIC.items()
        if names is None or name in names
    ]


def describe_broker(
    settings: Settings, broker_id: int, name: str, names: Collection[str] | None = None
) -> list[ConfigView]:
    """The settings of this broker, or with an empty name those that were changed for all."""
    wanted = [*BROKER, *(found for found in settings if found not in BROKER)]
    if names is not None:
        wanted = [found for found in wanted if found in names]
    if broker_of(name, broker_id) is not None:
        return [_broker_view(settings, found) for found in wanted]
    return [
        _view(find_broker_setting(found), entry.value, entry.source, (entry,))
        for found in wanted
        for entry in settings.entries([found])
        if entry.source == "DYNAMIC_DEFAULT_BROKER_CONFIG"
    ]


def _broker_view(settings: Settings, name: str) -> ConfigView:
    entries = settings.entries(_CHAINS.get(name, (name,)))
    synonyms = tuple(dropwhile(lambda entry: entry.name != name, entries))
    return _view(find_broker_setting(name), settings[name], settings.source(name), synonyms)


def _view(
    setting: Setting, value: Value, source: Source, synonyms: tuple[Entry, ...]
) -> ConfigView:
    return ConfigView(
        name=setting.name,
        value=_text(setting, value),
        source=SOURCES[source],
        synonyms=tuple(
            SynonymView(
                name=entry.name, value=_text(setting, entry.value), source=SOURCES[entry.source]
            )
            for entry in synonyms
        ),
        config_type=TYPES[setting.kind],
        documentation=setting.doc,
        read_only=setting.mode == "read-only",
        is_sensitive=setting.is_secret,
    )


def _text(setting: Setting, value: Value) -> str | None:
    return None if value is None or setting.is_secret else setting.format(value)
