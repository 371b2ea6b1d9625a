"""Random bytes that nobody can guess, from the operating system."""

import os


class RealEntropy:
    def random_bytes(self, count: int) -> bytes:
        return os.urandom(count)
