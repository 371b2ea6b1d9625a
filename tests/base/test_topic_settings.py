"""A topic's effective settings (O2): its own, else the broker's, else the default."""

import dataclasses

import pytest

from tidelog.base.errors import BadValue
from tidelog.base.log_settings import LogSettings
from tidelog.base.settings import TOPIC, Entry, Settings, Value, topic_settings

HOUR_MS = 3_600_000
NAMES_OF_LOG_SETTINGS = {
    "segment_bytes": "segment.bytes",
    "segment_ms": "segment.ms",
    "segment_jitter_ms": "segment.jitter.ms",
    "index_interval_bytes": "index.interval.bytes",
    "index_bytes_max": "segment.index.bytes",
    "retention_ms": "retention.ms",
    "retention_bytes": "retention.bytes",
    "flush_messages": "flush.messages",
    "flush_ms": "flush.ms",
    "max_message_bytes": "max.message.bytes",
    "min_cleanable_ratio": "min.cleanable.dirty.ratio",
    "min_compaction_lag_ms": "min.compaction.lag.ms",
    "max_compaction_lag_ms": "max.compaction.lag.ms",
    "delete_retention_ms": "delete.retention.ms",
    "file_delete_delay_ms": "file.delete.delay.ms",
    "timestamp_before_max_ms": "message.timestamp.before.max.ms",
    "timestamp_after_max_ms": "message.timestamp.after.max.ms",
    "compression_type": "compression.type",
}


def test_without_any_setting_a_topic_has_the_tables_defaults() -> None:
    topic = topic_settings(Settings.of({}), {})
    assert dict(topic) == {name: setting.default for name, setting in TOPIC.items()}


@pytest.mark.parametrize(
    ("broker", "name", "value"),
    [
        ({"log.retention.hours": 1}, "retention.ms", HOUR_MS),
        ({"log.retention.hours": 1, "log.retention.minutes": 2}, "retention.ms", 120_000),
        ({"log.retention.minutes": 2, "log.retention.ms": 3}, "retention.ms", 3),
        ({"log.retention.hours": -1}, "retention.ms", -1),
        ({"log.retention.minutes": -1}, "retention.ms", -1),
        ({"log.retention.ms": -1, "log.retention.hours": 5}, "retention.ms", -1),
        ({"log.roll.hours": 2}, "segment.ms", 2 * HOUR_MS),
        ({"log.roll.hours": 2, "log.roll.ms": 7}, "segment.ms", 7),
        ({"log.roll.jitter.hours": 1}, "segment.jitter.ms", HOUR_MS),
        ({"log.roll.jitter.hours": 1, "log.roll.jitter.ms": 0}, "segment.jitter.ms", 0),
        ({"log.flush.scheduler.interval.ms": 9}, "flush.ms", 9),
        ({"log.flush.scheduler.interval.ms": 9, "log.flush.interval.ms": 4}, "flush.ms", 4),
        ({"message.max.bytes": 1234}, "max.message.bytes", 1234),
        ({"log.cleaner.min.cleanable.ratio": 0.2}, "min.cleanable.dirty.ratio", 0.2),
        ({"log.index.size.max.bytes": 80}, "segment.index.bytes", 80),
        ({"log.retention.hours": 2147483647}, "retention.ms", 2147483647 * HOUR_MS),
    ],
)
def test_a_topic_inherits_from_its_broker_in_kafkas_order(
    broker: dict[str, Value], name: str, value: Value
) -> None:
    assert topic_settings(Settings.of(broker), {})[name] == value


def test_a_topics_own_setting_wins() -> None:
    topic = topic_settings(Settings.of({"log.retention.ms": 3}), {"retention.ms": "0"})
    assert topic["retention.ms"] == 0
    assert topic.source("retention.ms") == "DYNAMIC_TOPIC_CONFIG"


def test_synonyms_tell_every_place_a_value_stands_the_one_that_counts_first() -> None:
    broker = (
        Settings.of({"log.retention.minutes": 5, "log.retention.ms": 6})
        .with_changes({"log.retention.ms": 7}, cluster_wide=True)
        .with_changes({"log.retention.ms": 8})
    )
    topic = topic_settings(broker, {"retention.ms": 9})
    assert topic.synonyms("retention.ms") == (
        Entry(name="retention.ms", value=9, source="DYNAMIC_TOPIC_CONFIG"),
        Entry(name="log.retention.ms", value=8, source="DYNAMIC_BROKER_CONFIG"),
        Entry(name="log.retention.ms", value=7, source="DYNAMIC_DEFAULT_BROKER_CONFIG"),
        Entry(name="log.retention.ms", value=6, source="STATIC_BROKER_CONFIG"),
        Entry(name="log.retention.minutes", value=5, source="STATIC_BROKER_CONFIG"),
        Entry(name="log.retention.hours", value=168, source="DEFAULT_CONFIG"),
    )


