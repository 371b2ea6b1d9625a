"""The broker settings of logs on disk: where they are, how they roll, age and flush.

Most of them are what a topic falls back to; `topic` says which, in which order.
"""

from typing import Final

from tidelog.base.settings.kinds import (
    LONG_MAX,
    Bound,
    Setting,
    at_least,
    one_of,
    some_of,
)
from tidelog.base.settings.topic import (
    CLEANUP_POLICIES,
    CODECS,
    GZIP_LEVEL,
    LZ4_LEVEL,
    SMALLEST_SEGMENT,
    TIMESTAMP_TYPES,
    ZSTD_LEVEL,
)

UNLIMITED_OR_POSITIVE: Final = Bound(
    allows=lambda value: isinstance(value, int) and (value == -1 or value >= 1),
    words="-1 for no limit, or at least 1",
)

_DIRS: Final = (
    Setting(
        name="log.dir",
        kind="string",
        default="/tmp/kafka-logs",
        doc="The folder that holds the log when log.dirs is not set.",
    ),
    Setting(
        name="log.dirs",
        kind="string",
        default=None,
        doc=(
            "The folders that hold the log, separated by commas; partitions are spread over "
            "them. Unset, log.dir is used."
        ),
    ),
    Setting(
        name="num.recovery.threads.per.data.dir",
        kind="int",
        default=1,
        bound=at_least(1),
        doc="How many logs of one log dir are recovered at the same time after an unclean stop.",
        mode="cluster-wide",
    ),
    Setting(
        name="log.flush.offset.checkpoint.interval.ms",
        kind="int",
        default=60_000,
        bound=at_least(0),
        doc="How often the recovery points, below which all is on disk, are written down.",
    ),
    Setting(
        name="log.flush.start.offset.checkpoint.interval.ms",
        kind="int",
        default=60_000,
        bound=at_least(0),
        doc="How often the log start offsets are written down.",
    ),
    Setting(
        name="log.initial.task.delay.ms",
        kind="long",
        default=30_000,
        bound=at_least(0),
        doc="How long after the start the background work on logs first runs.",
    ),
)

_SEGMENTS: Final = (
    Setting(
        name="log.segment.bytes",
        kind="int",
        default=1 << 30,
        bound=at_least(SMALLEST_SEGMENT),
        doc="The default of segment.bytes: how large a segment may grow.",
        mode="cluster-wide",
    ),
    Setting(
        name="log.roll.ms",
        kind="long",
        default=None,
        bound=at_least(1),
        doc=(
            "The default of segment.ms: how old a segment may grow. Unset, log.roll.hours counts."
        ),
        mode="cluster-wide",
    ),
    Setting(
        name="log.roll.hours",
        kind="int",
        default=168,
        bound=at_least(1),
        doc="How many hours old a segment may grow where log.roll.ms is not set.",
    ),
    Setting(
        name="log.roll.jitter.ms",
        kind="long",
        default=None,
        bound=at_least(0),
        doc="The default of segment.jitter.ms. Unset, log.roll.jitter.hours counts.",
        mode="cluster-wide",
    ),
    Setting(
        name="log.roll.jitter.hours",
        kind="int",
        default=0,
        bound=at_least(0),
        doc="The random share of the roll time in hours, where log.roll.jitter.ms is not set.",
    ),
    Setting(
        name="log.index.size.max.bytes",
        kind="int",
        default=10 << 20,
        bound=at_least(4),
        doc="The default of segment.index.bytes: how large an offset index may grow.",
        mode="cluster-wide",
    ),
    Setting(
        name="log.index.interval.bytes",
        kind="int",
        default=4096,
        bound=at_least(0),
        doc="The default of index.interval.bytes: bytes of log for one index entry.",
        mode="cluster-wide",
    ),
    Setting(
        name="log.preallocate",
        kind="boolean",
        default=False,
        doc="The default of preallocate: whether room for a whole segment is reserved at once.",
        mode="cluster-wide",
    ),
    Setting(
        name="log.segment.delete.delay.ms",
        kind="long",
        default=60_000,
        bound=at_least(0),
        doc="The default of file.delete.delay.ms: how long removed segments stay as .deleted.",
        mode="cluster-wide",
    ),
)

