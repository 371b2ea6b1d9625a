"""How the ISR of a partition changes, and with it the ELR and the recorded broker epochs.

A partition's leader and the controller both use it, so the rule of the eligible leaders is here
and nowhere else: while the ISR is smaller than the min ISR nothing can be committed, so whoever
leaves it then still has everything that was, and is kept in the ELR. As soon as the ISR is large
enough again the ELR is emptied. Leader epoch and versions stay as they are.
"""

from collections.abc import Collection
from dataclasses import replace

from tidelog.cluster.image import PartitionInfo


def effective_min_isr(min_isr: int, replicas: Collection[int]) -> int:
    """What `min.insync.replicas` comes to where there are fewer replicas than it asks for."""
    return min(min_isr, len(replicas))


def with_isr(partition: PartitionInfo, isr: tuple[int, ...], min_isr: int) -> PartitionInfo:
    """The partition with that ISR. Who restarted goes to the ELR as well: it had everything when
    it was in the ISR, and what it may have lost since is a loss that a recovery reckons with."""
    assert isr, "an ISR is never empty"
    elr: tuple[int, ...] = ()
    if len(isr) < effective_min_isr(min_isr, partition.replicas):
        before = (*partition.elr, *partition.isr)
        elr = tuple(m for m in before if m not in isr and m in partition.replicas)
    epochs = partition.broker_epochs
    return replace(
        partition,
        isr=isr,
        elr=elr,
        broker_epochs={member: epochs[member] for member in (*isr, *elr) if member in epochs},
    )


def expanded(partition: PartitionInfo, member: int, epoch: int, min_isr: int) -> PartitionInfo:
    """With one more member, which is in sync under that broker epoch."""
    assert member in partition.replicas, f"{member} is none of {partition.replicas}"
    recorded = replace(partition, broker_epochs={**partition.broker_epochs, member: epoch})
    isr = partition.isr if member in partition.isr else (*partition.isr, member)
    return with_isr(recorded, isr, min_isr)


def shrunk(partition: PartitionInfo, members: Collection[int], min_isr: int) -> PartitionInfo:
    """Without some members, none of which leads."""
    assert partition.leader not in members, f"the leader {partition.leader} cannot leave"
    staying = tuple(member for member in partition.isr if member not in members)
    return with_isr(partition, staying, min_isr)
