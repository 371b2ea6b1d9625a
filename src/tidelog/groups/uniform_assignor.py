"""The `uniform` assignor: as even as subscriptions allow, and as little moved as that takes.

Topics that have the same subscribers are balanced together, as one pool; if all members subscribe
to the same topics there is one pool. What members have and still want stays with them, what nobody
has goes to the subscriber that has least, and then partitions move from who has most to who has
least until no move within a pool makes it more even.
"""

import heapq
from collections.abc import Mapping
from typing import Final

Partition = tuple[bytes, int]
_Assignment = Mapping[bytes, tuple[int, ...]]

_ROUNDS_MAX: Final = 16
"""One pool's moves may make another one uneven again; chains of pools are not followed for ever."""


class _Pool:
    """Topics with the same subscribers."""

    __slots__ = ("free", "held", "subscribers")

    def __init__(self, subscribers: list[str]) -> None:
        self.subscribers = subscribers
        self.held: dict[str, list[Partition]] = {member_id: [] for member_id in subscribers}
        self.free: list[Partition] = []


def assign_uniformly(
    topics: Mapping[str, tuple[bytes, ...]],
    assigned: Mapping[str, _Assignment],
    partition_counts: Mapping[bytes, int],
) -> dict[str, _Assignment]:
    """`topics` and `assigned` are by member: what it wants, and what it has."""
    members = sorted(topics)
    pool_of = _pools(members, topics)
    loads = dict.fromkeys(members, 0)
    _keep(members, assigned, partition_counts, pool_of, loads)
    pools = sorted({id(pool): pool for pool in pool_of.values()}.values(), key=_width)
    for pool in pools:
        _fill(pool, loads)
    for _ in range(_ROUNDS_MAX):
        if not sum(_balance(pool, loads) for pool in pools):
            break
    return _collect(members, pools)


def _pools(members: list[str], topics: Mapping[str, tuple[bytes, ...]]) -> dict[bytes, _Pool]:
    alike: dict[tuple[bytes, ...], list[str]] = {}
    for member_id in members:
        alike.setdefault(topics[member_id], []).append(member_id)
    wanted_by: dict[bytes, list[tuple[bytes, ...]]] = {}
    for subscription in alike:
        for topic in subscription:
            wanted_by.setdefault(topic, []).append(subscription)
    pools: dict[tuple[int, ...], _Pool] = {}
    pool_of = {}
    numbers = {subscription: number for number, subscription in enumerate(alike)}
    for topic in sorted(wanted_by):
        key = tuple(numbers[subscription] for subscription in wanted_by[topic])
        if key not in pools:
            subscribers = [m for subscription in wanted_by[topic] for m in alike[subscription]]
            pools[key] = _Pool(sorted(subscribers))
        pool_of[topic] = pools[key]
    return pool_of


def _width(pool: _Pool) -> int:
    """Those with the least choice are served first."""
    return len(pool.subscribers)


def _keep(
    members: list[str],
    assigned: Mapping[str, _Assignment],
    partition_counts: Mapping[bytes, int],
    pool_of: dict[bytes, _Pool],
    loads: dict[str, int],
) -> None:
    """What members have and still want stays theirs; the rest is free."""
    is_free = {topic: bytearray(b"\1" * partition_counts[topic]) for topic in pool_of}
    for member_id in members:
        for topic, indexes in assigned.get(member_id, {}).items():
            held = pool_of[topic].held.get(member_id) if topic in pool_of else None
            if held is None:
                continue
            free = is_free[topic]
            kept = [index for index in indexes if index < len(free) and free[index]]
            for index in kept:
                free[index] = False
            held.extend((topic, index) for index in kept)
            loads[member_id] += len(kept)
    for topic, free in is_free.items():
        pool_of[topic].free.extend((topic, index) for index, flag in enumerate(free) if flag)


def _fill(pool: _Pool, loads: dict[str, int]) -> None:
    least = [(loads[member_id], member_id) for member_id in pool.subscribers]
    heapq.heapify(least)
    for partition in pool.free:
        load, member_id = least[0]
        pool.held[member_id].append(partition)
        loads[member_id] = load + 1
        heapq.heapreplace(least, (load + 1, member_id))


def _balance(pool: _Pool, loads: dict[str, int]) -> int:
    """How many were moved. Entries of the heaps whose load is no longer true are passed over."""
    takers = [(loads[member_id], member_id) for member_id in pool.subscribers]
    givers = [(-loads[member_id], member_id) for member_id, held in pool.held.items() if held]
    heapq.heapify(takers)
    heapq.heapify(givers)
    moved = 0
    while givers:
        most, giver = givers[0]
        if -most != loads[giver] or not pool.held[giver]:
            heapq.heappop(givers)
            continue
        least, taker = takers[0]
        if least != loads[taker]:
            heapq.heappop(takers)
            continue
        if -most - least < 2:
            break
        pool.held[taker].append(pool.held[giver].pop())
        moved += 1
        for member_id, change in ((giver, -1), (taker, 1)):
            loads[member_id] += change
            heapq.heappush(takers, (loads[member_id], member_id))
            heapq.heappush(givers, (-loads[member_id], member_id))
    return moved


def _collect(members: list[str], pools: list[_Pool]) -> dict[str, _Assignment]:
    gathered: dict[str, list[Partition]] = {member_id: [] for member_id in members}
    for pool in pools:
        for member_id, held in pool.held.items():
            gathered[member_id].extend(held)
    assignments: dict[str, _Assignment] = {}
    for member_id, partitions in gathered.items():
        by_topic: dict[bytes, list[int]] = {}
        for topic, index in sorted(partitions):
            by_topic.setdefault(topic, []).append(index)
        assignments[member_id] = {topic: tuple(found) for topic, found in by_topic.items()}
    return assignments
