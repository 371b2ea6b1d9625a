"""The broker settings of compaction: how much it may use, and the defaults of compacted topics."""

from typing import Final

from tidelog.base.settings.kinds import DOUBLE_MAX, LONG_MAX, Setting, at_least, between

CLEANER: Final = (
    Setting(
        name="log.cleaner.enable",
        kind="boolean",
        default=True,
        doc="Whether compacted topics are compacted at all. Off, they only grow.",
    ),
    Setting(
        name="log.cleaner.threads",
        kind="int",
        default=1,
        bound=at_least(0),
        doc="How many logs are compacted at the same time.",
        mode="cluster-wide",
    ),
    Setting(
        name="log.cleaner.io.max.bytes.per.second",
        kind="double",
        default=DOUBLE_MAX,
        doc="What compaction may read and write in a second, all together.",
        mode="cluster-wide",
    ),
    Setting(
        name="log.cleaner.dedupe.buffer.size",
        kind="long",
        default=128 << 20,
        doc="The memory for the maps of keys that compaction builds, over all cleaners.",
        mode="cluster-wide",
    ),
    Setting(
        name="log.cleaner.io.buffer.size",
        kind="int",
        default=512 << 10,
        bound=at_least(0),
        doc="The memory for compaction's read and write buffers, over all cleaners.",
        mode="cluster-wide",
    ),
    Setting(
        name="log.cleaner.io.buffer.load.factor",
        kind="double",
        default=0.9,
        doc="How full the map of keys may become before a pass of compaction ends.",
        mode="cluster-wide",
    ),
    Setting(
        name="log.cleaner.backoff.ms",
        kind="long",
        default=15_000,
        bound=at_least(0),
        doc="How long a cleaner that found nothing to do waits before it looks again.",
        mode="cluster-wide",
    ),
    Setting(
        name="log.cleaner.min.cleanable.ratio",
        kind="double",
        default=0.5,
        bound=between(0, 1),
        doc=(
            "The default of min.cleanable.dirty.ratio: the new share that makes a log worth "
            "compacting."
        ),
        mode="cluster-wide",
    ),
    Setting(
        name="log.cleaner.delete.retention.ms",
        kind="long",
        default=86_400_000,
        bound=at_least(0),
        doc="The default of delete.retention.ms: how long tombstones stay.",
        mode="cluster-wide",
    ),
    Setting(
        name="log.cleaner.min.compaction.lag.ms",
        kind="long",
        default=0,
        bound=at_least(0),
        doc=(
            "The default of min.compaction.lag.ms: the age before which a record is not "
            "compacted away."
        ),
        mode="cluster-wide",
    ),
    Setting(
        name="log.cleaner.max.compaction.lag.ms",
        kind="long",
        default=LONG_MAX,
        bound=at_least(1),
        doc=(
            "The default of max.compaction.lag.ms: the age at which a record must have been "
            "compacted."
        ),
        mode="cluster-wide",
    ),
)
