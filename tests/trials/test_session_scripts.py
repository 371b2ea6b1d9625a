"""What seldom happens to registrations, scripted on brokers of the explorer (X22): each script
breaks without its rule."""

from collections.abc import Callable

import pytest

from support import session_mutants as sessions
from support.scripted_world import CALM, Mutant, check_breaks
from tidelog.base.coordination import Create
from tidelog.cluster import paths
from tidelog.trials.process import Disk, Process
from tidelog.trials.violation import Violation
from tidelog.trials.world import World
from tidelog.world.znode_tree import When


def started() -> World:
    world = World(1, options=CALM)
    for number in world.numbers:
        world.start(number)
    world.loop.run_for(2_000)
    return world


def another_process_has_the_same_number() -> None:
    world = started()
    before = dict(world.ensemble.registered)
    Process(world, 1, Disk()).start()
    world.loop.run_for(5_000)
    if world.ensemble.registered != before:
        raise Violation("V9", f"registered are {world.ensemble.registered} after {before}")


def what_is_left_of_the_last_session_is_in_the_way() -> None:
    """ZooKeeper may show it for a while after a quick reconnect."""
    world = started()
    process = world.processes[1]
    epoch, session_id = process.metadata.broker_epoch, process.coordination.session_id
    process.coordination.expire()
    tree = world.ensemble.tree
    left = Create(path=paths.broker(1), data=b"{}", ephemeral=True)
    tree.write([left], When(tree.zxid + 1, world.loop.clock.now_ms(), session_id))
    world.loop.run_for(5_000)
    if process.metadata.broker_epoch <= epoch:
        raise Violation("H3", "broker 1 does not come back")


@pytest.mark.parametrize(
    ("script", "mutant", "invariant"),
    [
        pytest.param(
            another_process_has_the_same_number,
            sessions.take_any_registration_away,
            "V9",
            id="X22-number",
        ),
        pytest.param(
            what_is_left_of_the_last_session_is_in_the_way,
            sessions.wait_for_own_registrations,
            "H3",
            id="X22-own",
        ),
    ],
)
def test_script_breaks_without_its_rule_only(
    script: Callable[[], None], mutant: Mutant, invariant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_breaks(script, mutant, invariant, monkeypatch)
