"""The topics in which coordinators keep what they know: how they are made, when first needed.

Their counts and settings come from the broker's settings. A node that is alone, because it has no
ZooKeeper to share with others, cannot have more than one replica: where nothing else is set, one
is enough (O1).
"""

from tidelog.base.ids import CONSUMER_OFFSETS, TRANSACTION_STATE
from tidelog.base.settings import Settings
from tidelog.cluster.requests import NewTopic


def internal_topic(name: str, settings: Settings) -> NewTopic:
    return _offsets(settings) if name == CONSUMER_OFFSETS else _transactions(settings)


def _offsets(settings: Settings) -> NewTopic:
    min_isr = settings["offsets.topic.min.isr"]
    return NewTopic(
        name=CONSUMER_OFFSETS,
        partition_count=settings.whole("offsets.topic.num.partitions"),
        replication_factor=_copies(settings, "offsets.topic.replication.factor"),
        configs={
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(settings.whole("offsets.topic.segment.bytes")),
            **({} if min_isr is None else {"min.insync.replicas": str(min_isr)}),
        },
    )


def _transactions(settings: Settings) -> NewTopic:
    return NewTopic(
        name=TRANSACTION_STATE,
        partition_count=settings.whole("transaction.state.log.num.partitions"),
        replication_factor=_copies(settings, "transaction.state.log.replication.factor"),
        configs={
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "min.insync.replicas": str(_copies(settings, "transaction.state.log.min.isr")),
            "segment.bytes": str(settings.whole("transaction.state.log.segment.bytes")),
            "unclean.leader.election.enable": "false",
        },
    )


def _copies(settings: Settings, name: str) -> int:
    is_alone = settings["zookeeper.connect"] is None
    is_set = settings.source(name) != "DEFAULT_CONFIG"
    return 1 if is_alone and not is_set else settings.whole(name)
