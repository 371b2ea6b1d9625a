"""Which control requests a broker may act on.

A controller that was deposed may not know it yet, and a request may be meant for a process that
has died since: the first carry a lower controller epoch than was seen before, the second another
broker epoch than the broker's own. One that was given up with its connection may come after those
that were sent later. It is looked at here, once, for all of them.
"""

from dataclasses import replace
from typing import Final

from tidelog.base.control import (
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    PartitionState,
    ReplicaStatesRequest,
    ReplicaStatesResponse,
    StopReplicaRequest,
    StopReplicaResponse,
    TopicState,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)
from tidelog.base.errors import ErrorCode

NOT_REGISTERED = -1
REMOVED_MAX: Final = 10_000
"""How many replicas are remembered that were removed: what comes late is not that late."""

FencedRequest = (
    LeaderAndIsrRequest | StopReplicaRequest | UpdateMetadataRequest | ReplicaStatesRequest
)
FencedResponse = (
    LeaderAndIsrResponse | StopReplicaResponse | UpdateMetadataResponse | ReplicaStatesResponse
)


class Fencing:
    def __init__(self) -> None:
        self.controller_epoch = -1
        """The highest that was seen."""
        self.broker_epoch = NOT_REGISTERED
        self._went_on: dict[type[FencedRequest], int] = {}
        """Under which controller epoch a request came that was not full, by kind."""
        self._updated = (-1, 0)
        """Controller epoch and number of the last metadata."""
        self._removed: dict[tuple[bytes, int], int] = {}
        """The leader epoch in which a replica was removed, by topic id and number; -1 if its topic
        is gone."""

    def registered(self, broker_epoch: int) -> None:
        self.broker_epoch = broker_epoch
        self._went_on.clear()
        self._removed.clear()

    def expired(self) -> None:
        self.broker_epoch = NOT_REGISTERED

    def saw_controller(self, epoch: int) -> None:
        self.controller_epoch = max(self.controller_epoch, epoch)

    def refusal(self, request: FencedRequest) -> ErrorCode | None:
        """Why a request is not acted on; None if it may be."""
        if request.controller_epoch < self.controller_epoch:
            return ErrorCode.stale_controller_epoch
        if request.broker_epoch != self.broker_epoch:
            return ErrorCode.stale_broker_epoch
        self.controller_epoch = request.controller_epoch
        return None

    def is_late(self, request: UpdateMetadataRequest | LeaderAndIsrRequest) -> bool:
        """A controller begins with a full request and goes on with others. A full one that was
        given up and arrives after those would undo what they said. Metadata that was given up
        would put brokers back that are gone; what came later had all the rest of it too."""
        if isinstance(request, UpdateMetadataRequest) and request.number:
            made = (request.controller_epoch, request.number)
            if made < self._updated:
                return True
            self._updated = made
        if not request.is_full:
            self._went_on[type(request)] = request.controller_epoch
            return False
        return self._went_on.get(type(request)) == request.controller_epoch

    def note_removed(self, request: StopReplicaRequest) -> None:
        removed = self._removed
        for topic in request.topics:
            for stop in topic.partitions:
                if stop.delete:
                    key = (topic.topic_id, stop.index)
                    # One that comes late takes nothing back of what a later one said.
                    removed[key] = _later(removed.pop(key, stop.leader_epoch), stop.leader_epoch)
        while len(removed) > REMOVED_MAX:
            del removed[next(iter(removed))]

    def without_removed(self, request: LeaderAndIsrRequest) -> LeaderAndIsrRequest:
        """What was said of a replica before it was removed is not acted on after that: it would
        come back empty, and might lead. If it is to come back, that is a later epoch."""
        if not self._removed:
            return request
        topics = []
        for topic in request.topics:
            staying = tuple(p for p in topic.partitions if not self._is_removed(topic, p))
            if staying:
                topics.append(replace(topic, partitions=staying))
        return replace(request, topics=tuple(topics))

    def _is_removed(self, topic: TopicState, state: PartitionState) -> bool:
        epoch = self._removed.get((topic.topic_id, state.index))
        return epoch is not None and (epoch < 0 or state.leader_epoch <= epoch)


def _later(one: int, other: int) -> int:
    """Nothing comes after a topic is gone."""
    return -1 if min(one, other) < 0 else max(one, other)


def refused(request: FencedRequest, code: ErrorCode) -> FencedResponse:
    match request:
        case LeaderAndIsrRequest():
            return LeaderAndIsrResponse(error_code=code)
        case StopReplicaRequest():
            return StopReplicaResponse(error_code=code)
        case UpdateMetadataRequest():
            return UpdateMetadataResponse(error_code=code)
        case ReplicaStatesRequest():
            return ReplicaStatesResponse(error_code=code)
