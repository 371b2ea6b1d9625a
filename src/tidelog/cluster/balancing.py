"""Which leaderships go back to the preferred replica: a pure decision of the controller.

A broker prefers to lead the partitions that name it first. When others lead more than a given
share of these, all that can go back do.
"""

from collections import defaultdict
from collections.abc import Iterable

from tidelog.base.ids import TopicPartition
from tidelog.cluster.elections import Situation, preferred_leader
from tidelog.cluster.image import PartitionInfo
from tidelog.cluster.reassignment import is_reassigned

Placed = tuple[TopicPartition, PartitionInfo]


def to_move(
    partitions: Iterable[Placed], situation: Situation, percentage: int
) -> list[TopicPartition]:
    """`percentage` is leader.imbalance.per.broker.percentage. A partition that is being
    reassigned is left where it is, but counts."""
    by_preferred: defaultdict[int, list[Placed]] = defaultdict(list)
    for name, partition in partitions:
        by_preferred[partition.replicas[0]].append((name, partition))
    return [
        name
        for broker_id in sorted(by_preferred)
        if _is_imbalanced(broker_id, by_preferred[broker_id], percentage)
        for name, partition in by_preferred[broker_id]
        if not is_reassigned(partition) and preferred_leader(partition, situation) is not None
    ]


def _is_imbalanced(broker_id: int, placed: list[Placed], percentage: int) -> bool:
    elsewhere = sum(partition.leader != broker_id for _, partition in placed)
    return elsewhere * 100 > percentage * len(placed)
