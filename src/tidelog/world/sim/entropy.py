"""Random bytes from a seed."""

from tidelog.world.sim.choices import Choices


class SimEntropy:
    def __init__(self, seed: int = 0) -> None:
        self._draws = Choices(seed).stream("entropy")

    def random_bytes(self, count: int) -> bytes:
        return self._draws.randbytes(count)
