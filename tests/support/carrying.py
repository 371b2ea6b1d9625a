"""A pipeline of real processes from one topic to another, and what must come out of it.

Records are written to the source throughout; carriers bring them over; somebody reads the target,
committed records only. Each goes to the partition of the same number, so each partition of the
target must hold just what that of the source does, in the same order.
"""

from collections import Counter
from pathlib import Path
from typing import Final

from support.carrier import DOOM
from support.client_process import ClientProcess
from support.cluster_processes import Cluster, wait_until
from support.history_checker import Key, Poll
from support.workload import Reader, Writer, now
from tidelog.base.ids import CONSUMER_OFFSETS, TRANSACTION_STATE
from tidelog.coordinators import hash_of

PARTITIONS: Final = 4
CARRIERS: Final = 2
SECONDS_MAX: Final = 120.0
PAUSE_S: Final = 0.02
COMMITTED_ONLY: Final = {"isolation.level": "read_committed"}


class Output:
    """What somebody reads of the target, who sees what is committed."""

    def __init__(self, name: str, bootstrap: str, topic: str) -> None:
        self.name = name
        self._keys = [(topic, index) for index in range(PARTITIONS)]
        self._reader = Reader(name, bootstrap, self._keys, **COMMITTED_ONLY)
        self._taken = 0
        self._values: list[list[str]] = [[] for _ in self._keys]
        self._reader.start()

    def values(self, index: int) -> list[str]:
        """All, so far, of a partition."""
        fresh = self._reader.operations[self._taken :]
        self._taken += len(fresh)
        for one in fresh:
            if isinstance(one, Poll):
                self._values[one.key[1]] += [str(value) for _, value in one.records]
        return self._values[index]

    def check(self, index: int, expected: list[str]) -> None:
        def is_through() -> bool:
            return expected[-1] in self.values(index)[-500:]

        try:
            wait_until(is_through, "all is read", SECONDS_MAX)
        finally:
            assert self.values(index) == expected, self._wrong(index, expected)
        assert not self._reader.errors, self._reader.errors[:3]

    def _wrong(self, index: int, expected: list[str]) -> str:
        found = self.values(index)
        doomed = [value for value in found if value.startswith(DOOM)]
        twice = [value for value, times in Counter(found).items() if times > 1]
        missing = sorted(set(expected) - set(found))
        return (
            f"{self.name}, {self._keys[index]}: {len(found)} of {len(expected)} read, "
            f"missing {len(missing)} {missing[:5]}, twice {len(twice)} {twice[:5]}, "
            f"aborted {len(doomed)} {doomed[:5]}"
        )

    def stop(self) -> None:
        self._reader.stop()


class Carrying:
    def __init__(self, cluster: Cluster, topic: str, folder: Path) -> None:
        self.cluster = cluster
        self.source, self.target = f"{topic}-in", f"{topic}-out"
        self.group = f"group-{topic}"
        for name in (self.source, self.target):
            cluster.create(name, PARTITIONS)
        self._sources = [(self.source, index) for index in range(PARTITIONS)]
        self._writer = Writer("in", cluster.bootstrap, self._sources)
        self._writer.pause_s = PAUSE_S
        self._output = Output("out", cluster.bootstrap, self.target)
        way = (cluster.bootstrap, self.source, self.target, self.group)
        self.carriers = [
            ClientProcess("carrier.py", folder, f"carrier-{topic}-{number}", *way)
            for number in range(CARRIERS)
        ]

    def start(self) -> None:
        self._writer.start()
        for carrier in self.carriers:
            carrier.start()
        self.wait_for_more()

    def wait_for_more(self) -> float:
        """Until something that is written from now on has been carried over, in each partition;
        how long that took."""
        since, acknowledged = now(), len(self._writer.sends)
        waiting = set(range(PARTITIONS))

        def all_through() -> bool:
            sends = self._writer.sends[acknowledged:]
            fresh = {send.values[0] for send in sends if send.invoked >= since}
            waiting.difference_update(
                index
                for index in sorted(waiting)
                if not fresh.isdisjoint(self._output.values(index)[-500:])
            )
            return not waiting

        try:
            return wait_until(all_through, "more comes through", SECONDS_MAX)
        except AssertionError as error:
            raise AssertionError(f"{error}, in {waiting}: {self.words}") from error

    @property
    def words(self) -> list[str]:
        return [carrier.words for carrier in self.carriers]

    def place(self, what: str) -> Key:
        """The partition whose leader is meant."""
        if what == "transaction coordinator":
            return place_of(self.cluster, TRANSACTION_STATE, self.carriers[0].name)
        if what == "group coordinator":
            return place_of(self.cluster, CONSUMER_OFFSETS, self.group)
        assert what == "leader of the output"
        return self.target, 0

    def wait_in_sync(self) -> None:
        for topic in (self.source, self.target, CONSUMER_OFFSETS, TRANSACTION_STATE):
            self.cluster.wait_in_sync(topic)

    def check(self) -> int:
        """All that was written came through, once, in order, and nothing else; how much it was.
        One who comes late reads the same."""
        assert self._writer.stop() == 0
        assert not self._writer.errors, self._writer.errors[:3]
        expected = [self._written(key) for key in self._sources]
        late = Output("late", self.cluster.bootstrap, self.target)
        try:
            for output in (self._output, late):
                for index, values in enumerate(expected):
                    output.check(index, values)
        finally:
            late.stop()
        return sum(map(len, expected))

    def _written(self, key: Key) -> list[str]:
        sends = sorted((s.offsets[0], str(s.values[0])) for s in self._writer.sends if s.key == key)
        assert [offset for offset, _ in sends] == list(range(len(sends)))
        return [value for _, value in sends]

    def close(self) -> None:
        for carrier in self.carriers:
            carrier.kill()
        self._writer.stop(0)
        self._output.stop()


def place_of(cluster: Cluster, topic: str, name: str) -> Key:
    """The partition of an internal topic that a group or a transactional id belongs to."""
    return topic, hash_of(name) % len(cluster.tree.replicas(topic))