_RETENTION: Final = (
    Setting(
        name="log.retention.ms",
        kind="long",
        default=None,
        bound=UNLIMITED_OR_POSITIVE,
        doc="The default of retention.ms; -1 keeps all. Unset, log.retention.minutes counts.",
        mode="cluster-wide",
    ),
    Setting(
        name="log.retention.minutes",
        kind="int",
        default=None,
        bound=UNLIMITED_OR_POSITIVE,
        doc=(
            "Minutes that records are kept, where log.retention.ms is not set. Unset, "
            "log.retention.hours counts."
        ),
    ),
    Setting(
        name="log.retention.hours",
        kind="int",
        default=168,
        bound=UNLIMITED_OR_POSITIVE,
        doc=(
            "Hours that records are kept, where neither the milliseconds nor the minutes are set."
        ),
    ),
    Setting(
        name="log.retention.bytes",
        kind="long",
        default=-1,
        doc=(
            "The default of retention.bytes: the size above which old segments of a partition go."
        ),
        mode="cluster-wide",
    ),
    Setting(
        name="log.retention.check.interval.ms",
        kind="long",
        default=300_000,
        bound=at_least(1),
        doc="How often logs are looked through for segments that retention may remove.",
    ),
    Setting(
        name="log.cleanup.policy",
        kind="list",
        default=("delete",),
        bound=some_of(*CLEANUP_POLICIES),
        doc="The default of cleanup.policy: delete, compact or both.",
        mode="cluster-wide",
    ),
)

_FLUSHING: Final = (
    Setting(
        name="log.flush.interval.messages",
        kind="long",
        default=LONG_MAX,
        bound=at_least(1),
        doc="The default of flush.messages: records after which a log is fsynced.",
        mode="cluster-wide",
    ),
    Setting(
        name="log.flush.interval.ms",
        kind="long",
        default=None,
        bound=at_least(0),
        doc="The default of flush.ms. Unset, log.flush.scheduler.interval.ms counts.",
        mode="cluster-wide",
    ),
    Setting(
        name="log.flush.scheduler.interval.ms",
        kind="long",
        default=LONG_MAX,
        bound=at_least(0),
        doc="How often logs are looked through for records that have waited too long for fsync.",
    ),
)

_RECORDS: Final = (
    Setting(
        name="message.max.bytes",
        kind="int",
        default=(1 << 20) + 12,
        bound=at_least(0),
        doc="The default of max.message.bytes: the largest batch a topic takes.",
        mode="cluster-wide",
    ),
    Setting(
        name="compression.type",
        kind="string",
        default="producer",
        bound=one_of(*CODECS),
        doc="The codec of topics that name none; producer stores what was sent.",
        mode="cluster-wide",
    ),
    Setting(
        name="compression.gzip.level",
        kind="int",
        default=-1,
        bound=GZIP_LEVEL,
        doc="The gzip level of topics that name none.",
        mode="cluster-wide",
    ),
    Setting(
        name="compression.lz4.level",
        kind="int",
        default=9,
        bound=LZ4_LEVEL,
        doc="The lz4 level of topics that name none.",
        mode="cluster-wide",
    ),
    Setting(
        name="compression.zstd.level",
        kind="int",
        default=3,
        bound=ZSTD_LEVEL,
        doc="The zstd level of topics that name none.",
        mode="cluster-wide",
    ),
    Setting(
        name="log.message.timestamp.type",
        kind="string",
        default="CreateTime",
        bound=one_of(*TIMESTAMP_TYPES),
        doc="The default of message.timestamp.type: the producer's time or the broker's.",
        mode="cluster-wide",
    ),
    Setting(
        name="log.message.timestamp.before.max.ms",
        kind="long",
        default=LONG_MAX,
        bound=at_least(0),
        doc=(
            "The default of message.timestamp.before.max.ms: how far in the past a record may "
            "be stamped."
        ),
        mode="cluster-wide",
    ),
    Setting(
        name="log.message.timestamp.after.max.ms",
        kind="long",
        default=LONG_MAX,
        bound=at_least(0),
        doc=(
            "The default of message.timestamp.after.max.ms: how far in the future a record may "
            "be stamped."
        ),
        mode="cluster-wide",
    ),
    Setting(
        name="log.message.timestamp.difference.max.ms",
        kind="long",
        default=LONG_MAX,
        bound=at_least(0),
        doc="The default of message.timestamp.difference.max.ms, the older form of both limits.",
        mode="cluster-wide",
    ),
)

STORAGE: Final = (*_DIRS, *_SEGMENTS, *_RETENTION, *_FLUSHING, *_RECORDS)
