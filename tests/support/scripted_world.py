"""A few brokers of the explorer to whom nothing happens but what a script does to them."""

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any, Final

import pytest

from tidelog.base.control import LeaderAndIsrRequest, StopReplicaRequest
from tidelog.trials.history import create_topic
from tidelog.trials.options import Options, draw_options
from tidelog.trials.process import Process
from tidelog.trials.violation import Violation
from tidelog.trials.world import World

Mutant = Callable[[pytest.MonkeyPatch], None]

CALM: Final = replace(
    draw_options(Random(1)),
    brokers=3,
    partitions=1,
    replication_factor=2,
    min_isr=2,
    members=0,
    transactors=0,
    move_gap_ms=0,
    delete_gap_ms=0,
    recreate_gap_ms=0,
    unclean="never",
    delay_ms_max=2,
    request_timeout_ms=2_000,
    fetch_wait_ms=100,
    session_timeout_ms=200,
)


class Scene:
    """Partition 0 is led by broker 1 and followed by those after it."""

    def __init__(self, options: Options = CALM) -> None:
        self.world = world = World(1, options=options)
        self.heard: dict[int, list[LeaderAndIsrRequest | StopReplicaRequest]] = {}
        """What each broker was told to lead, to follow and to give up."""
        for number in world.numbers:
            world.start(number)
            self._listen(world.processes[number])
        self.run(2_000)
        create_topic(world)
        self.run()

    def _listen(self, process: Process) -> None:
        heard = self.heard.setdefault(process.number, [])
        receive = process.receive

        def listening(request: Any, reply: Callable[[Any], None]) -> bool:
            if isinstance(request, LeaderAndIsrRequest | StopReplicaRequest):
                heard.append(request)
            return receive(request, reply)

        process.receive = listening  # type: ignore[method-assign]

    def run(self, duration_ms: int = 500) -> None:
        self.world.loop.run_for(duration_ms)

    def ask(self, number: int, request: Any) -> Any:
        answers: list[Any] = []
        self.world.processes[number].receive(request, answers.append)
        self.run()
        (answer,) = answers
        return answer


def check_breaks(
    script: Callable[[], None], mutant: Mutant, invariant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A script that is good, and breaks as it should without its rule."""
    script()
    mutant(monkeypatch)
    with pytest.raises(Violation) as found:
        script()
    assert found.value.invariant == invariant, found.value
