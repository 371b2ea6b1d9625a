"""The broker settings of consumer groups and of the offsets they commit."""

from typing import Final

from tidelog.base.settings.kinds import INT_MAX, Setting, at_least, between, one_of, some_of

_CLASSIC: Final = (
    Setting(
        name="group.min.session.timeout.ms",
        kind="int",
        default=6000,
        doc="The shortest session timeout a group member may ask for.",
    ),
    Setting(
        name="group.max.session.timeout.ms",
        kind="int",
        default=1_800_000,
        doc="The longest session timeout a group member may ask for.",
    ),
    Setting(
        name="group.initial.rebalance.delay.ms",
        kind="int",
        default=3000,
        bound=at_least(0),
        doc="How long the first rebalance of an empty group waits for more members.",
    ),
    Setting(
        name="group.max.size",
        kind="int",
        default=INT_MAX,
        bound=at_least(1),
        doc="How many members a group may have.",
    ),
    Setting(
        name="group.coordinator.rebalance.protocols",
        kind="list",
        default=("classic", "consumer"),
        bound=some_of("classic", "consumer"),
        doc=(
            "The group protocols that are served. Kafka 3.9 leaves consumer off until it is "
            "asked for."
        ),
    ),
    Setting(
        name="group.coordinator.append.linger.ms",
        kind="int",
        default=10,
        bound=at_least(0),
        doc="How long the coordinator collects records before it writes them together.",
    ),
)

_CONSUMER: Final = (
    Setting(
        name="group.consumer.session.timeout.ms",
        kind="int",
        default=45_000,
        bound=at_least(1),
        doc="When a silent member of the newer protocol counts as gone.",
    ),
    Setting(
        name="group.consumer.min.session.timeout.ms",
        kind="int",
        default=45_000,
        bound=at_least(1),
        doc="The shortest session timeout that a group may be given.",
    ),
    Setting(
        name="group.consumer.max.session.timeout.ms",
        kind="int",
        default=60_000,
        bound=at_least(1),
        doc="The longest session timeout that a group may be given.",
    ),
    Setting(
        name="group.consumer.heartbeat.interval.ms",
        kind="int",
        default=5000,
        bound=at_least(1),
        doc="How often members of the newer protocol are told to send heartbeats.",
    ),
    Setting(
        name="group.consumer.min.heartbeat.interval.ms",
        kind="int",
        default=5000,
        bound=at_least(1),
        doc="The shortest heartbeat interval that a group may be given.",
    ),
    Setting(
        name="group.consumer.max.heartbeat.interval.ms",
        kind="int",
        default=15_000,
        bound=at_least(1),
        doc="The longest heartbeat interval that a group may be given.",
    ),
    Setting(
        name="group.consumer.max.size",
        kind="int",
        default=INT_MAX,
        bound=at_least(1),
        doc="How many members a group of the newer protocol may have.",
    ),
    Setting(
        name="group.consumer.assignors",
        kind="list",
        default=("uniform", "range"),
        bound=some_of("uniform", "range"),
        doc="The assignors of the newer protocol by name; the first is the default.",
    ),
    Setting(
        name="group.consumer.migration.policy",
        kind="string",
        default="bidirectional",
        bound=one_of("disabled", "upgrade", "downgrade", "bidirectional"),
        doc=(
            "Whether groups may change between the classic and the newer protocol while they run. "
            "Kafka 3.9 has it disabled."
        ),
    ),
)

_OFFSETS: Final = (
    Setting(
        name="offset.metadata.max.bytes",
        kind="int",
        default=4096,
        bound=at_least(0),
        doc="How much text may be stored with a committed offset.",
    ),
    Setting(
        name="offsets.load.buffer.size",
        kind="int",
        default=5 << 20,
        bound=at_least(1),
        doc="How much of __consumer_offsets is read at a time while a coordinator loads it.",
    ),
    Setting(
        name="offsets.retention.minutes",
        kind="int",
        default=10_080,
        bound=at_least(1),
        doc="How long the offsets of a group without members are kept.",
    ),
    Setting(
        name="offsets.retention.check.interval.ms",
        kind="long",
        default=600_000,
        bound=at_least(1),
        doc="How often offsets are looked through for those that have expired.",
    ),
    Setting(
        name="offsets.topic.num.partitions",
        kind="int",
        default=50,
        bound=at_least(1),
        doc="The partitions of __consumer_offsets. It cannot change once the topic exists.",
    ),
    Setting(
        name="offsets.topic.segment.bytes",
        kind="int",
        default=100 << 20,
        bound=at_least(1),
        doc=(
            "segment.bytes of __consumer_offsets: small segments are compacted and loaded sooner."
        ),
    ),
    Setting(
        name="offsets.topic.replication.factor",
        kind="short",
        default=3,
        bound=at_least(1),
        doc=(
            "The replicas of each partition of __consumer_offsets. A single node uses 1 if this "
            "is not set."
        ),
    ),
    Setting(
        name="offsets.topic.min.isr",
        kind="int",
        default=None,
        bound=at_least(1),
        doc=(
            "min.insync.replicas of __consumer_offsets; unset, as of any topic. It is tidelog's "
            "own: Kafka has one for __transaction_state only."
        ),
    ),
    Setting(
        name="offsets.topic.compression.codec",
        kind="int",
        default=0,
        bound=between(0, 4),
        doc="The codec of __consumer_offsets by number: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.",
    ),
    Setting(
        name="offsets.commit.timeout.ms",
        kind="int",
        default=5000,
        bound=at_least(1),
        doc="How long a commit waits for the replicas before the client gets an error.",
    ),
)

GROUPS: Final = (*_CLASSIC, *_CONSUMER, *_OFFSETS)
