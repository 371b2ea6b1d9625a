"""Write pressure from a seed, so that large batches take both ways into a log."""

from tidelog.world.sim.choices import Choices


class SimPressure:
    def __init__(self, seed: int = 0) -> None:
        self._draws = Choices(seed).stream("pressure")

    def is_high(self) -> bool:
        return self._draws.random() < 0.5

    def waits(self) -> int:
        """Writes take no time here."""
        return 0
