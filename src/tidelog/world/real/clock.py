"""The time of this machine, and which boot of it this is."""

import time
import uuid
from pathlib import Path

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def _read_boot_id() -> str:
    """Where the kernel does not name its boots, every process counts as a boot of its own:
    then no page cache is ever assumed to have survived, which is slow but never wrong."""
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return f"unknown-{uuid.uuid4()}"


class RealClock:
    def __init__(self) -> None:
        self._boot_id = _read_boot_id()

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def monotonic_us(self) -> int:
        return time.monotonic_ns() // 1_000

    def boot_id(self) -> str:
        return self._boot_id
