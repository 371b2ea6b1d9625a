"""Histories of the cluster's cores from fresh seeds, with every invariant checked after each step
(V1-V15, V17, V20, E3, S5) and convergence at the end (H1-H6, H8, T3); and that a seed means the
same everywhere (V21).
"""

import os
import subprocess
import sys
from collections import deque
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any

import pytest

from tidelog.replication.replica import Replica
from tidelog.trials.counts import Counts
from tidelog.trials.exploring import explore, replay
from tidelog.trials.history import run_history
from tidelog.trials.options import FAULT_KINDS, FAULTS_MIN, OPERATIONS_MIN, draw_options
from tidelog.trials.violation import Violation

CHUNKS = 10
HISTORIES_EACH = 200

SETS_DIE: dict[str, Any] = {
    "members": 0,
    "transactors": 0,
    "recreate_gap_ms": 0,
    "min_isr": 2,
    "replication_factor": 3,
    "session_timeout_ms": 200,
    "fault_kinds": ("set of a partition crashes", "isolation"),
}

HASHES = """
import hashlib, sys
from tidelog.trials.exploring import replay
digest = hashlib.sha256()
for seed in range(int(sys.argv[1]), int(sys.argv[1]) + 8):
    print(replay(seed, lambda line: digest.update(line.encode())))
print(digest.hexdigest())
"""


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_nothing_is_violated_in_histories_from_fresh_seeds(chunk: int) -> None:
    """All chunks together are 2,000 histories. In each of them everything happens."""
    first = int.from_bytes(os.urandom(4), "big")
    print(f"chunk {chunk}: seeds {first} to {first + HISTORIES_EACH - 1}")
    counts, failure = explore(range(first, first + HISTORIES_EACH))
    assert failure is None, str(failure)
    happened = {
        "elections": counts.elections,
        "truncations": counts.truncations,
        "shrinks": counts.shrinks,
        "expands": counts.expands,
        "power losses": counts.power_losses,
        "leaderless recoveries": counts.recoveries,
        "unclean elections": counts.unclean_elections,
        "topics made again": counts.topics_made_again,
        "reassignments finished": counts.reassignments_finished,
        "reassignments cancelled": counts.reassignments_cancelled,
        "log starts moved": counts.log_starts_moved,
        "logs begun anew": counts.logs_begun_anew,
        "coordinator changes": counts.coordinator_changes,
        "rebalances": counts.rebalances,
        "generations": counts.generations,
        "commits of offsets": counts.commits,
        "transactions committed": counts.transactions_committed,
        "transactions aborted": counts.transactions_aborted,
        "transactions timed out": counts.transactions_timed_out,
        "transactions fenced": counts.transactions_fenced,
    }
    assert [what for what, count in happened.items() if count == 0] == []


def test_unclean_elections_lose_acknowledged_records_and_nothing_else() -> None:
    """E3: by setting and by hand, where whole in-sync sets die again and again."""
    for kind in ("setting", "asked"):
        drawn = replace(draw_options(Random(9)), **SETS_DIE, unclean=kind)
        counts, failure = explore(range(12), drawn)
        assert failure is None, str(failure)
        assert counts.unclean_elections > 0
        assert counts.records_given_up > 0


@pytest.mark.parametrize("seed", range(5))
def test_every_history_has_enough_operations_and_faults(seed: int) -> None:
    counts = run_history(seed)
    assert counts.operations >= OPERATIONS_MIN
    assert counts.faults >= FAULTS_MIN
    assert counts.acknowledged > 0
    assert counts.reads > 0


def test_every_kind_of_fault_and_size_is_drawn() -> None:
    drawn = [draw_options(Random(seed)) for seed in range(200)]
    assert {kind for options in drawn for kind in options.fault_kinds} == set(FAULT_KINDS)
    assert {options.brokers for options in drawn} == {3, 4, 5}
    assert {options.replication_factor for options in drawn} == {2, 3}
    assert {options.min_isr for options in drawn} == {1, 2}
    assert {options.partitions for options in drawn} == {1, 2, 3, 4}
    assert {options.members for options in drawn} == {0, 2, 3}
    assert {options.move_gap_ms for options in drawn} == {0, 100, 300}
    assert {options.delete_gap_ms for options in drawn} == {0, 100, 300}
    assert {options.recreate_gap_ms for options in drawn} == {0, 200, 500}
    assert {options.unclean for options in drawn} == {"never", "setting", "asked"}
    internal = [options for options in drawn if options.members or options.transactors]
    assert {(options.unclean, options.recreate_gap_ms) for options in internal} == {("never", 0)}
    transactional = [options for options in drawn if options.transactors]
    assert {options.newer_transactions for options in transactional} == {True, False}
    assert all(options.newer_transactions for options in drawn if options.late_requests)


def test_same_seed_gives_the_same_history_in_another_process_and_under_another_hash_seed() -> None:
    """V21."""
    first = str(int.from_bytes(os.urandom(3), "big"))
    outputs = [
        subprocess.run(
            [sys.executable, "-c", HASHES, first],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    ]
    assert outputs[0] == outputs[1]
    assert len(outputs[0].splitlines()) == 9


def test_history_is_the_same_whether_somebody_looks_or_not() -> None:
    lines: list[str] = []
    assert run_history(7) == run_history(7, lines.append) == replay(7, lines.append)
    assert len(lines) > 500


def test_failure_tells_its_invariant_its_seed_its_last_events_and_how_to_see_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Replica, "is_frozen", lambda _self: False)
    counts, failure = explore(range(50))
    assert failure is not None
    text = str(failure)
    assert text.startswith(f"V7 is violated with seed {failure.seed}: ")
    assert text.endswith(f"tidelog trials replay --seed {failure.seed}")
    assert len(failure.events) > 20
    assert counts.histories == failure.seed, "all before it were well"
    last: deque[str] = deque(maxlen=len(failure.events))
    violation = replay(failure.seed, last.append)
    assert isinstance(violation, Violation)
    assert (violation.invariant, tuple(last)) == (failure.invariant, failure.events)


def test_error_in_production_code_is_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_self: Replica) -> bool:
        raise ZeroDivisionError("no")

    monkeypatch.setattr(Replica, "advance", broken)
    _, failure = explore([3])
    assert failure is not None
    assert failure.invariant == "bug"
    assert "ZeroDivisionError" in failure.what


def test_counts_of_histories_add_up() -> None:
    total = Counts()
    for counts in (Counts(histories=1, elections=2), Counts(histories=1, elections=3, shrinks=1)):
        total.add(counts)
    assert total == Counts(histories=2, elections=5, shrinks=1)
    assert partial(Counts)() == Counts()
