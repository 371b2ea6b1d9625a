"""Seeded choices: one stream of random numbers per purpose.

Streams are independent, so a fault that draws once more, or a purpose that is added, does
not shift the draws of any other purpose, and a stored seed keeps its meaning.
"""

from random import Random


class Choices:
    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._streams: dict[str, Random] = {}

    def stream(self, purpose: str) -> Random:
        """The same object each time; seeded by text, so no hash seed of Python plays in."""
        found = self._streams.get(purpose)
        if found is None:
            found = self._streams[purpose] = Random(f"{self.seed}/{purpose}")
        return found
