"""Holding back replication of the replicas that settings name, so that moving them does not
crowd out everything else: what is fetched here as follower, and what is sent from here as leader.

Settings of a topic name replicas as `partition:broker`, or all of them as `*`; settings of the
broker say how many bytes a second they may take together. A replica in sync is never held: its
leader knows that first.
"""

from collections.abc import Callable, Mapping
from typing import Final, Protocol

from tidelog.base.ports import Clock, Loop
from tidelog.base.settings import Settings
from tidelog.cluster.image import Image
from tidelog.fetch_throttle import FetchThrottle

LEADER_RATE: Final = "leader.replication.throttled.rate"
LEADER_REPLICAS: Final = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS: Final = "follower.replication.throttled.replicas"


class Held(Protocol):
    """A follower's position that waits for its turn."""

    def wake(self) -> None: ...


class LeaderThrottle:
    def __init__(
        self,
        image: Callable[[], Image],
        settings: Callable[[], Settings],
        loop: Loop,
        clock: Clock,
    ) -> None:
        self._image = image
        self._settings = settings
        self._held: dict[Held, None] = {}
        rate = settings().whole(LEADER_RATE)
        self._throttle = FetchThrottle(rate, self._is_named, self._release, loop, clock)
        self._follower = -1

    def configure(self) -> None:
        """Settings have changed, of the broker or of topics: who is held may not be any more."""
        self._throttle.set_rate(self._settings().whole(LEADER_RATE))
        self._release()

    @property
    def is_over(self) -> bool:
        """Whether anybody may be held now."""
        return self._throttle.is_over

    def holds(self, topic_id: bytes, index: int, follower: int, position: Held) -> bool:
        """Whether a follower gets nothing for now; then it is woken when it does."""
        self._follower = follower
        if not self._throttle.holds(topic_id, index):
            return False
        self._held[position] = None
        return True

    def sent(self, topic_id: bytes, index: int, follower: int, size: int) -> None:
        self._follower = follower
        self._throttle.took(topic_id, index, size)

    def close(self) -> None:
        self._throttle.close()

    def _is_named(self, topic_id: bytes, index: int) -> bool:
        return is_named(self._image(), topic_id, index, self._follower, LEADER_REPLICAS)

    def _release(self) -> None:
        held, self._held = self._held, {}
        for position in held:
            position.wake()


def is_named(image: Image, topic_id: bytes, index: int, broker_id: int, setting: str) -> bool:
    """Whether a topic's setting names the replica of a partition on a broker."""
    name = image.topic_names.get(topic_id)
    if name is None:
        return False
    topic = image.topics[name]
    partition = topic.partitions[index] if index < len(topic.partitions) else None
    if partition is None or broker_id in partition.isr:
        return False
    return _names(topic.config, setting, f"{index}:{broker_id}")


def _names(config: Mapping[str, str], setting: str, replica: str) -> bool:
    words = [word.strip() for word in config.get(setting, "").split(",")]
    return "*" in words or replica in words
