"""Which brokers hold which partition: replicas and leaders spread evenly, and over racks.

With the brokers in order, the first replica of partition i is the i-th broker from a start
index; the others follow at a shift that grows by one each round, so that followers spread too.
If every broker has a rack, the order takes one broker of each rack in turn, and a partition
gets a second replica in a rack only when every rack has one.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from tidelog.cluster.image import BrokerInfo

Replicas = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Where an assignment begins: drawn at random for a new topic, so that small topics do not
    all lie on the first brokers."""

    start_index: int
    shift: int
    first_partition: int = 0


def assign(
    brokers: Iterable[BrokerInfo], partition_count: int, replication_factor: int, spread: Spread
) -> list[Replicas]:
    """The replicas of each partition, the preferred leader first."""
    racks = {broker.broker_id: broker.rack for broker in brokers}
    assert 0 < replication_factor <= len(racks), f"{replication_factor} replicas on {len(racks)}"
    known = {broker_id: rack for broker_id, rack in racks.items() if rack is not None}
    if len(known) < len(racks):
        known = {}
    in_order = alternate_racks(known) if known else sorted(racks)
    return [
        _replicas_of(partition, in_order, known, replication_factor, spread)
        for partition in range(spread.first_partition, spread.first_partition + partition_count)
    ]


def alternate_racks(racks: dict[int, str]) -> list[int]:
    """One broker of each rack in turn, for as long as a rack has any left."""
    by_rack: defaultdict[str, list[int]] = defaultdict(list)
    for broker_id in sorted(racks):
        by_rack[racks[broker_id]].append(broker_id)
    longest = max(map(len, by_rack.values()))
    return [
        by_rack[rack][turn]
        for turn in range(longest)
        for rack in sorted(by_rack)
        if turn < len(by_rack[rack])
    ]


def _replicas_of(
    partition: int,
    in_order: list[int],
    racks: dict[int, str],
    replication_factor: int,
    spread: Spread,
) -> Replicas:
    count = len(in_order)
    first = (partition + spread.start_index) % count
    rounds = partition // count - max(0, spread.first_partition - 1) // count
    shift = (spread.shift + rounds) * max(1, len(set(racks.values())))
    others = [in_order[(first + 1 + (shift + at) % (count - 1)) % count] for at in range(count - 1)]
    return tuple(_choose([in_order[first]], others, racks, replication_factor))


def _choose(
    chosen: list[int], others: list[int], racks: dict[int, str], replication_factor: int
) -> list[int]:
    """Goes round the other brokers in order; while a rack has no replica, others are skipped."""
    uncovered = set(racks.values()) - {racks.get(chosen[0], "")}
    at = 0
    while len(chosen) < replication_factor:
        broker_id = others[at % len(others)]
        at += 1
        if broker_id not in chosen and (not uncovered or racks[broker_id] in uncovered):
            chosen.append(broker_id)
            uncovered.discard(racks.get(broker_id, ""))
    return chosen
