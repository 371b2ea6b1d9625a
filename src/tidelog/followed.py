"""A partition that is fetched from its leader, as a fetcher sees it, and who fetches and how much.

`Followed` is the seam to the partition itself, which applies what comes.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from tidelog.base.settings import Settings
from tidelog.wire.fetch import FetchPartition

Key = tuple[bytes, int]
"""A topic's id and a partition."""


BEHIND_FACTOR: Final = 8


class Followed(Protocol):
    """One partition while it follows one leader in one epoch."""

    @property
    def topic_id(self) -> bytes: ...

    @property
    def index(self) -> int: ...

    @property
    def leader_epoch(self) -> int: ...

    def fetch_position(self) -> tuple[int, int, int]:
        """The offset to fetch from, the epoch of the record before it, the log start offset."""

    def fetched(
        self,
        leader_epoch: int,
        error: int,
        high_watermark: int,
        log_start_offset: int,
        diverging: tuple[int, int] | None,
        records: memoryview | None,
    ) -> bool | None:
        """Takes in an answer, which was asked for under that epoch; the records are good during
        the call only. False: it shall be asked for again after a pause only. None: when
        `Fetchers.ready` says so, for it is still being written."""

    def fetched_in_part(
        self,
        leader_epoch: int,
        high_watermark: int,
        log_start_offset: int,
        records: memoryview,
    ) -> int | None:
        """Takes in what it can of the records of an answer that is still coming, and returns how
        many bytes that were: the next call, or `fetched`, has what comes behind them. The records
        are good during the call only. None: it failed, and shall be asked for again after a pause
        only."""


# In which condition a partition is. Plain numbers: to name a member of an enum takes as long as
# all else that is done with them.
WANTED: Final = 0
APPLYING: Final = 1
"""It is being given an answer."""
BUSY: Final = 2
"""What it was given is being written."""
RESTING: Final = 3
"""It failed a moment ago."""
HELD: Final = 4
"""It is throttled."""
GONE: Final = 5


class Tracked:
    """A partition and what its leader was told of it last."""

    __slots__ = ("condition", "epoch", "is_behind", "key", "partition", "pause_ms", "taken", "told")

    def __init__(self, partition: Followed) -> None:
        self.partition = partition
        self.key: Key = (partition.topic_id, partition.index)
        self.epoch = partition.leader_epoch
        self.condition: int = WANTED
        self.pause_ms = 0
        """How long it last rested, until it is well again."""
        self.told: FetchPartition | None = None
        self.is_behind = False
        """Whether there was more for it than it may be given at once."""
        self.taken = 0
        """How many bytes it has of the answer that is coming."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchLimits:
    wait_ms_max: int
    bytes_min: int
    bytes_max: int
    partition_bytes_max: int
    behind_bytes_max: int
    """What is asked for of a partition that is behind: it is taken in while it comes, so the more
    it is, the less often both sides wait for one another."""
    pause_ms: int
    timeout_ms: int

    @classmethod
    def of(cls, settings: Settings) -> "FetchLimits":
        bytes_max = settings.whole("replica.fetch.response.max.bytes")
        partition_bytes_max = settings.whole("replica.fetch.max.bytes")
        return cls(
            wait_ms_max=settings.whole("replica.fetch.wait.max.ms"),
            bytes_min=settings.whole("replica.fetch.min.bytes"),
            bytes_max=bytes_max,
            partition_bytes_max=partition_bytes_max,
            behind_bytes_max=max(
                partition_bytes_max, min(BEHIND_FACTOR * partition_bytes_max, bytes_max)
            ),
            pause_ms=settings.whole("replica.fetch.backoff.ms"),
            timeout_ms=settings.whole("replica.socket.timeout.ms"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Follower:
    """Who fetches: this broker, and under which epoch it is registered."""

    broker_id: int
    broker_epoch: Callable[[], int]
