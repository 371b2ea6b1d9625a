"""One explored history: a cluster starts, things go wrong, they are made good, it converges.

While they go wrong nothing that was acknowledged may get lost, whatever happens; afterwards
everything must be well again within a time (H1 to H6).
"""

from typing import Any

from tidelog.cluster.image import NO_LEADER
from tidelog.cluster.requests import NewTopic
from tidelog.groups.shard import GroupShard
from tidelog.replication.isr import Committed
from tidelog.replication.replica import Role
from tidelog.trials.clients import VALUES_EACH
from tidelog.trials.counts import Counts
from tidelog.trials.electing import Elector
from tidelog.trials.faults import Nemesis
from tidelog.trials.group_oracle import GroupOracle
from tidelog.trials.leading import TOPIC
from tidelog.trials.members import text_of
from tidelog.trials.moving import Mover
from tidelog.trials.options import FAULTS_MIN, OPERATIONS_MIN, Options
from tidelog.trials.oracle import Oracle
from tidelog.trials.population import start_clients, start_members, start_transactors
from tidelog.trials.recreating import Recreator
from tidelog.trials.transaction_oracle import TransactionOracle
from tidelog.trials.transactors import TIMEOUT_MS
from tidelog.trials.violation import Violation
from tidelog.trials.world import Tracing, World

START_MS_MAX = 20_000
CONVERGE_MS_MAX = 10_000
"""Beside the session timeouts and lags that have to pass; the slowest of many took 7 s."""
MOVE_MS_MAX = 20_000
"""What moves of replicas take longer: leaders announce who is in sync every few seconds, and the
last replica may wait for the one before it."""
STEP_MS = 20


def run_history(
    seed: int, tracing: Tracing | None = None, options: Options | None = None
) -> Counts:
    """What happened; raises a `Violation`."""
    world = World(seed, tracing, options)
    if tracing is not None:
        tracing(f"{world.options}")
    try:
        _run(world)
    except Violation:
        raise
    except Exception as error:
        raise Violation("bug", f"{type(error).__name__}: {error}") from error
    finally:
        world.loop.close()
    world.counts.virtual_ms = world.loop.clock.monotonic_ms()
    return world.counts


def _run(world: World) -> None:
    options = world.options
    converge_ms_max = CONVERGE_MS_MAX + 2 * (options.session_timeout_ms + options.lag_ms_max)
    converge_ms_max += MOVE_MS_MAX if options.move_gap_ms else 0
    for number in world.numbers:
        world.start(number)
    _wait(world, lambda: _is_started(world), "H4", "the cluster does not start", START_MS_MAX)
    create_topic(world)
    start_clients(world)
    groups = start_members(world)
    transactions = start_transactors(world)
    nemesis = Nemesis(world)
    nemesis.start()
    mover = Mover(world)
    mover.start()
    elector = Elector(world)
    elector.start()
    recreator = Recreator(world)
    recreator.start()
    loop = world.loop
    loop.run_for(options.duration_ms)
    while world.counts.faults < FAULTS_MIN:
        loop.run_for(STEP_MS)
    nemesis.end()
    mover.end()
    elector.end()
    recreator.end()
    _wait(world, recreator.is_settled, "H1", "the topic is not made again", converge_ms_max)
    _wait(
        world,
        lambda: world.counts.operations >= OPERATIONS_MIN,
        "H1",
        "clients get no answers",
        converge_ms_max,
    )
    for client in world.clients:
        client.is_stopped = True
    _wait(world, lambda: not mover.is_waiting(), "H1", "a move is not answered", converge_ms_max)
    _wait(world, lambda: _unlike(world) is None, "H3", "it does not converge", converge_ms_max)
    mover.look_at_end()
    if transactions is not None:
        _wait_for_transactions(world, transactions, converge_ms_max + TIMEOUT_MS)
    for oracle in world.oracles:
        look_at_end(world, oracle)
    if groups is not None:
        _look_at_group(world, groups)
    if transactions is not None:
        transactions.look_at_end()


def _wait(world: World, condition: Any, invariant: str, what: str, ms_max: int) -> None:
    for _ in range(0, ms_max, STEP_MS):
        if condition():
            return
        world.loop.run_for(STEP_MS)
    if not condition():
        raise Violation(invariant, f"{what}: {_unlike(world)}")


def _wait_for_transactions(world: World, oracle: TransactionOracle, ms_max: int) -> None:
    """H8: whoever is gone leaves nothing open for longer than its time."""
    for _ in range(0, ms_max, STEP_MS):
        unended = oracle.unended()
        if unended is None and _unlike(world) is None:
            return
        world.loop.run_for(STEP_MS)
    raise Violation("H8", f"what was open stays so: {unended or _unlike(world)}")


