"""The clients of a history, and the oracles that hold what they are told against what is so."""

from tidelog.trials.clients import Reader, Writer
from tidelog.trials.committed_readers import CommittedReader
from tidelog.trials.deleting import Deleter
from tidelog.trials.group_oracle import GroupOracle
from tidelog.trials.members import Member
from tidelog.trials.transaction_oracle import TransactionOracle
from tidelog.trials.transactors import Transactor
from tidelog.trials.world import World

_FIRST_TRANSACTOR = 20
"""Their numbers come after those of the writers."""


def start_clients(world: World) -> None:
    draws, options = world.client_draws, world.options
    for number in range(options.writers):
        acks = 1 if number and draws.random() < 0.2 else -1
        writer = Writer(world, number + 1, number % options.partitions, acks)
        world.clients.append(writer)
        writer.start()
    for number in range(options.readers):
        reader = Reader(world, number % options.partitions)
        world.clients.append(reader)
        reader.start()
    if options.delete_gap_ms:
        deleter = Deleter(world)
        world.clients.append(deleter)
        deleter.start()


def start_members(world: World) -> GroupOracle | None:
    index = world.group_journal
    if index is None:
        return None
    oracle = GroupOracle(world.oracles[index], world.batches, world.counts)
    for _ in range(world.options.members):
        member = Member(world, index, oracle)
        world.clients.append(member)
        member.start()
    return oracle


def start_transactors(world: World) -> TransactionOracle | None:
    """Two of them have the same id, and fence each other."""
    index, options = world.transaction_journal, world.options
    if index is None:
        return None
    partitions, journal = world.oracles[: options.partitions], world.oracles[index]
    oracle = TransactionOracle(partitions, journal, world.batches, world.stamps, world.counts)
    for number in range(options.transactors):
        name = f"x{max(1, number)}"
        transactor = Transactor(world, index, _FIRST_TRANSACTOR + number, name, oracle)
        world.clients.append(transactor)
        transactor.start()
    for partition in range(options.partitions):
        reader = CommittedReader(world, partition, oracle)
        world.clients.append(reader)
        reader.start()
    return oracle
