"""Moving a partition to other replicas, step by step: pure decisions of the controller.

Replicas to be added are put beside those that are there; when they have caught up, those to be
removed go. `replicas` are at any time all that hold the partition; without `removing_replicas`
they are the target, without `adding_replicas` the originals. A replica that was being added and
is no longer wanted is in both; if it is in sync it stays until enough others are, so that a
change of mind costs no copy that counts.

What is returned differs from what was in the topic node's part and in the state node's part:
both must be written together.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.cluster.elections import (
    NOTHING_KNOWN,
    Known,
    Situation,
    choose_leader,
    next_epoch,
    usable_isr,
)
from tidelog.cluster.image import NO_LEADER, NO_STATE, PartitionInfo
from tidelog.cluster.isr_change import effective_min_isr, with_isr


def is_reassigned(partition: PartitionInfo) -> bool:
    return bool(partition.adding_replicas or partition.removing_replicas)


def target_of(partition: PartitionInfo) -> tuple[int, ...]:
    return _without(partition.replicas, partition.removing_replicas)


def originals_of(partition: PartitionInfo) -> tuple[int, ...]:
    return _without(partition.replicas, partition.adding_replicas)


def dropped(before: PartitionInfo, after: PartitionInfo) -> tuple[int, ...]:
    """Whose replica is to be deleted."""
    return _without(before.replicas, after.replicas)


def check_target(partition: PartitionInfo, target: Sequence[int], live: Collection[int]) -> None:
    """Refuses what no partition can be moved to. Brokers that hold it already may be away."""
    if not target:
        raise _refused("a partition must have at least one replica")
    if min(target) < 0:
        raise _refused(f"{min(target)} is not a broker id")
    if len(set(target)) < len(target):
        raise _refused(f"{list(target)} names a broker twice")
    missing = [b for b in target if b not in live and b not in originals_of(partition)]
    if missing:
        raise _refused(f"the broker {missing[0]} is not alive")


def started(
    partition: PartitionInfo, target: Sequence[int], controller_epoch: int
) -> PartitionInfo | None:
    """On its way to that target, whatever the way was so far; None if it is so already. The
    order counts: the first of the target is the preferred leader."""
    originals = originals_of(partition)
    members = (*partition.isr, *partition.elr)
    unwanted = _without(partition.adding_replicas, target)
    held = tuple(replica for replica in unwanted if replica in members)
    replicas = tuple(dict.fromkeys((*target, *originals, *held)))
    moved = replace(
        partition,
        replicas=replicas,
        adding_replicas=_without(replicas, originals),
        removing_replicas=_without(replicas, target),
    )
    if moved == partition:
        return None
    return moved if partition.state_version == NO_STATE else next_epoch(moved, controller_epoch)


def cancelled(partition: PartitionInfo, controller_epoch: int) -> PartitionInfo:
    """On its way back to the originals; if nobody else is in sync, it is there."""
    if not is_reassigned(partition):
        raise KafkaError(
            ErrorCode.no_reassignment_in_progress, "the partition is not being reassigned"
        )
    back = started(partition, originals_of(partition), controller_epoch)
    return partition if back is None else back


def next_step(
    partition: PartitionInfo,
    situation: Situation,
    min_isr: int,
    known: Known = NOTHING_KNOWN,
) -> PartitionInfo | None:
    """The partition at its target, when that can be; None if it cannot yet, or is."""
    if not is_reassigned(partition) or partition.leader == NO_LEADER:
        return None
    target = target_of(partition)
    usable = usable_isr(partition, situation, known)
    staying = tuple(member for member in usable if member in target)
    if not _is_ready(partition, target, staying, min_isr):
        return None
    at_target = replace(partition, replicas=target, adding_replicas=(), removing_replicas=())
    leader = choose_leader(at_target, staying, situation)
    done = replace(with_isr(at_target, staying, min_isr), leader=leader)
    return next_epoch(done, situation.controller_epoch)


def _is_ready(
    partition: PartitionInfo, target: tuple[int, ...], staying: tuple[int, ...], min_isr: int
) -> bool:
    """A partition that only loses replicas, or goes back to where it was, need not wait for
    one that may never come back."""
    if _without(partition.adding_replicas, partition.removing_replicas):
        return len(staying) == len(target)
    return len(staying) >= max(1, effective_min_isr(min_isr, target))


def _without(replicas: Iterable[int], others: Collection[int]) -> tuple[int, ...]:
    return tuple(replica for replica in replicas if replica not in others)


def _refused(why: str) -> KafkaError:
    return KafkaError(ErrorCode.invalid_replica_assignment, why)
