"""The settings of a topic, each with the broker settings it falls back to, in order.

A topic setting's default is what Kafka documents for the topic; the chain of synonyms ends
in a broker setting whose default is the same value, in its own unit.
"""

from dataclasses import replace
from typing import Final

from tidelog.base.settings.kinds import (
    LONG_MAX,
    Bound,
    Setting,
    Synonym,
    Value,
    at_least,
    between,
    matching,
    one_of,
    some_of,
    table,
)
from tidelog.base.settings.no_effect import marked

_MINUTE_MS: Final = 60 * 1000
_HOUR_MS: Final = 60 * _MINUTE_MS
_DAY_MS: Final = 24 * _HOUR_MS

SMALLEST_SEGMENT: Final = 14
CODECS: Final = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
CLEANUP_POLICIES: Final = ("compact", "delete")
TIMESTAMP_TYPES: Final = ("CreateTime", "LogAppendTime")


def _is_gzip_level(value: Value) -> bool:
    return isinstance(value, int) and (value == -1 or 1 <= value <= 9)


def _is_throttle_list(value: Value) -> bool:
    assert isinstance(value, tuple)
    pairs = matching(r"([0-9]+:[0-9]+)?", "")
    return value == ("*",) or pairs.allows(value)


GZIP_LEVEL: Final = Bound(allows=_is_gzip_level, words="between 1 and 9, or -1 for the default")
LZ4_LEVEL: Final = between(1, 17)
ZSTD_LEVEL: Final = between(-131072, 22)
THROTTLE_LIST: Final = Bound(
    allows=_is_throttle_list, words="* or a list of partition:broker such as 0:101,1:102"
)


def _falls_back_to(*names: str) -> tuple[Synonym, ...]:
    return tuple(Synonym(name=name) for name in names)


_SEGMENTS: Final = (
    Setting(
        name="segment.bytes",
        kind="int",
        default=1 << 30,
        bound=at_least(SMALLEST_SEGMENT),
        doc="A segment that would grow past this many bytes is closed and a new one begun.",
        synonyms=_falls_back_to("log.segment.bytes"),
    ),
    Setting(
        name="segment.ms",
        kind="long",
        default=7 * _DAY_MS,
        bound=at_least(1),
        doc="A segment older than this is closed even if it is not full, so that it can age out.",
        synonyms=(
            Synonym(name="log.roll.ms"),
            Synonym(name="log.roll.hours", factor=_HOUR_MS),
        ),
    ),
    Setting(
        name="segment.jitter.ms",
        kind="long",
        default=0,
        bound=at_least(0),
        doc=(
            "Up to this much is taken off segment.ms at random, so that segments do not all "
            "roll at once."
        ),
        synonyms=(
            Synonym(name="log.roll.jitter.ms"),
            Synonym(name="log.roll.jitter.hours", factor=_HOUR_MS),
        ),
    ),
    Setting(
        name="segment.index.bytes",
        kind="int",
        default=10 << 20,
        bound=at_least(4),
        doc="The largest size of a segment's offset index; a full index closes the segment.",
        synonyms=_falls_back_to("log.index.size.max.bytes"),
    ),
    Setting(
        name="index.interval.bytes",
        kind="int",
        default=4096,
        bound=at_least(0),
        doc=(
            "About one index entry is kept for this many bytes of log. Fewer entries mean "
            "longer scans."
        ),
        synonyms=_falls_back_to("log.index.interval.bytes"),
    ),
    Setting(
        name="preallocate",
        kind="boolean",
        default=False,
        doc="Whether room for a whole segment is reserved on disk when it is begun.",
        synonyms=_falls_back_to("log.preallocate"),
    ),
    Setting(
        name="file.delete.delay.ms",
        kind="long",
        default=60 * 1000,
        bound=at_least(0),
        doc="How long a removed segment stays on disk as .deleted before its files go.",
        synonyms=_falls_back_to("log.segment.delete.delay.ms"),
    ),
)

_KEEPING: Final = (
    Setting(
        name="retention.ms",
        kind="long",
        default=7 * _DAY_MS,
        bound=at_least(-1),
        doc=(
            "Segments whose newest record is older than this are removed. -1 keeps them for ever."
        ),
        synonyms=(
            Synonym(name="log.retention.ms"),
            Synonym(name="log.retention.minutes", factor=_MINUTE_MS),
            Synonym(name="log.retention.hours", factor=_HOUR_MS),
        ),
    ),
    Setting(
        name="retention.bytes",
        kind="long",
        default=-1,
        doc=(
            "The oldest segments of a partition are removed while it is larger than this. -1 is "
            "no limit."
        ),
        synonyms=_falls_back_to("log.retention.bytes"),
    ),
    Setting(
        name="cleanup.policy",
        kind="list",
        default=("delete",),
        bound=some_of(*CLEANUP_POLICIES),
        doc=(
            "delete removes old segments, compact keeps the last record of each key; both may "
            "be given."
        ),
        synonyms=_falls_back_to("log.cleanup.policy"),
    ),
    Setting(
        name="min.cleanable.dirty.ratio",
        kind="double",
        default=0.5,
        bound=between(0, 1),
        doc="A log is compacted when at least this share of it was written since the last time.",
        synonyms=_falls_back_to("log.cleaner.min.cleanable.ratio"),
    ),
    Setting(
        name="min.compaction.lag.ms",
        kind="long",
        default=0,
        bound=at_least(0),
        doc="A record younger than this is not compacted away.",
        synonyms=_falls_back_to("log.cleaner.min.compaction.lag.ms"),
    ),
    Setting(
        name="max.compaction.lag.ms",
        kind="long",
        default=LONG_MAX,
        bound=at_least(1),
        doc=(
            "A log with an uncompacted record older than this is compacted whatever its dirty "
            "ratio."
        ),
        synonyms=_falls_back_to("log.cleaner.max.compaction.lag.ms"),
    ),
    Setting(
        name="delete.retention.ms",
        kind="long",
        default=_DAY_MS,
        bound=at_least(0),
        doc=(
            "How long compaction leaves tombstones in place, so that slow readers still see the "
            "deletion."
        ),
        synonyms=_falls_back_to("log.cleaner.delete.retention.ms"),
    ),
)

