"""Everything outside a broker, as it is handed one when it is made."""

from collections.abc import Callable
from dataclasses import dataclass

from tidelog.base.coordination import Coordination
from tidelog.base.ports import Clock, Disk, Entropy, Loop, Network, Pressure, Workers


def _itself(host: str) -> tuple[str, ...]:
    return (host,)


def _plenty() -> tuple[int, int]:
    return 0, 1 << 31


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """Everything outside the broker."""

    clock: Clock
    entropy: Entropy
    disk: Disk
    pressure: Pressure
    loop: Loop
    network: Network
    cleaning: Workers
    inspecting: Workers
    host_name: str
    """What clients are told where a listener names no host."""
    open_coordination: Callable[[str], Coordination]
    """Given the folder where an embedded coordinator keeps its tree."""
    resolve: Callable[[str], tuple[str, ...]] = _itself
    """The addresses of a host; `OSError` if none is known. May wait for the network."""
    descriptors: Callable[[], tuple[int, int]] = _plenty
    """How many files and connections are open at least, and how many may be; at little cost."""
    counted_descriptors: Callable[[], tuple[int, int]] = _plenty
    """The same, counted."""
