"""What DescribeConfigs shows: values, sources, synonyms, types and what they mean."""

import pytest

from support.members import Cluster
from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.base.settings import BROKER, TOPIC, Settings
from tidelog.cluster.config_view import (
    ConfigView,
    SynonymView,
    describe_broker,
    describe_new_topic,
    describe_topic,
)
from tidelog.cluster.effective import (
    effective_broker_settings,
    effective_log_settings,
    effective_topic_settings,
)
from tidelog.cluster.image import Image, TopicInfo
from tidelog.cluster.requests import NewTopic


def image_with(**config: str) -> Image:
    image = Image()
    named = {name.replace("_", "."): value for name, value in config.items()}
    image.put_topic(TopicInfo(name="t", topic_id=b"t" * 16, partitions=(), config=named))
    return image


def one(views: list[ConfigView]) -> ConfigView:
    (view,) = views
    return view


def synonyms(view: ConfigView) -> list[tuple[str, str | None, int]]:
    return [(synonym.name, synonym.value, synonym.source) for synonym in view.synonyms]


def test_a_topic_shows_every_setting_once() -> None:
    views = describe_topic(image_with(), Settings.of({}), "t")
    assert [view.name for view in views] == list(TOPIC)
    assert all(view.documentation and not view.read_only for view in views)


def test_a_topics_own_setting_comes_before_what_it_falls_back_to() -> None:
    settings = effective_broker_settings(
        Settings.of({"log.retention.ms": "4", "log.retention.hours": "9"}),
        {"log.retention.ms": "3"},
        {"log.retention.ms": "2"},
    )
    view = one(describe_topic(image_with(retention_ms="1"), settings, "t", ["retention.ms"]))
    assert (view.value, view.source, view.config_type, view.is_default) == ("1", 1, 5, False)
    assert synonyms(view) == [
        ("retention.ms", "1", 1),
        ("log.retention.ms", "2", 2),
        ("log.retention.ms", "3", 3),
        ("log.retention.ms", "4", 4),
        ("log.retention.hours", "9", 4),
        ("log.retention.hours", "168", 5),
    ]


def test_a_topic_without_its_own_setting_has_the_brokers_in_its_unit() -> None:
    settings = Settings.of({"log.retention.minutes": "2"})
    view = one(describe_topic(image_with(), settings, "t", ["retention.ms"]))
    assert (view.value, view.source) == ("120000", 4)


def test_a_setting_that_nobody_set_is_the_default() -> None:
    view = one(describe_topic(image_with(), Settings.of({}), "t", ["cleanup.policy"]))
    assert (view.value, view.source, view.config_type) == ("delete", 5, 7)
    assert view.is_default
    assert view.synonyms == (SynonymView(name="log.cleanup.policy", value="delete", source=5),)


@pytest.mark.parametrize(
    ("topic", "code"),
    [("u", ErrorCode.unknown_topic_or_partition), ("a/b", ErrorCode.invalid_topic_exception)],
)
def test_a_topic_that_is_not_there_has_no_settings(topic: str, code: ErrorCode) -> None:
    with pytest.raises(KafkaError) as refusal:
        describe_topic(image_with(), Settings.of({}), topic)
    assert refusal.value.code is code


def test_a_broker_shows_every_setting_once() -> None:
    views = describe_broker(Settings.of({}), 3, "3")
    assert [view.name for view in views] == list(BROKER)


def test_a_broker_shows_who_set_what() -> None:
    settings = effective_broker_settings(
        Settings.of({"log.segment.bytes": "1000", "log.dirs": "/d"}),
        {"log.segment.bytes": "1001"},
        {},
    )
    view = one(describe_broker(settings, 3, "3", ["log.segment.bytes"]))
    assert (view.value, view.source, view.read_only) == ("1001", 3, False)
    assert [source for _, _, source in synonyms(view)] == [3, 4, 5]
    fixed = one(describe_broker(settings, 3, "3", ["log.dirs"]))
    assert (fixed.value, fixed.source, fixed.read_only) == ("/d", 4, True)


def test_a_setting_of_a_broker_shows_those_that_count_where_it_is_not_set() -> None:
    settings = Settings.of({"log.retention.ms": "5"})
    view = one(describe_broker(settings, 3, "3", ["log.retention.ms"]))
    assert synonyms(view) == [("log.retention.ms", "5", 4), ("log.retention.hours", "168", 5)]
    unset = one(describe_broker(Settings.of({}), 3, "3", ["log.retention.ms"]))
    assert (unset.value, unset.source, unset.synonyms) == (None, 5, ())


