"""The settings of one partition's log as plain attributes, for the log engine's hot path.

`LogSettings.from_topic` makes one out of a topic's effective settings; the defaults are the
table's own. Bounds are the table's business: a test may build a log with segments of 200
bytes. -1 means no limit for both kinds of retention.
"""

from dataclasses import dataclass
from typing import Final

from tidelog.base.settings.kinds import LONG_MAX, table
from tidelog.base.settings.topic import TOPIC
from tidelog.base.settings.topic_values import TopicSettings
from tidelog.base.settings.transactions import TRANSACTIONS

_DEFAULTS = TOPIC | table(row for row in TRANSACTIONS if row.name == "producer.id.expiration.ms")
_LEVELS: Final = {
    "gzip": "compression.gzip.level",
    "lz4": "compression.lz4.level",
    "zstd": "compression.zstd.level",
}
_GZIP_DEFAULT: Final = -1


def _whole(name: str) -> int:
    default = _DEFAULTS[name].default
    assert isinstance(default, int)
    return default


def _decimal(name: str) -> float:
    default = _DEFAULTS[name].default
    assert isinstance(default, float)
    return default


def _text(name: str) -> str:
    default = _DEFAULTS[name].default
    assert isinstance(default, str)
    return default


def _items(name: str) -> tuple[str, ...]:
    default = _DEFAULTS[name].default
    assert isinstance(default, tuple)
    return default


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings:
    segment_bytes: int = _whole("segment.bytes")
    segment_ms: int = _whole("segment.ms")
    segment_jitter_ms: int = _whole("segment.jitter.ms")
    index_interval_bytes: int = _whole("index.interval.bytes")
    index_bytes_max: int = _whole("segment.index.bytes")
    retention_ms: int = _whole("retention.ms")
    retention_bytes: int = _whole("retention.bytes")
    flush_messages: int = _whole("flush.messages")
    flush_ms: int = _whole("flush.ms")
    max_message_bytes: int = _whole("max.message.bytes")
    cleanup_compact: bool = "compact" in _items("cleanup.policy")
    cleanup_delete: bool = "delete" in _items("cleanup.policy")
    min_cleanable_ratio: float = _decimal("min.cleanable.dirty.ratio")
    min_compaction_lag_ms: int = _whole("min.compaction.lag.ms")
    max_compaction_lag_ms: int = _whole("max.compaction.lag.ms")
    delete_retention_ms: int = _whole("delete.retention.ms")
    file_delete_delay_ms: int = _whole("file.delete.delay.ms")
    timestamp_type_log_append: bool = _text("message.timestamp.type") == "LogAppendTime"
    timestamp_before_max_ms: int = _whole("message.timestamp.before.max.ms")
    timestamp_after_max_ms: int = _whole("message.timestamp.after.max.ms")
    producer_id_expiration_ms: int = _whole("producer.id.expiration.ms")
    compression_type: str = _text("compression.type")
    compression_level: int | None = None
    """Of that codec; None is the one it usually has."""
    min_insync_replicas: int = _whole("min.insync.replicas")
    """Of the partition rather than of its log, but it comes and changes with the others."""

    @classmethod
    def from_topic(cls, topic: TopicSettings) -> "LogSettings":
        """The settings of a topic's logs on this broker."""
        policies = topic.words("cleanup.policy")
        return cls(
            segment_bytes=topic.whole("segment.bytes"),
            segment_ms=topic.whole("segment.ms"),
            segment_jitter_ms=topic.whole("segment.jitter.ms"),
            index_interval_bytes=topic.whole("index.interval.bytes"),
            index_bytes_max=topic.whole("segment.index.bytes"),
            retention_ms=topic.whole("retention.ms"),
            retention_bytes=topic.whole("retention.bytes"),
            flush_messages=topic.whole("flush.messages"),
            flush_ms=topic.whole("flush.ms"),
            max_message_bytes=topic.whole("max.message.bytes"),
            cleanup_compact="compact" in policies,
            cleanup_delete="delete" in policies,
            min_cleanable_ratio=topic.decimal("min.cleanable.dirty.ratio"),
            min_compaction_lag_ms=topic.whole("min.compaction.lag.ms"),
            max_compaction_lag_ms=topic.whole("max.compaction.lag.ms"),
            delete_retention_ms=topic.whole("delete.retention.ms"),
            file_delete_delay_ms=topic.whole("file.delete.delay.ms"),
            timestamp_type_log_append=topic.text("message.timestamp.type") == "LogAppendTime",
            timestamp_before_max_ms=_timestamp_limit(topic, "message.timestamp.before.max.ms"),
            timestamp_after_max_ms=_timestamp_limit(topic, "message.timestamp.after.max.ms"),
            producer_id_expiration_ms=topic.broker.whole("producer.id.expiration.ms"),
            compression_type=topic.text("compression.type"),
            compression_level=_compression_level(topic),
            min_insync_replicas=topic.whole("min.insync.replicas"),
        )


def _compression_level(topic: TopicSettings) -> int | None:
    name = _LEVELS.get(topic.text("compression.type"))
    level = None if name is None else topic.whole(name)
    return None if level == _GZIP_DEFAULT and name == _LEVELS["gzip"] else level


def _timestamp_limit(topic: TopicSettings, name: str) -> int:
    """The older setting counts where the newer one was left unlimited, as Kafka 3.9 has it."""
    limit = topic.whole(name)
    return limit if limit != LONG_MAX else topic.whole("message.timestamp.difference.max.ms")
