"""Somebody who does not wait: has partitions that nobody leads led by any replica that is there.

What is lost thereby was given up in so many words (E3). A wish that is not answered may be granted
still: by a controller that died over it, or, deposed meanwhile, does not know whether it was.
"""

from collections.abc import Mapping
from typing import Final

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.trials.world import World

GAP_MS: Final = 60


class Elector:
    def __init__(self, world: World) -> None:
        self._world = world
        self._random = world.loop.choices.stream("unclean elections").random
        self._is_over = False

    def start(self) -> None:
        if self._world.options.unclean == "asked":
            self._world.loop.after(self._gap_ms(), self._next)

    def end(self) -> None:
        self._is_over = True

    def _gap_ms(self) -> int:
        return 1 + int(self._random() * 2 * GAP_MS)

    def _next(self) -> None:
        if self._is_over:
            return
        world, controller = self._world, self._world.controller()
        led = [oracle.state is None or oracle.state.leader >= 0 for oracle in world.oracles]
        if controller is not None and not all(led):
            world.unclean_asked += 1
            controller.metadata.elect_leaders("unclean", None, self._answered)
        world.loop.after(self._gap_ms(), self._next)

    def _answered(self, results: Mapping[tuple[str, int], KafkaError | None]) -> None:
        codes = [error.code for error in results.values() if error is not None]
        if ErrorCode.not_controller not in codes:
            self._world.unclean_asked -= 1
        if self._world.tracing is not None:
            self._world.tracing(f"unclean elections were asked for: {results}")
