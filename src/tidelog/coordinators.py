"""The coordinators of this broker: of groups, and of transactions.

Which broker looks after a group or a transactional id follows from its name: it is hashed, as Java
hashes text, to a partition of `__consumer_offsets` or `__transaction_state`, and whoever leads
that partition is the coordinator. When a partition begins to be led here, a shard is made and
loaded from it; when it is led elsewhere, the shard sends everyone there and is forgotten.
"""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Final, Generic, TypeVar

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.base.ids import CONSUMER_OFFSETS, TRANSACTION_STATE
from tidelog.base.journal import Journal, Shard
from tidelog.base.ports import Clock, Entropy, Loop
from tidelog.base.settings import Settings
from tidelog.cluster.image import Image
from tidelog.disk_work import DiskWork
from tidelog.groups.shard import GroupShard
from tidelog.groups.surroundings import GroupSurroundings
from tidelog.healing import Healing
from tidelog.journal_loading import loading
from tidelog.journaling import PartitionJournal
from tidelog.marker_sending import Delivery, MarkerSender
from tidelog.partition import Partition
from tidelog.slices import Sliced, Slices
from tidelog.transactions.shard import TransactionShard
from tidelog.transactions.surroundings import TransactionSurroundings

_log = logging.getLogger("tidelog.coordinators")

_HASH_BITS: Final = 0xFFFFFFFF
_POSITIVE: Final = 0x7FFFFFFF
_SHORT: Final = 256
_AGAIN_MS: Final = 1_000

S = TypeVar("S", bound=Shard)


def hash_of(text: str) -> int:
    """Java's hash of a string, made positive the way Kafka does it: the absolute value of 32 bits
    with a sign, and 0 for the one that has none. Names come again with every request, so short ones
    are remembered."""
    return _known_hash(text) if len(text) <= _SHORT else _hash(text)


def _hash(text: str) -> int:
    found = 0
    data = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(data[::2], data[1::2], strict=True):
        found = (31 * found + (high << 8 | low)) & _HASH_BITS
    return min(found, _HASH_BITS + 1 - found) & _POSITIVE


_known_hash: Final = lru_cache(maxsize=4096)(_hash)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """What coordinators run in."""

    clock: Clock
    loop: Loop
    work: DiskWork
    slices: Slices
    healing: Healing
    image: Callable[[], Image]
    settings: Callable[[], Settings]


class _Held(Generic[S]):
    """A shard from the moment its partition is led here."""

    __slots__ = ("_journal", "failure", "is_loaded", "is_over", "shard")

    def __init__(self, shard: S, journal: PartitionJournal) -> None:
        self.shard = shard
        self._journal = journal
        self.is_loaded = False
        self.is_over = False
        self.failure: KafkaError | None = None

    def stop(self) -> None:
        """Whoever still has the shard in hand can neither change nor learn anything through it."""
        self.is_over = True
        self._journal.close()
        self.shard.stop()


