# mypy: disable-error-code="import-untyped"
"""What the state nodes of a topic said, one after the other, and whether they may have (V9, V10).

A watch on each partition's state node notes every version it sees; some may be missed when they
follow each other closely, none is seen twice or out of order. `wrong` looks at all of them:
versions and epochs never fall, one broker leads in an epoch, and the ISR is a part of the
replicas with the leader in it.
"""

import json
from dataclasses import dataclass
from itertools import pairwise
from threading import Lock
from typing import Any

from kazoo.client import KazooClient
from kazoo.recipe.watchers import DataWatch


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    partition: int
    version: int
    state: dict[str, Any]


class StateRecorder:
    def __init__(self, client: KazooClient, topic: str, replicas: dict[int, list[int]]) -> None:
        self._replicas = {index: set(brokers) for index, brokers in replicas.items()}
        self._seen: list[Seen] = []
        self._lock = Lock()
        for index in replicas:
            path = f"/brokers/topics/{topic}/partitions/{index}/state"
            DataWatch(client, path, self._recorder(index))

    def _recorder(self, index: int) -> Any:
        def record(data: bytes | None, status: Any) -> None:
            if data is not None:
                seen = Seen(partition=index, version=status.version, state=json.loads(data))
                with self._lock:
                    self._seen.append(seen)

        return record

    def allow(self, index: int, replicas: list[int]) -> None:
        """The partition is being moved there."""
        self._replicas[index] |= set(replicas)

    def wrong(self) -> list[str]:
        with self._lock:
            seen = list(self._seen)
        found = [what for one in seen for what in self._wrong_by_itself(one)]
        for index in self._replicas:
            found += _wrong_in_a_row([one for one in seen if one.partition == index])
        return found

    @property
    def count(self) -> int:
        return len(self._seen)

    def _wrong_by_itself(self, seen: Seen) -> list[str]:
        leader, isr = seen.state["leader"], seen.state["isr"]
        rules = {
            "the leader is not in the ISR": leader == -1 or leader in isr,
            "the ISR is empty": bool(isr),
            "the ISR names one twice": len(set(isr)) == len(isr),
            "the ISR is more than the replicas": set(isr) <= self._replicas[seen.partition],
            "a member of the ISR has no broker epoch": set(seen.state["broker_epochs"])
            >= {str(member) for member in isr},
        }
        return [f"{what}: {seen}" for what, holds in rules.items() if not holds]


def _never_fall(before: Seen, after: Seen) -> bool:
    names = ("leader_epoch", "controller_epoch")
    epochs = all(before.state[name] <= after.state[name] for name in names)
    return epochs and before.version <= after.version


def _wrong_in_a_row(seen: list[Seen]) -> list[str]:
    found = []
    leaders: dict[int, int] = {}
    for before, after in pairwise(seen):
        if not _never_fall(before, after):
            found.append(f"something fell: {before} {after}")
    for one in seen:
        epoch, leader = one.state["leader_epoch"], one.state["leader"]
        if leaders.setdefault(epoch, leader) != leader:
            found.append(f"two led in epoch {epoch}: {leaders[epoch]} and {one}")
    return found