def test_passwords_are_never_shown() -> None:
    """Not even one that somebody could set."""
    defaults = {name: setting.default for name, setting in BROKER.items()}
    secret = {"ssl.keystore.password": "s3cret"}
    settings = Settings({"STATIC_BROKER_CONFIG": secret, "DEFAULT_CONFIG": defaults})
    view = one(describe_broker(settings, 3, "3", ["ssl.keystore.password"]))
    assert (view.value, view.is_sensitive, view.config_type) == (None, True, 9)
    assert "s3cret" not in repr(describe_broker(settings, 3, "3"))


def test_a_setting_that_has_no_effect_says_so() -> None:
    """O2"""
    settings = Settings.of({"num.io.threads": "4"})
    view = one(describe_broker(settings, 3, "3", ["num.io.threads"]))
    assert (view.value, view.read_only) == ("4", True)
    assert "has no effect: one event loop" in view.documentation


def test_settings_of_one_listener_are_shown_too() -> None:
    name = "listener.name.plaintext.max.connections"
    view = one(describe_broker(Settings.of({name: "7"}), 3, "3", [name]))
    assert (view.name, view.value, view.source) == (name, "7", 4)


def test_the_default_of_all_brokers_shows_what_was_changed_for_all() -> None:
    static = Settings.of({"log.segment.bytes": "1000"})
    settings = effective_broker_settings(
        static, {"log.segment.bytes": "1001"}, {"log.segment.bytes": "1002"}
    )
    view = one(describe_broker(settings, 3, ""))
    assert (view.name, view.value, view.source) == ("log.segment.bytes", "1001", 3)
    assert synonyms(view) == [("log.segment.bytes", "1001", 3)]


@pytest.mark.parametrize("name", ["4", "x", "-1", "³", "9" * 5000])
def test_another_broker_is_asked_itself(name: str) -> None:
    with pytest.raises(KafkaError) as refusal:
        describe_broker(Settings.of({}), 3, name)
    assert refusal.value.code is ErrorCode.invalid_request


def test_a_new_topic_is_described_before_it_is_there() -> None:
    member = Cluster().started()
    new = NewTopic(name="t", configs={"retention.ms": "5"})
    (topic,) = member.create(new, validate_only=True)
    assert isinstance(topic, TopicInfo)
    view = one(describe_new_topic(member.metadata.settings, topic, ["retention.ms"]))
    assert (view.value, view.source) == ("5", 1)


def test_logs_are_made_with_what_counts_for_their_topic() -> None:
    image = image_with(retention_ms="5", cleanup_policy="compact")
    settings = Settings.of({"log.segment.bytes": "1000"})
    log = effective_log_settings(image, settings, "t")
    assert (log.retention_ms, log.segment_bytes, log.cleanup_compact) == (5, 1000, True)
    assert effective_log_settings(image, settings, "unknown").retention_ms == 604_800_000


def test_settings_that_cannot_be_used_are_left_out_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Z15: another version's setting does not keep a broker from working."""
    image = image_with(retention_ms="soon", segment_ms="7", message_format_version="2.0")
    found = effective_topic_settings(image, Settings.of({}), "t")
    assert (found["segment.ms"], found["retention.ms"]) == (7, 604_800_000)
    assert "retention.ms=soon" in caplog.text
    changes = {"log.segment.bytes": "x", "no.such": "1", "log.dirs": "/x", "log.retention.ms": "9"}
    settings = effective_broker_settings(Settings.of({}), changes, changes)
    assert settings["log.retention.ms"] == 9
    assert settings["log.segment.bytes"] == 1 << 30
    assert "no.such" in caplog.text


@pytest.mark.parametrize(
    ("own", "least", "most"),
    [
        ({"min_compaction_lag_ms": "20"}, 20, 10),
        ({"min_compaction_lag_ms": "20", "max_compaction_lag_ms": "30"}, 20, 30),
        ({"max_compaction_lag_ms": "1"}, 2, 1),
    ],
)
def test_a_topic_keeps_its_own_compaction_lag_when_its_broker_gets_another(
    own: dict[str, str], least: int, most: int
) -> None:
    """S6: what nobody may compact yet stays, also where the topic would not be made like that."""
    settings = Settings.of(
        {"log.cleaner.min.compaction.lag.ms": "2", "log.cleaner.max.compaction.lag.ms": "10"}
    )
    found = effective_log_settings(image_with(**own, retention_ms="soon"), settings, "t")
    assert (found.min_compaction_lag_ms, found.max_compaction_lag_ms) == (least, most)