_WRITING: Final = (
    Setting(
        name="max.message.bytes",
        kind="int",
        default=(1 << 20) + 12,
        bound=at_least(0),
        doc="The largest record batch that is accepted, compressed as it is and with its header.",
        synonyms=_falls_back_to("message.max.bytes"),
    ),
    Setting(
        name="flush.messages",
        kind="long",
        default=LONG_MAX,
        bound=at_least(1),
        doc="The log is fsynced after this many records. By default the system decides when.",
        synonyms=_falls_back_to("log.flush.interval.messages"),
    ),
    Setting(
        name="flush.ms",
        kind="long",
        default=LONG_MAX,
        bound=at_least(0),
        doc="The log is fsynced when its oldest unsynced record has waited this long.",
        synonyms=_falls_back_to("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
    ),
    Setting(
        name="compression.type",
        kind="string",
        default="producer",
        bound=one_of(*CODECS),
        doc="The codec batches are stored with; producer keeps them as they were sent.",
        synonyms=_falls_back_to("compression.type"),
    ),
    Setting(
        name="compression.gzip.level",
        kind="int",
        default=-1,
        bound=GZIP_LEVEL,
        doc="How hard gzip works when compression.type is gzip.",
        synonyms=_falls_back_to("compression.gzip.level"),
    ),
    Setting(
        name="compression.lz4.level",
        kind="int",
        default=9,
        bound=LZ4_LEVEL,
        doc="How hard lz4 works when compression.type is lz4.",
        synonyms=_falls_back_to("compression.lz4.level"),
    ),
    Setting(
        name="compression.zstd.level",
        kind="int",
        default=3,
        bound=ZSTD_LEVEL,
        doc="How hard zstd works when compression.type is zstd.",
        synonyms=_falls_back_to("compression.zstd.level"),
    ),
    Setting(
        name="message.timestamp.type",
        kind="string",
        default="CreateTime",
        bound=one_of(*TIMESTAMP_TYPES),
        doc="Whether a record keeps its producer's timestamp or gets the broker's at append.",
        synonyms=_falls_back_to("log.message.timestamp.type"),
    ),
    Setting(
        name="message.timestamp.before.max.ms",
        kind="long",
        default=LONG_MAX,
        bound=at_least(0),
        doc="A record stamped further in the past than this is refused. Not for LogAppendTime.",
        synonyms=_falls_back_to("log.message.timestamp.before.max.ms"),
    ),
    Setting(
        name="message.timestamp.after.max.ms",
        kind="long",
        default=LONG_MAX,
        bound=at_least(0),
        doc="A record stamped further in the future than this is refused. Not for LogAppendTime.",
        synonyms=_falls_back_to("log.message.timestamp.after.max.ms"),
    ),
    Setting(
        name="message.timestamp.difference.max.ms",
        kind="long",
        default=LONG_MAX,
        bound=at_least(0),
        doc=(
            "The older form of both limits; it counts where the newer one is left at its default."
        ),
        synonyms=_falls_back_to("log.message.timestamp.difference.max.ms"),
    ),
)

_REPLICATING: Final = (
    Setting(
        name="min.insync.replicas",
        kind="int",
        default=1,
        bound=at_least(1),
        doc=(
            "With acks=all a write needs at least this many replicas in sync, else it is refused."
        ),
        synonyms=_falls_back_to("min.insync.replicas"),
    ),
    Setting(
        name="unclean.leader.election.enable",
        kind="boolean",
        default=False,
        doc=(
            "Whether a replica outside the ISR may lead when nothing else is left. It may lose "
            "records."
        ),
        synonyms=_falls_back_to("unclean.leader.election.enable"),
    ),
    Setting(
        name="leader.replication.throttled.replicas",
        kind="list",
        default=(),
        bound=THROTTLE_LIST,
        doc="The replicas whose sending is held to leader.replication.throttled.rate.",
    ),
    Setting(
        name="follower.replication.throttled.replicas",
        kind="list",
        default=(),
        bound=THROTTLE_LIST,
        doc="The replicas whose fetching is held to follower.replication.throttled.rate.",
    ),
)

TOPIC: Final = table(
    replace(row, mode="per-topic")
    for row in marked((*_SEGMENTS, *_KEEPING, *_WRITING, *_REPLICATING))
)