class Coordinator(Generic[S]):
    def __init__(self, topic: str, make: Callable[[Journal], S], place: Place) -> None:
        self.topic = topic
        self._make = make
        self._place = place
        self._held: dict[int, _Held[S]] = {}

    # -- who asks

    def index_of(self, key: str) -> int | None:
        """The partition that a key belongs to; None as long as there is no such topic."""
        topic = self._place.image().topics.get(self.topic)
        return None if topic is None else hash_of(key) % len(topic.partitions)

    def find(self, key: str) -> S:
        """The shard that looks after a key, if it is here and has been loaded."""
        index = self.index_of(key)
        if index is None:
            raise KafkaError(
                ErrorCode.coordinator_not_available, f"{self.topic} does not exist yet"
            )
        return self.at(index)

    def at(self, index: int) -> S:
        """The shard of a partition, if it is here and has been loaded."""
        held = self._held.get(index)
        if held is None:
            what = f"{self.topic}-{index} is not led by this broker"
            raise KafkaError(ErrorCode.not_coordinator, what)
        if held.failure is not None:
            raise held.failure
        if not held.is_loaded:
            what = f"{self.topic}-{index} is being loaded"
            raise KafkaError(ErrorCode.coordinator_load_in_progress, what)
        return held.shard

    @property
    def is_loading(self) -> bool:
        return any(not held.is_loaded and held.failure is None for held in self._held.values())

    def shards(self) -> list[S]:
        """All that are here and have been loaded."""
        return [held.shard for held in self._held.values() if held.is_loaded]

    # -- what is led here

    def led_changed(self, partition: Partition) -> None:
        held = self._held.pop(partition.index, None)
        if held is not None:
            held.stop()
        if partition.is_led:
            self._load(partition)

    def _load(self, partition: Partition) -> None:
        place = self._place
        timeout_ms = partial(_commit_timeout_ms, place)
        journal = PartitionJournal(partition, place.clock, place.work, timeout_ms)
        held = self._held[partition.index] = _Held(self._make(journal), journal)
        place.slices.run(self._loading(partition, held), partial(self._failed, held, partition))

    def _loading(self, partition: Partition, held: _Held[S]) -> Sliced:
        settings = self._place.settings()
        is_groups = self.topic == CONSUMER_OFFSETS
        prefix = "offsets" if is_groups else "transaction.state.log"
        buffer_bytes = settings.whole(f"{prefix}.load.buffer.size")
        loop, is_over = self._place.loop, lambda: held.is_over
        noted = self._place.healing.took_note
        try:
            yield from loading(partition, held.shard, loop, buffer_bytes, is_over, noted)
        except KafkaError as error:
            _log.error("not loaded partition=%s why=%s", partition.name, error)
            self._failed(held, partition)
            return
        if not held.is_over:
            held.is_loaded = True
            held.shard.start()

    def _failed(self, held: _Held[S], partition: Partition) -> None:
        what = f"{partition.name} could not be loaded"
        held.failure = KafkaError(ErrorCode.coordinator_not_available, what)
        self._give_way(held, partition)

    def _give_way(self, held: _Held[S], partition: Partition) -> None:
        """If something has rotted another is to lead, as soon as one is in sync."""
        if held.is_over:
            return
        self._place.healing.consider(partition)
        if not held.is_over:
            at_ms = self._place.clock.monotonic_ms() + _AGAIN_MS
            self._place.loop.call_at(at_ms, partial(self._give_way, held, partition))

    def topics_changed(self) -> None:
        for shard in self.shards():
            shard.topics_changed()

    def stop(self) -> None:
        for held in self._held.values():
            held.stop()
        self._held.clear()


class Coordinators:
    """Both of them."""

    def __init__(
        self,
        place: Place,
        entropy: Entropy,
        deliver: Delivery,
        next_producer_id: Callable[[Callable[[int | KafkaError], None]], None],
    ) -> None:
        surroundings = GroupSurroundings(
            clock=place.clock,
            loop=place.loop,
            entropy=entropy,
            settings=place.settings,
            topics=ImageTopics(place.image),
        )
        self.groups: Coordinator[GroupShard] = Coordinator(
            CONSUMER_OFFSETS, lambda journal: GroupShard(journal, surroundings), place
        )
        around = TransactionSurroundings(
            clock=place.clock,
            loop=place.loop,
            settings=place.settings,
            markers=MarkerSender(place.loop, place.clock, place.image, deliver),
            next_producer_id=next_producer_id,
        )
        self.transactions: Coordinator[TransactionShard] = Coordinator(
            TRANSACTION_STATE, lambda journal: TransactionShard(journal, around), place
        )

    def led_changed(self, partition: Partition) -> None:
        """A partition begins to be led here, or no longer is."""
        if partition.topic == CONSUMER_OFFSETS:
            self.groups.led_changed(partition)
        elif partition.topic == TRANSACTION_STATE:
            self.transactions.led_changed(partition)

    def topics_changed(self) -> None:
        self.groups.topics_changed()
        self.transactions.topics_changed()

    def stop(self) -> None:
        self.groups.stop()
        self.transactions.stop()


def _commit_timeout_ms(place: Place) -> int:
    return place.settings().whole("offsets.commit.timeout.ms")


class ImageTopics:
    """The topics of the cluster, as groups look at them."""

    def __init__(self, image: Callable[[], Image]) -> None:
        self._image = image

    def names(self) -> Iterable[str]:
        return self._image().topics

    def partition_count(self, name: str) -> int | None:
        topic = self._image().topics.get(name)
        return None if topic is None else len(topic.partitions)

    def topic_id(self, name: str) -> bytes | None:
        topic = self._image().topics.get(name)
        return None if topic is None else topic.topic_id

    def is_gone(self, name: str) -> bool:
        image = self._image()
        return name not in image.topics and name not in image.unreadable

    def name_of(self, topic_id: bytes) -> str | None:
        return self._image().topic_names.get(topic_id)
