"""The production shards of a simulated broker, with what surrounds them there."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from tidelog.base.journal import Journal, Shard
from tidelog.coordinators import ImageTopics
from tidelog.groups.shard import GroupShard
from tidelog.groups.surroundings import GroupSurroundings
from tidelog.transactions.shard import TransactionShard
from tidelog.transactions.surroundings import TransactionSurroundings
from tidelog.world.sim.entropy import SimEntropy

if TYPE_CHECKING:
    from tidelog.trials.process import Process


def shard_makers(process: "Process") -> dict[int, Callable[[Journal], Shard]]:
    """By partition."""
    makers: dict[int, Callable[[Journal], Shard]] = {}
    world = process.world
    if world.group_journal is not None:
        makers[world.group_journal] = partial(_make_groups, process)
    if world.transaction_journal is not None:
        makers[world.transaction_journal] = partial(_make_transactions, process)
    return makers


def _make_groups(process: "Process", journal: Journal) -> GroupShard:
    world = process.world
    around = GroupSurroundings(
        clock=world.loop.clock,
        loop=process.loop,
        entropy=SimEntropy(world.next_number()),
        settings=lambda: world.settings,
        topics=ImageTopics(lambda: process.metadata.image),
    )
    return GroupShard(journal, around)


def _make_transactions(process: "Process", journal: Journal) -> TransactionShard:
    world = process.world
    around = TransactionSurroundings(
        clock=world.loop.clock,
        loop=process.loop,
        settings=lambda: world.settings,
        markers=process.transacting.markers,
        next_producer_id=process.metadata.next_producer_id,
    )
    return TransactionShard(journal, around)
