"""The settings that count: what the files say, with what was changed in the coordinator since.

Settings in the tree may be another version's or another hand's. One that this broker does not
know or cannot use is left out with a warning; it never keeps the broker from working.
"""

import logging
from collections.abc import Mapping

from tidelog.base.errors import BadValue
from tidelog.base.log_settings import LogSettings
from tidelog.base.settings import (
    Settings,
    TopicSettings,
    Value,
    find_topic_setting,
    topic_settings,
)
from tidelog.cluster.elections import TopicRules
from tidelog.cluster.image import Image, TopicInfo

_log = logging.getLogger(__name__)


def effective_broker_settings(
    static: Settings, of_all_brokers: Mapping[str, str], own: Mapping[str, str]
) -> Settings:
    """A broker's settings with the dynamic ones: its own count before those of all brokers."""
    changed = _with_usable_changes(static, of_all_brokers, cluster_wide=True)
    return _with_usable_changes(changed, own, cluster_wide=False)


def effective_topic_settings(image: Image, settings: Settings, topic: str) -> TopicSettings:
    """The settings of a topic on this broker; `settings` are the broker's, dynamic ones
    included. A topic that is not known has none of its own."""
    known = image.topics.get(topic)
    return usable_topic_settings(settings, topic, {} if known is None else known.config)


def effective_log_settings(image: Image, settings: Settings, topic: str) -> LogSettings:
    """The same for the log engine."""
    return LogSettings.from_topic(effective_topic_settings(image, settings, topic))


def usable_topic_settings(
    settings: Settings, topic: str, config: Mapping[str, str]
) -> TopicSettings:
    """A topic's settings without those that cannot be used. Its own count also where they do not go
    together with what its broker has got since: both compaction lags are obeyed then, first of all
    the one that nothing may be compacted before."""
    try:
        return topic_settings(settings, config)
    except BadValue:
        return TopicSettings(settings, _usable(topic, config))


def topic_rules(settings: Settings, topic: TopicInfo) -> TopicRules:
    """What elections in a topic go by."""
    found = usable_topic_settings(settings, topic.name, topic.config)
    return TopicRules(
        min_isr=found.whole("min.insync.replicas"),
        unclean=found.flag("unclean.leader.election.enable"),
    )


def _usable(topic: str, config: Mapping[str, str]) -> dict[str, Value]:
    usable: dict[str, Value] = {}
    for name, value in config.items():
        try:
            usable[name] = find_topic_setting(name).accept(value)
        except BadValue as error:
            _log.warning("the topic %s has a setting that is left out: %s", topic, error)
    return usable


def _with_usable_changes(
    settings: Settings, changes: Mapping[str, str], *, cluster_wide: bool
) -> Settings:
    if not changes:
        return settings
    try:
        return settings.with_changes(changes, cluster_wide=cluster_wide)
    except BadValue:
        _log.debug("looking for the settings among %s that cannot be used", sorted(changes))
    for name, value in changes.items():
        try:
            settings = settings.with_changes({name: value}, cluster_wide=cluster_wide)
        except BadValue as error:
            _log.warning("a setting in the coordinator is left out: %s", error)
    return settings
