"""Members of a group, of either protocol, as a client's group code is and nothing more.

A classic member joins, is told its generation, gets its part from whoever leads, and hears in a
heartbeat that it has to join again. A newer one is told in its heartbeats what it is to have, and
says so at once when it has it, as clients do. Heartbeats go out at a fixed interval.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, Protocol
from uuid import UUID, uuid4

from bench.groups.crowd import Crowd
from bench.load.frames import Topic
from tidelog.base.errors import ErrorCode
from tidelog.groups.consumer_protocol import read_assignment, write_assignment
from tidelog.records.fields import FieldWriter

JOIN_GROUP, HEARTBEAT, LEAVE_GROUP, SYNC_GROUP, CONSUMER_HEARTBEAT = 11, 12, 13, 14, 68
INTERVAL_SECONDS = 0.5
_SESSION_MS, _REBALANCE_MS = 600_000, 60_000
_LEAVING = -1
_AGAIN = (ErrorCode.rebalance_in_progress, ErrorCode.coordinator_load_in_progress)


class Member(Protocol):
    step: int
    """The generation or epoch it has come to; -1 while it is on its way."""
    partitions: tuple[int, ...]

    def join(self) -> None: ...

    def leave(self) -> None: ...


class Beating(ABC):
    """A connection, and a heartbeat on it at a fixed interval for as long as one is a member."""

    def __init__(self, crowd: Crowd, group_id: str, topic: Topic, name: str) -> None:
        self.step = -1
        self.partitions: tuple[int, ...] = ()
        self.group_id, self.topic = group_id, topic
        self._crowd = crowd
        self._link = crowd.connect(name)
        self._is_gone = False

    def start_beating(self, after_seconds: float) -> None:
        self._beat_at(time.monotonic() + after_seconds)

    def _beat_at(self, due: float) -> None:
        def beat() -> None:
            if not self._is_gone:
                self.beat()
                self._beat_at(due + INTERVAL_SECONDS)

        self._crowd.call_at(due, beat)

    @abstractmethod
    def beat(self) -> None:
        """Says that it is still there."""

    def _left(self, _answer: Any) -> None:
        self._crowd.disconnect(self._link)

    def _refused(self, what: str, code: ErrorCode) -> RuntimeError:
        return RuntimeError(f"{what} of a member of {self.group_id}: {code.name}")


class ClassicMember(Beating):
    def __init__(self, crowd: Crowd, group_id: str, topic: Topic, partitions: int) -> None:
        super().__init__(crowd, group_id, topic, "classic")
        self.member_id = ""
        self.generation = -1
        self._all = range(partitions)

    def join(self) -> None:
        self.step = -1
        subscription = FieldWriter(0).count(1).text(self.topic.name).data(None).done()
        values = {
            **self._whose(),
            "session_timeout": _SESSION_MS,
            "rebalance_timeout": _REBALANCE_MS,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": subscription}],
        }
        self._link.send(JOIN_GROUP, 9, values, self._joined)

    def _joined(self, answer: Any) -> None:
        self.member_id = answer.member_id
        if answer.error_code in (ErrorCode.member_id_required, *_AGAIN):
            self.join()
            return
        if answer.error_code is not ErrorCode.none:
            raise self._refused("JoinGroup", answer.error_code)
        self.generation = answer.generation_id
        parts: Sequence[dict[str, Any]] = []
        if answer.leader == self.member_id:
            parts = self._spread([member.member_id for member in answer.members])
        values = {
            **self._whose(),
            "generation_id": self.generation,
            "protocol_type": "consumer",
            "protocol_name": "range",
            "assignments": parts,
        }
        self._link.send(SYNC_GROUP, 5, values, self._synced)

    def _synced(self, answer: Any) -> None:
        if answer.error_code in _AGAIN:
            self.join()
            return
        if answer.error_code is not ErrorCode.none:
            raise self._refused("SyncGroup", answer.error_code)
        self.partitions = read_assignment(answer.assignment).get(self.topic.name, ())
        self.step = self.generation

    def beat(self) -> None:
        if self.step >= 0:
            values = {**self._whose(), "generation_id": self.generation}
            self._link.send(HEARTBEAT, 4, values, self._beaten)

    def _beaten(self, answer: Any) -> None:
        if answer.error_code is ErrorCode.none or self.step < 0:
            return
        if answer.error_code is not ErrorCode.rebalance_in_progress:
            raise self._refused("Heartbeat", answer.error_code)
        self.join()

    def leave(self) -> None:
        self._is_gone = True
        members = [{"member_id": self.member_id, "group_instance_id": None, "reason": None}]
        values = {"group_id": self.group_id, "members": members}
        self._link.send(LEAVE_GROUP, 5, values, self._left)

    def _whose(self) -> dict[str, Any]:
        return {"group_id": self.group_id, "member_id": self.member_id, "group_instance_id": None}

    def _spread(self, member_ids: Sequence[str]) -> list[dict[str, Any]]:
        return [
            {
                "member_id": member_id,
                "assignment": write_assignment(
                    0, {self.topic.name: tuple(self._all[number :: len(member_ids)])}
                ),
            }
            for number, member_id in enumerate(sorted(member_ids))
        ]


class NewerMember(Beating):
    def __init__(self, crowd: Crowd, group_id: str, topic: Topic, partitions: int) -> None:
        del partitions
        super().__init__(crowd, group_id, topic, "newer")
        self._member_id = str(uuid4())
        self._epoch = 0

    def join(self) -> None:
        says = {
            "rebalance_timeout": _REBALANCE_MS,
            "subscribed_topic_names": [self.topic.name],
            "topic_partitions": [],
        }
        self._say(says)

    def beat(self) -> None:
        if self._epoch > 0:
            self._say({})

    def leave(self) -> None:
        self._is_gone = True
        self._epoch = _LEAVING
        self._say({})

    def _say(self, says: dict[str, Any]) -> None:
        """What is not said is as it was."""
        values = {
            "group_id": self.group_id,
            "member_id": self._member_id,
            "member_epoch": self._epoch,
            "rebalance_timeout": -1,
            "subscribed_topic_names": None,
            "subscribed_topic_regex": None,
            "topic_partitions": None,
            **says,
        }
        told = self._left if self._is_gone else self._told
        self._link.send(CONSUMER_HEARTBEAT, 1, values, told)

    def _told(self, answer: Any) -> None:
        if self._is_gone:
            return
        if answer.error_code is not ErrorCode.none:
            raise self._refused("ConsumerGroupHeartbeat", answer.error_code)
        self.step = self._epoch = answer.member_epoch
        if answer.assignment is not None:
            found = tuple(n for one in answer.assignment.topic_partitions for n in one.partitions)
            if found != self.partitions:
                self.partitions = found
                owned = {"topic_id": UUID(bytes=self.topic.topic_id), "partitions": found}
                self._say({"topic_partitions": [owned] if found else []})


def has_settled(members: Sequence[Member], partitions: int, after: int) -> bool:
    """All of them in one generation after that, and every partition with one of them."""
    steps = {member.step for member in members}
    if len(steps) != 1 or min(steps) <= after:
        return False
    return owned(members) == list(range(partitions))


def owned(members: Iterable[Member]) -> list[int]:
    return sorted(number for member in members for number in member.partitions)
