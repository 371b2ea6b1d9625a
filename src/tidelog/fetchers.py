"""All that this broker fetches from leaders: which partition is asked for by which fetcher.

Each leader is asked by `num.replica.fetchers` fetchers, each over a connection of its own; a
partition always belongs to the same one of them. Fetchers are made for the first partition they
have and end with the last.
"""

from collections.abc import Callable
from functools import partial

from tidelog.base.settings import Settings
from tidelog.fetch_throttle import FetchThrottle
from tidelog.fetcher import Fetcher
from tidelog.followed import BUSY, FetchLimits, Followed, Follower, Key, Tracked
from tidelog.peers.link import Address, Link, Wiring

__all__ = ["Fetchers", "Followed"]


def _never(_topic_id: bytes, _index: int) -> bool:
    return False


class Fetchers:
    def __init__(
        self,
        wiring: Wiring,
        address_of: Callable[[int], Address | None],
        settings: Settings,
        broker_id: int,
        broker_epoch: Callable[[], int],
        is_throttled: Callable[[bytes, int], bool] = _never,
    ) -> None:
        """`is_throttled` tells of a topic id and a partition whether this broker's replica is
        named in `follower.replication.throttled.replicas`."""
        self._wiring = wiring
        self._address_of = address_of
        self._follower = Follower(broker_id=broker_id, broker_epoch=broker_epoch)
        self._limits = FetchLimits.of(settings)
        self._count = settings.whole("num.replica.fetchers")
        self._throttle = FetchThrottle(
            settings.whole("follower.replication.throttled.rate"),
            is_throttled,
            self._release,
            wiring.loop,
            wiring.clock,
        )
        self._fetchers: dict[tuple[int, int], Fetcher] = {}
        self._homes: dict[Key, tuple[Fetcher, Tracked]] = {}
        self._is_closed = False

    def follow(self, partition: Followed, leader_id: int) -> None:
        """From now on a partition is fetched from a leader. It is to be called for every new
        leader epoch; what was asked for under an earlier one is dropped. Once all is closed
        nothing is: the logs will be closed too, and must not grow after that."""
        if self._is_closed:
            return
        key = (partition.topic_id, partition.index)
        tracked = Tracked(partition)
        home = self._homes.get(key)
        if home is not None:
            fetcher, known = home
            if known.partition is partition:
                if (fetcher.leader_id, known.epoch) == (leader_id, tracked.epoch):
                    return
                if known.condition == BUSY:
                    tracked.condition = BUSY
            self._remove(fetcher, known)
        self._add(tracked, leader_id)

    def unfollow(self, partition: Followed) -> None:
        """It is not fetched any more; an answer that is under way is dropped."""
        home = self._homes.get((partition.topic_id, partition.index))
        if home is not None and home[1].partition is partition:
            self._remove(*home)

    def ready(self, partition: Followed) -> None:
        """What it was given has been written; or it has moved by itself."""
        home = self._homes.get((partition.topic_id, partition.index))
        if home is not None and home[1].partition is partition:
            fetcher, tracked = home
            fetcher.ready(tracked)

    def configure(self, settings: Settings) -> None:
        """Settings have changed, of the broker or of topics; they count from the next fetch on.
        What is held may not be named as throttled any more."""
        self._limits = FetchLimits.of(settings)
        for fetcher in self._fetchers.values():
            fetcher.limits = self._limits
        self._throttle.set_rate(settings.whole("follower.replication.throttled.rate"))
        count = settings.whole("num.replica.fetchers")
        if count != self._count:
            self._count = count
            self._spread()
        self._release()

    def close(self) -> None:
        self._is_closed = True
        self._throttle.close()
        for fetcher in self._fetchers.values():
            fetcher.close()
        self._fetchers.clear()
        self._homes.clear()

    # -- fetchers

    def _add(self, tracked: Tracked, leader_id: int) -> None:
        topic_id, index = tracked.key
        slot = (31 * int.from_bytes(topic_id[:4], "big") + index) % self._count
        fetcher = self._fetchers.get((leader_id, slot))
        if fetcher is None:
            link = Link(self._wiring, partial(self._address_of, leader_id))
            fetcher = self._fetchers[leader_id, slot] = Fetcher(
                leader_id, link, self._wiring, self._follower, self._throttle, self._limits
            )
        self._homes[tracked.key] = (fetcher, tracked)
        fetcher.add(tracked)

    def _remove(self, fetcher: Fetcher, tracked: Tracked) -> None:
        fetcher.remove(tracked)
        del self._homes[tracked.key]
        if fetcher.is_empty:
            # Most that leave come back at once, under the next epoch.
            self._wiring.loop.call_soon(self._close_empty)

    def _close_empty(self) -> None:
        for place, fetcher in list(self._fetchers.items()):
            if fetcher.is_empty:
                fetcher.close()
                del self._fetchers[place]

    def _spread(self) -> None:
        """Every partition goes to the fetcher it belongs to by now."""
        for fetcher, tracked in list(self._homes.values()):
            again = Tracked(tracked.partition)
            if tracked.condition == BUSY:
                again.condition = BUSY
            self._remove(fetcher, tracked)
            self._add(again, fetcher.leader_id)

    def _release(self) -> None:
        for fetcher in self._fetchers.values():
            fetcher.release()
