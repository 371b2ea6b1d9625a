"""The whole log against a simple model: any sequence of operations, crashed at every single
disk operation, and opened again (S9, S10, V16-V18, X25-X28)."""

import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from support.trial import Death, Operation, Trial
from tidelog.base.log_settings import LogSettings
from tidelog.world.sim.disk import When

TINY = LogSettings(
    segment_bytes=600, index_interval_bytes=100, index_bytes_max=480, retention_bytes=1500
)
COMPACTED = LogSettings(
    segment_bytes=600,
    index_interval_bytes=100,
    cleanup_compact=True,
    cleanup_delete=False,
    min_cleanable_ratio=0.01,
    delete_retention_ms=20_000,
)

APPENDS = ["append", "append_idempotent", "append_transactional", "end_transaction"]
TOGETHER = ["append_together"]
OTHERS = ["follow", "roll", "flush", "checkpoint", "snapshot", "wait", "new_epoch", "truncate"]

operations = st.builds(
    Operation,
    st.sampled_from(
        (APPENDS + TOGETHER) * 3
        + OTHERS
        + ["delete_records", "retain", "restart_at", "truncate_below"]
    ),
    st.integers(0, 60),
)
compactions = st.builds(
    Operation,
    st.sampled_from(
        APPENDS * 3 + ["roll", "checkpoint", "checkpoint", "wait", "compact", "compact"]
    ),
    st.integers(0, 60),
)
deaths = st.sampled_from(["process", "all", "some", "none"])
moments = st.sampled_from(["before", "middle", "after"])
crashes = st.tuples(st.integers(0, 12), moments, deaths)

