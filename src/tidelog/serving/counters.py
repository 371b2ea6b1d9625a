"""What a broker counts while it works: plain numbers, so that counting costs next to nothing.

Times of requests go into buckets whose bounds double, which is all that is needed to tell a
median from a tail. `metrics` makes what monitoring systems read out of it.
"""

from typing import Final

BUCKETS: Final = 28
"""The last one holds everything above two minutes."""


class Times:
    """How long requests of one kind took, from the last byte received to the answer queued."""

    __slots__ = ("buckets", "count", "total_us")

    def __init__(self) -> None:
        self.buckets = [0] * BUCKETS
        self.count = 0
        self.total_us = 0

    def add(self, took_us: int, count: int) -> None:
        self.count += count
        self.total_us += took_us * count
        bucket = took_us.bit_length()
        self.buckets[bucket if bucket < BUCKETS else BUCKETS - 1] += count

    def cumulative(self) -> list[tuple[int, int]]:
        """Upper bounds in microseconds, and how many took less than each."""
        total = 0
        rows = []
        for bucket, count in enumerate(self.buckets[:-1]):
            total += count
            rows.append((1 << bucket, total))
        return rows


class Counters:
    __slots__ = (
        "connections_accepted",
        "connections_refused",
        "garbage_us",
        "requests_refused",
        "times",
    )

    def __init__(self) -> None:
        self.times: dict[int, Times] = {}
        """By API key."""
        self.connections_accepted = 0
        self.connections_refused = 0
        self.garbage_us = 0
        """How long the loop stood still for the garbage collector."""
        self.requests_refused = 0
        """Those that could not be read, or asked for what is not served."""

    def answered(self, api_key: int, took_us: int, count: int = 1) -> None:
        times = self.times.get(api_key)
        if times is None:
            times = self.times[api_key] = Times()
        times.add(took_us, count)