def test_a_setting_that_only_topics_have_is_its_own_synonym() -> None:
    topic = topic_settings(Settings.of({}), {})
    name = "leader.replication.throttled.replicas"
    assert topic.synonyms(name) == (Entry(name=name, value=(), source="DEFAULT_CONFIG"),)
    assert topic.source(name) == "DEFAULT_CONFIG"


@pytest.mark.parametrize(
    ("broker", "source"),
    [
        ({}, "DEFAULT_CONFIG"),
        ({"log.retention.hours": 1}, "STATIC_BROKER_CONFIG"),
        ({"log.retention.ms": 1}, "STATIC_BROKER_CONFIG"),
    ],
)
def test_the_source_is_that_of_the_broker_setting_that_counts(
    broker: dict[str, Value], source: str
) -> None:
    assert topic_settings(Settings.of(broker), {}).source("retention.ms") == source


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"retention.ms": "-2"}, "retention.ms=-2: must be at least -1"),
        ({"segment.bytes": 13}, "segment.bytes=13: must be at least 14"),
        ({"segment.ms": 0}, "segment.ms=0: must be at least 1"),
        ({"cleanup.policy": "compress"}, "must be a comma-separated list of compact, delete"),
        ({"min.insync.replicas": 0}, "min.insync.replicas=0: must be at least 1"),
        ({"log.segment.bytes": 20}, "of topics it is segment.bytes"),
        (
            {"min.compaction.lag.ms": 2, "max.compaction.lag.ms": 1},
            "min.compaction.lag.ms=2: must be at most max.compaction.lag.ms=1",
        ),
    ],
)
def test_o2_a_bad_topic_setting_is_refused_by_name(
    overrides: dict[str, Value], message: str
) -> None:
    with pytest.raises(BadValue) as refusal:
        topic_settings(Settings.of({}), overrides)
    assert message in str(refusal.value)


def test_compaction_lags_are_checked_against_the_inherited_one_too() -> None:
    broker = Settings.of({"log.cleaner.max.compaction.lag.ms": 10})
    with pytest.raises(BadValue, match=r"at most max\.compaction\.lag\.ms=10"):
        topic_settings(broker, {"min.compaction.lag.ms": 11})


def test_log_settings_without_arguments_are_the_tables_defaults() -> None:
    assert LogSettings() == LogSettings.from_topic(topic_settings(Settings.of({}), {}))
    for attribute, name in NAMES_OF_LOG_SETTINGS.items():
        assert getattr(LogSettings(), attribute) == TOPIC[name].default


def test_log_settings_take_values_below_kafkas_bounds_for_tests() -> None:
    assert LogSettings(segment_bytes=1).segment_bytes == 1


def test_every_log_setting_follows_its_topic_setting() -> None:
    """Each attribute changes with its own setting and with no other."""
    changed: dict[str, Value] = {
        "compression.type": "snappy",
        "min.cleanable.dirty.ratio": 0.25,
    }
    for attribute, name in NAMES_OF_LOG_SETTINGS.items():
        value = changed.get(name, 77)
        made = LogSettings.from_topic(topic_settings(Settings.of({}), {name: value}))
        assert dataclasses.asdict(made) == dataclasses.asdict(LogSettings()) | {attribute: value}


@pytest.mark.parametrize(
    ("policy", "compact", "delete"),
    [
        ("delete", False, True),
        ("compact", True, False),
        ("compact,delete", True, True),
        ("", False, False),
    ],
)
def test_s6_cleanup_policies_become_two_flags(policy: str, compact: bool, delete: bool) -> None:
    made = LogSettings.from_topic(topic_settings(Settings.of({}), {"cleanup.policy": policy}))
    assert (made.cleanup_compact, made.cleanup_delete) == (compact, delete)


def test_the_older_timestamp_limit_counts_where_the_newer_is_not_set() -> None:
    overrides: dict[str, Value] = {
        "message.timestamp.difference.max.ms": 5,
        "message.timestamp.after.max.ms": 3,
        "message.timestamp.type": "LogAppendTime",
    }
    made = LogSettings.from_topic(topic_settings(Settings.of({}), overrides))
    assert (made.timestamp_before_max_ms, made.timestamp_after_max_ms) == (5, 3)
    assert made.timestamp_type_log_append


def test_a3_producers_expire_as_the_broker_says() -> None:
    broker = Settings.of({}).with_changes({"producer.id.expiration.ms": 42}, cluster_wide=True)
    assert LogSettings.from_topic(topic_settings(broker, {})).producer_id_expiration_ms == 42
