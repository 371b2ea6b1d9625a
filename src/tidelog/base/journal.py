"""What a coordinator of groups or transactions keeps, and the log it keeps it in.

Each partition of `__consumer_offsets` and `__transaction_state` is the journal of one shard of a
coordinator, on the broker that leads it. What a shard knows and must not lose comes to it through
`replay` alone: when the partition begins to be led here its records are replayed, and a change is
appended first and replayed then. So whoever leads next comes to the same.

A change that is appended is not committed yet. Nobody is told of it, nor of anything it led to,
before it is: answers go through the `committed` of the append, or through `settle`.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from tidelog.base.errors import KafkaError
from tidelog.base.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

Committed = Callable[[KafkaError | None], None]


class Entry(NamedTuple):
    """A record of a journal; without a value it says that the key is no more."""

    key: bytes
    value: bytes | None


class Origin(NamedTuple):
    """Where a record that is replayed comes from."""

    offset: int
    timestamp_ms: int
    producer_id: int = NO_PRODUCER_ID
    """Of the transaction it belongs to, if it is part of one: it counts once that is committed."""
    producer_epoch: int = NO_PRODUCER_EPOCH


class Journal(Protocol):
    @property
    def index(self) -> int:
        """Which partition of its topic it is."""

    @property
    def leader_epoch(self) -> int:
        """The epoch in which this broker leads it: a coordinator's epoch."""

    def append(
        self,
        entries: Sequence[Entry],
        committed: Committed,
        producer: tuple[int, int] | None = None,
        *,
        must_fit: bool = True,
    ) -> Origin:
        """Appends entries as one batch, of a producer's open transaction if one is named by id
        and epoch. Raises if that cannot be, and then nothing has changed. `committed` is called
        once, maybe before this returns: with an error if that did not come to pass in time. What
        has to be written however small a batch must be need not fit."""

    def settle(self, committed: Committed) -> None:
        """Calls back once all that is in the journal now is committed; at once if it is."""


class Shard(Protocol):
    def replay(self, entry: Entry, origin: Origin) -> None:
        """Takes in a record, in the order of the journal."""

    def replay_marker(self, producer_id: int, producer_epoch: int, *, is_commit: bool) -> None:
        """A transaction, some of whose records may be in this journal, has ended."""

    def start(self) -> None:
        """All there was has been replayed: from here on requests are served."""

    def stop(self) -> None:
        """Another broker is to go on: everyone who waits is sent there, no timer runs on."""

    def topics_changed(self) -> None:
        """Topics were made, deleted or have grown."""
