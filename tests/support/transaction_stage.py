"""A shard of a coordinator of transactions on a simulated clock, with its journal and its markers.

The journal commits at once, or when it is told to; markers are written when they are told to be.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.base.ids import TopicPartition
from tidelog.base.journal import Committed, Entry, Origin
from tidelog.base.settings import Settings
from tidelog.transactions.requests import Add, Begin, End, Wanted
from tidelog.transactions.shard import TransactionShard
from tidelog.transactions.state import Producer, Transaction
from tidelog.transactions.surroundings import Ending, TransactionSurroundings
from tidelog.world.sim.loop import SimLoop

A = TopicPartition("alpha", 0)
B = TopicPartition("beta", 3)
BYTES_MAX = 1 << 20
"""What a journal takes at once."""


class SimJournal:
    """A journal whose entries are kept by whoever made it, so that they outlive a shard."""

    def __init__(self, loop: SimLoop, entries: list[Entry], leader_epoch: int) -> None:
        self._loop = loop
        self.entries = entries
        self.leader_epoch = leader_epoch
        self.index = 0
        self.is_committing = True
        self.bytes_max = BYTES_MAX
        self.refusal: KafkaError | None = None
        self._has_uncommitted = False
        self._waiting: list[Committed] = []

    def append(
        self,
        entries: Sequence[Entry],
        committed: Committed,
        producer: tuple[int, int] | None = None,
        *,
        must_fit: bool = True,
    ) -> Origin:
        assert producer is None
        if self.refusal is not None:
            raise self.refusal
        size = sum(len(entry.key) + len(entry.value or b"") for entry in entries)
        if must_fit and size > self.bytes_max:
            raise refusal(ErrorCode.message_too_large)
        self.entries += entries
        self._has_uncommitted = not self.is_committing
        self.settle(committed)
        return Origin(len(self.entries) - len(entries), self._loop.clock.now_ms())

    def settle(self, committed: Committed) -> None:
        if self._has_uncommitted:
            self._waiting.append(committed)
        else:
            committed(None)

    def end(self, error: KafkaError | None = None) -> None:
        """What was appended is committed, or is not in time."""
        self._has_uncommitted = error is not None
        waiting, self._waiting = self._waiting, []
        for committed in waiting:
            committed(error)


class HeldMarkers:
    """Markers that are asked for, and written when the test says so."""

    def __init__(self) -> None:
        self.asked: list[tuple[Ending, Callable[[], bool], Callable[[KafkaError | None], None]]]
        self.asked = []

    def write(
        self, ending: Ending, is_over: Callable[[], bool], done: Callable[[KafkaError | None], None]
    ) -> None:
        self.asked.append((ending, is_over, done))

    @property
    def endings(self) -> list[Ending]:
        return [ending for ending, is_over, _ in self.asked if not is_over()]

    def written(self, error: KafkaError | None = None) -> None:
        asked, self.asked = self.asked, []
        for _, is_over, done in asked:
            if not is_over():
                done(error)


class TransactionStage:
    def __init__(self, **settings: Any) -> None:
        named = {name.replace("_", "."): value for name, value in settings.items()}
        self.settings = Settings.of({"log.dirs": "/data", **named})
        self.loop = SimLoop()
        self.clock = self.loop.clock
        self.entries: list[Entry] = []
        self.markers = HeldMarkers()
        self.producer_id = 1000
        self.failing_ids: KafkaError | None = None
        self.journal = SimJournal(self.loop, self.entries, 1)
        self.shard = self._load()

    def lead(self) -> None:
        """Another broker leads the partition now, and loads it."""
        self.shard.stop()
        epoch = self.journal.leader_epoch + 1
        self.journal = SimJournal(self.loop, self.entries, epoch)
        self.shard = self._load()

    def _load(self) -> TransactionShard:
        around = TransactionSurroundings(
            clock=self.clock,
            loop=self.loop,
            settings=lambda: self.settings,
            markers=self.markers,
            next_producer_id=self._next_id,
        )
        shard = TransactionShard(self.journal, around)
        for offset, entry in enumerate(list(self.entries)):
            shard.replay(entry, Origin(offset, 0))
        shard.start()
        return shard

    def _next_id(self, done: Callable[[int | KafkaError], None]) -> None:
        if self.failing_ids is not None:
            done(self.failing_ids)
            return
        self.producer_id += 1
        given = self.producer_id
        self.loop.call_soon(lambda: done(given))

    # -- asking

    def begin(
        self, expected: Producer | None = None, *, name: str = "t", timeout_ms: int = 60_000
    ) -> Producer | str:
        told: list[Producer | KafkaError] = []
        asked = Begin(transactional_id=name, timeout_ms=timeout_ms, expected=expected)
        self.shard.begin(asked, told.append)
        self.loop.run_for(1)
        return _only(told)

    def began(self, **options: Any) -> Producer:
        """A producer that begins, however often it must ask."""
        for _ in range(3):
            told = self.begin(**options)
            if isinstance(told, Producer):
                return told
            assert told == "concurrent_transactions", told
            self.markers.written()
        raise AssertionError("it does not begin")

    def add(
        self, producer: Producer, *partitions: TopicPartition, version: int = 0, name: str = "t"
    ) -> str:
        told: list[KafkaError | None] = []
        asked = Add(
            transactional_id=name,
            producer=producer,
            partitions=partitions or (A,),
            client_version=version,
        )
        self.shard.add_partitions(asked, told.append)
        self.loop.run_for(1)
        return _code(told)

    def verify(self, producer: Producer, *partitions: TopicPartition) -> list[TopicPartition] | str:
        told: list[list[TopicPartition] | KafkaError] = []
        asked = Add(transactional_id="t", producer=producer, partitions=partitions or (A,))
        self.shard.verify_partitions(asked, told.append)
        return _only(told)

    def end(
        self, producer: Producer, *, commit: bool = True, version: int = 0, name: str = "t"
    ) -> Producer | str:
        told: list[Producer | KafkaError] = []
        asked = End(
            transactional_id=name, producer=producer, is_commit=commit, client_version=version
        )
        self.shard.end(asked, told.append)
        self.loop.run_for(1)
        return _only(told)

    def described(self, name: str = "t") -> Transaction:
        told: list[Transaction | KafkaError] = []
        self.shard.describe(name, told.append)
        (found,) = told
        assert isinstance(found, Transaction), found
        return found

    @property
    def status(self) -> str:
        return self.described().status.name

    def listed(self, wanted: Wanted | None = None) -> list[str]:
        told: list[list[Transaction] | KafkaError] = []
        self.shard.select(Wanted() if wanted is None else wanted, told.append)
        (found,) = told
        assert not isinstance(found, KafkaError), found
        return [each.transactional_id for each in found]


def refusal(code: ErrorCode) -> KafkaError:
    return KafkaError(code, "as the test wants it")


Answer = TypeVar("Answer")


def _only(told: Sequence[Answer | KafkaError]) -> Answer | str:
    """The one answer, or the name of its error; «nothing» if there is none yet."""
    if not told:
        return "nothing"
    (answer,) = told
    return answer.code.name if isinstance(answer, KafkaError) else answer


def _code(told: list[KafkaError | None]) -> str:
    return str(_only(told) or "none")
