"""A clock that stands still until told otherwise.

Wall time and monotonic time move together with `advance`; the wall alone can be set, forward
or back, as administrators and NTP do. A reboot gives a new boot id and restarts the
monotonic time.
"""

START_MS = 1_700_000_000_000


class SimClock:
    def __init__(self, now_ms: int = START_MS) -> None:
        self._now_ms = now_ms
        self._monotonic_ms = 0
        self._boots = 1

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic_ms(self) -> int:
        return self._monotonic_ms

    def monotonic_us(self) -> int:
        return self._monotonic_ms * 1_000

    def boot_id(self) -> str:
        return f"simulated-boot-{self._boots}"

    def advance(self, delay_ms: int) -> None:
        assert delay_ms >= 0, f"time cannot go back by {-delay_ms} ms; set the wall instead"
        self._now_ms += delay_ms
        self._monotonic_ms += delay_ms

    def set_wall(self, now_ms: int) -> None:
        self._now_ms = now_ms

    def reboot(self) -> None:
        self._boots += 1
        self._monotonic_ms = 0

    def copy(self) -> "SimClock":
        twin = SimClock(self._now_ms)
        twin._monotonic_ms = self._monotonic_ms
        twin._boots = self._boots
        return twin
