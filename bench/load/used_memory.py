"""Memory that was in use a moment ago, for who is measured while he fills the page cache.

A virtual machine may give what is free back to its host within seconds, and gets it again page by
page, when something is written there. Writing a GB then took 2.4 s of CPU instead of 0.21 s, and a
round that writes three copies had more of that than one that writes a single copy.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def held_memory(folder: Path, megabytes: float) -> Iterator[None]:
    """So much is in use until the end of it, and then free for whoever writes next."""
    path, part = folder / "used", bytes(1 << 20)
    try:
        with path.open("wb", buffering=0) as file:
            for _ in range(round(megabytes)):
                file.write(part)
        yield
    finally:
        path.unlink(missing_ok=True)


def use_memory(folder: Path, megabytes: float) -> None:
    with held_memory(folder, megabytes):
        pass