def _is_started(world: World) -> bool:
    return world.controller() is not None and all(
        number in world.processes and world.processes[number].is_ready for number in world.numbers
    )


def create_topic(world: World) -> None:
    options = world.options
    assignment = {
        index: [
            world.numbers[(index + place) % len(world.numbers)]
            for place in range(options.replication_factor)
        ]
        for index in range(len(world.oracles))
    }
    results: list[Any] = []
    controller = world.controller()
    assert controller is not None
    configs = {"unclean.leader.election.enable": "true"} if options.unclean == "setting" else {}
    topic = NewTopic(name=TOPIC, assignment=assignment, configs=configs)
    controller.metadata.create_topics([topic], False, results.append)
    _wait(world, lambda: bool(results), "H1", "no answer to the creation of a topic", START_MS_MAX)
    if isinstance(results[0][0], Exception):
        raise results[0][0]


# -- the end


def _unlike(world: World) -> str | None:
    """What is not as it should be in a cluster in which all is well."""
    controllers = [
        process.number
        for process in world.processes.values()
        if process.metadata.controller_epoch is not None
    ]
    if len(controllers) != 1:
        return f"controllers {controllers}"
    for topic in world.topics.values():
        holders = [sorted(oracle.logs) for oracle in topic.oracles if oracle.logs]
        if topic is not world.topic and holders:
            return f"what was deleted is held: {holders}"
    for oracle in world.oracles:
        unlike = _unlike_partition(oracle)
        if unlike is not None:
            return f"{oracle} {unlike}"
    return None


def _unlike_partition(oracle: Oracle) -> str | None:
    state = oracle.state
    if state is None or state.leader == NO_LEADER:
        return f"nobody leads: {state}"
    assignment = oracle.assignment
    if assignment is None or assignment.adding or assignment.removing:
        return f"replicas are on their way: {assignment}"
    if len(state.isr) < len(assignment.replicas) or state.elr:
        return f"not all are in sync: {state}"
    if oracle.logs.keys() != set(assignment.replicas):
        return f"a replica that was removed is there: {sorted(oracle.logs)}, {assignment}"
    leader = oracle.copies.get(state.leader)
    if leader is None or leader.replica.role is not Role.leader:
        return f"the leader does not lead: {state}"
    end = leader.log.log_end_offset
    if not isinstance(leader.replica.isr, Committed):
        return f"the set is still to change: {leader.replica.isr}"
    for member in state.isr:
        copy = oracle.copies.get(member)
        if copy is None or copy.replica.leader_epoch != state.leader_epoch:
            return f"{member} is not in epoch {state.leader_epoch}"
        if (copy.log.log_end_offset, copy.replica.high_watermark) != (end, end):
            return (
                f"{member} ends at {copy.log.log_end_offset}, HW {copy.replica.high_watermark}, "
                f"the leader at {end}"
            )
        if copy.log.log_start_offset < leader.log.log_start_offset:
            return f"{member} starts at {copy.log.log_start_offset}, below its leader"
    return None


def look_at_end(world: World, oracle: Oracle) -> None:
    """Every acknowledged record is there, once, in order, at every replica."""
    for broker_id, log in sorted(oracle.logs.items()):
        first = oracle.compared_from(log)
        if log.between(first, log.log_end_offset) != oracle.committed[first:]:
            raise Violation("H3", f"{oracle} {broker_id} differs from what is committed")
    for offset, value in oracle.acknowledged.items():
        if offset >= len(oracle.committed) or oracle.committed[offset][1] != value:
            raise Violation("V2", f"{oracle} m{value}, acknowledged at {offset}, is lost")
    last: dict[int, int] = {}
    seen: set[int] = set()
    # A replica that began above a record that was deleted may have taken it again.
    for _, value in oracle.committed[oracle.largest_start :]:
        writer = value // VALUES_EACH
        if value in seen:
            raise Violation("V13", f"{oracle} m{value} is there twice")
        seen.add(value)
        if value not in world.abandoned:
            if value < last.get(writer, 0):
                raise Violation("V13", f"{oracle} m{value} comes after m{last[writer]}")
            last[writer] = value
    refused = world.refused.intersection(value for _, value in oracle.committed)
    if refused:
        raise Violation("G1a", f"{oracle} {refused} were refused, and are there")


def _look_at_group(world: World, oracle: GroupOracle) -> None:
    """The last coordinator knows what is in the journal."""
    index = world.group_journal
    assert index is not None
    for process in world.processes.values():
        shard = process.coordinating.shard(index)
        if isinstance(shard, GroupShard):
            partitions = range(world.options.partitions)
            oracle.look_at_end({partition: text_of(shard, partition) for partition in partitions})
