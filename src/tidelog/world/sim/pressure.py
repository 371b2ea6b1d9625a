"""Write pressure from a seed, so that batches take both ways into a log."""

from tidelog.base.ports import Level
from tidelog.world.sim.choices import Choices


class SimPressure:
    def __init__(self, seed: int = 0) -> None:
        self._draws = Choices(seed).stream("pressure")

    def level(self) -> Level:
        drawn = self._draws.random()
        if drawn < 0.1:
            return Level.limit
        return Level.high if drawn < 0.5 else Level.low

    def waits(self) -> int:
        """Writes take no time here."""
        return 0

    def favour(self) -> None:
        """Nobody waits here."""