RELAXED = settings(
    deadline=None,
    max_examples=150,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def play(
    trial: Trial, steps: list[Operation], crash_every: int, crash: tuple[int, When, Death]
) -> None:
    for index, step in enumerate(steps):
        if index % crash_every == crash_every - 1:
            trial.run_and_crash(step, *crash)
        else:
            trial.run(step)
    trial.crash(crash[2])
    trial.run(Operation("append", 5))
    trial.restart_cleanly()
    trial.run(Operation("append", 6))
    trial.crash("process")


@RELAXED
@given(
    st.lists(operations, min_size=1, max_size=40), st.integers(2, 12), crashes, st.integers(0, 999)
)
@example([Operation("roll", 57), Operation("restart_at", 46)], 2, (1, "before", "process"), 5)
def test_log_is_what_the_model_says_after_any_operations_and_crashes(
    steps: list[Operation], crash_every: int, crash: tuple[int, When, Death], seed: int
) -> None:
    play(Trial(TINY, seed), steps, crash_every, crash)


@settings(RELAXED, max_examples=60)
@given(
    st.lists(compactions, min_size=6, max_size=40), st.integers(2, 12), crashes, st.integers(0, 999)
)
def test_compacted_log_keeps_the_last_value_of_each_key_after_any_operations_and_crashes(
    steps: list[Operation], crash_every: int, crash: tuple[int, When, Death], seed: int
) -> None:
    """S6, V16."""
    play(Trial(COMPACTED, seed), steps, crash_every, crash)


def appends(count: int, first: int = 0) -> list[Operation]:
    return [Operation(APPENDS[n % 4], n) for n in range(first, first + count)]


SETUP = [
    *appends(14),
    Operation("checkpoint"),
    *appends(9, 14),
    Operation("flush"),
    *appends(5, 23),
]

SCENARIOS: dict[str, tuple[LogSettings, list[Operation], list[Operation]]] = {
    "append and roll": (TINY, SETUP, [*appends(8, 3), Operation("roll"), *appends(2, 5)]),
    "append together": (
        TINY,
        SETUP,
        [Operation("append_together", n) for n in range(5)] + appends(2, 5),
    ),
    "flush and checkpoint": (TINY, SETUP, [Operation("flush"), Operation("checkpoint")]),
    "truncate within a segment": (TINY, SETUP, [Operation("truncate", 44), *appends(3, 7)]),
    "truncate over segments": (TINY, SETUP, [Operation("truncate", 11), *appends(6, 7)]),
    "truncate to nothing": (TINY, SETUP, [Operation("truncate", 0), *appends(3, 7)]),
    "truncate twice": (
        TINY,
        SETUP,
        [Operation("truncate", 40), *appends(2, 1), Operation("truncate", 39), *appends(3, 7)],
    ),
    "follow": (TINY, SETUP, [Operation("follow", 1), Operation("follow", 2), *appends(2)]),
    "retain": (TINY, SETUP, [Operation("retain"), Operation("wait", 9), *appends(3, 7)]),
    "truncate below the start": (
        TINY,
        [*SETUP, Operation("delete_records", 30), Operation("wait", 9)],
        [Operation("truncate_below", 3), *appends(3, 7)],
    ),
    "start anew": (TINY, SETUP, [Operation("restart_at", 13), *appends(4, 7)]),
    "delete records": (
        TINY,
        SETUP,
        [Operation("delete_records", 30), Operation("wait", 9), *appends(2), Operation("flush")],
    ),
    "compact": (
        COMPACTED,
        [*SETUP, Operation("end_transaction"), Operation("roll"), Operation("checkpoint")],
        [Operation("compact"), *appends(3, 7)],
    ),
    "compact twice": (
        COMPACTED,
        [*SETUP, Operation("roll"), Operation("checkpoint"), Operation("compact")],
        [*appends(9, 2), Operation("roll"), Operation("checkpoint"), Operation("wait", 9),
         Operation("compact"), Operation("wait", 9)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("death", ["process", "all", "some", "none"])
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_nothing_is_lost_when_a_crash_falls_on_any_disk_operation(
    scenario: str, death: Death
) -> None:
    """X26, X27, F18: the scenario is run again and again, dying one disk operation later each
    time; then the log goes on, and dies once more. Only a write has a middle to die in."""
    log_settings, setup, steps = SCENARIOS[scenario]
    number = 0
    while died_at := crash_once(
        Trial(log_settings, number), (setup, steps), number, "before", death
    ):
        if died_at == "pwrite":
            trial = Trial(log_settings, number)
            assert crash_once(trial, (setup, steps), number, "middle", death) == died_at
        number += 1
    assert number > 6, "the scenario has disk operations to die in"


def crash_once(
    trial: Trial,
    plan: tuple[list[Operation], list[Operation]],
    number: int,
    when: When,
    death: Death,
) -> str | None:
    """The disk operation it died at; None if there are fewer."""
    setup, steps = plan
    for step in setup:
        trial.run(step)
    left, trace = number, trial.world.disk.trace()
    for step in steps:
        before = trial.world.disk.operations
        if trial.run_and_crash(step, left, when, death):
            for later in appends(3, 2):
                trial.run(later)
            trial.crash("some" if death == "process" else "process")
            return trace[number][0]
        left -= trial.world.disk.operations - before
    assert len(trace) == number
    return None


@pytest.mark.parametrize("death", ["process", "all", "some"])
@pytest.mark.parametrize("first_death", ["process", "some"])
def test_crash_during_recovery_is_recovered_from(first_death: Death, death: Death) -> None:
    """X27: the machine may die again while the log is being opened, at any disk operation."""
    number = 0
    while True:
        trial = Trial(TINY, number)
        for step in [*SETUP, *appends(4, 30)]:
            trial.run(step)
        disk = trial.world.disk
        if first_death == "process":
            disk.process_dies()
        else:
            disk.machine_dies("some")
            trial.durable_start = 0
        lost_power = first_death != "process" or death != "process"
        if not _opening_dies_at(trial, number):
            break
        if death == "process":
            disk.process_dies()
        else:
            disk.machine_dies(death)
        trial.world.open()
        trial.check(lost_power=lost_power)
        number += 1
    assert number > 5


def _opening_dies_at(trial: Trial, number: int) -> bool:
    from tidelog.world.sim.disk import Crashed

    trial.world.disk.crash_at(number, "middle")
    try:
        trial.world.open()
    except Crashed:
        return True
    return False
