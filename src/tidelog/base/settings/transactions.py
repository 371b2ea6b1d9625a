"""The broker settings of transactions and of the producer ids behind them."""

from typing import Final

from tidelog.base.settings.kinds import Setting, at_least

_MINUTE_MS: Final = 60 * 1000
_HOUR_MS: Final = 60 * _MINUTE_MS
_DAY_MS: Final = 24 * _HOUR_MS

TRANSACTIONS: Final = (
    Setting(
        name="transactional.id.expiration.ms",
        kind="int",
        default=7 * _DAY_MS,
        bound=at_least(1),
        doc=(
            "A transactional id with no open transaction is forgotten after this long without use."
        ),
    ),
    Setting(
        name="transaction.max.timeout.ms",
        kind="int",
        default=15 * _MINUTE_MS,
        bound=at_least(1),
        doc="The longest transaction timeout a producer may ask for.",
    ),
    Setting(
        name="transaction.abort.timed.out.transaction.cleanup.interval.ms",
        kind="int",
        default=10 * 1000,
        bound=at_least(1),
        doc=(
            "How often the coordinator looks for transactions past their timeout and aborts them."
        ),
    ),
    Setting(
        name="transaction.remove.expired.transaction.cleanup.interval.ms",
        kind="int",
        default=_HOUR_MS,
        bound=at_least(1),
        doc="How often the coordinator looks for transactional ids that have expired.",
    ),
    Setting(
        name="transaction.state.log.num.partitions",
        kind="int",
        default=50,
        bound=at_least(1),
        doc="The partitions of __transaction_state. It cannot change once the topic exists.",
    ),
    Setting(
        name="transaction.state.log.replication.factor",
        kind="short",
        default=3,
        bound=at_least(1),
        doc=(
            "The replicas of each partition of __transaction_state. A single node uses 1 if "
            "this is not set."
        ),
    ),
    Setting(
        name="transaction.state.log.min.isr",
        kind="int",
        default=2,
        bound=at_least(1),
        doc=(
            "min.insync.replicas of __transaction_state. A single node uses 1 if this is not set."
        ),
    ),
    Setting(
        name="transaction.state.log.segment.bytes",
        kind="int",
        default=100 << 20,
        bound=at_least(1),
        doc=(
            "segment.bytes of __transaction_state: small segments are compacted and loaded sooner."
        ),
    ),
    Setting(
        name="transaction.state.log.load.buffer.size",
        kind="int",
        default=5 << 20,
        bound=at_least(1),
        doc="How much of __transaction_state is read at a time while a coordinator loads it.",
    ),
    Setting(
        name="transaction.partition.verification.enable",
        kind="boolean",
        default=True,
        doc="Whether a transactional write is checked to belong to an open transaction first.",
        mode="cluster-wide",
    ),
    Setting(
        name="producer.id.expiration.ms",
        kind="int",
        default=_DAY_MS,
        bound=at_least(1),
        doc="A partition forgets an idle producer's sequence numbers after this long.",
        mode="cluster-wide",
    ),
    Setting(
        name="producer.id.expiration.check.interval.ms",
        kind="int",
        default=10 * _MINUTE_MS,
        bound=at_least(1),
        doc="How often partitions look for producers that have expired.",
    ),
)
