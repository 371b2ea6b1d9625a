"""A host without logs: it notes what it leads and follows, and asserts that it is told nothing
that it must not act on."""

from collections.abc import Callable
from typing import Any

from tidelog.base.control import (
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    PartitionError,
    PartitionState,
    ReplicaStatePartition,
    ReplicaStatesRequest,
    ReplicaStatesResponse,
    ReplicaStateTopic,
    StopReplicaRequest,
    StopReplicaResponse,
    TopicErrors,
)
from tidelog.base.errors import ErrorCode

Key = tuple[bytes, int]


class Disk:
    """What survives a host: which replicas there are, and how far each is."""

    def __init__(self) -> None:
        self.replicas: dict[Key, tuple[int, int]] = {}
        """Last epoch and log end offset."""
        self.failed: set[Key] = set()


class RecordingHost:
    def __init__(self, disk: Disk | None = None) -> None:
        self.disk = Disk() if disk is None else disk
        self.states: dict[Key, PartitionState] = {}
        self.requests: list[Any] = []
        self.resigned = 0
        self._controller_epoch = -1

    def leader_and_isr(
        self, request: LeaderAndIsrRequest, done: Callable[[LeaderAndIsrResponse], None]
    ) -> None:
        done(self._lead_and_follow(request))

    def _lead_and_follow(self, request: LeaderAndIsrRequest) -> LeaderAndIsrResponse:
        self._note(request)
        told = {
            (topic.topic_id, state.index): state
            for topic in request.topics
            for state in topic.partitions
        }
        if request.is_full:
            for key in [key for key in self.disk.replicas if key not in told]:
                del self.disk.replicas[key]
                self.states.pop(key, None)
        for key, state in told.items():
            known = self.states.get(key)
            if known is None or _version(state) >= _version(known):
                self.states[key] = state
                self.disk.replicas.setdefault(key, (-1, 0))
        failed = sorted(key for key in told if key in self.disk.failed)
        return LeaderAndIsrResponse(
            error_code=ErrorCode.none,
            topics=tuple(
                TopicErrors(
                    topic_id=topic_id,
                    partitions=(
                        PartitionError(index=index, error_code=ErrorCode.kafka_storage_error),
                    ),
                )
                for topic_id, index in failed
            ),
        )

    def stop_replica(
        self, request: StopReplicaRequest, done: Callable[[StopReplicaResponse], None]
    ) -> None:
        self._note(request)
        for topic in request.topics:
            for stop in topic.partitions:
                key = (topic.topic_id, stop.index)
                known = self.states.get(key)
                epoch = stop.leader_epoch
                if known is None or epoch == -1 or epoch >= known.leader_epoch:
                    self._stop(key, stop.delete)
        done(StopReplicaResponse(error_code=ErrorCode.none))

    def replica_states(self, request: ReplicaStatesRequest) -> ReplicaStatesResponse:
        self._note(request)
        return ReplicaStatesResponse(
            error_code=ErrorCode.none,
            topics=tuple(
                ReplicaStateTopic(
                    topic_id=topic.topic_id,
                    partitions=tuple(
                        self._replica_state(topic.topic_id, asked.index, asked.leader_epoch)
                        for asked in topic.partitions
                    ),
                )
                for topic in request.topics
            ),
        )

    def resign(self) -> None:
        self.resigned += 1
        self.states.clear()

    @property
    def led(self) -> set[Key]:
        return {key for key, state in self.states.items() if state.leader == self.own_id}

    own_id = -1

    def _replica_state(
        self, topic_id: bytes, index: int, leader_epoch: int
    ) -> ReplicaStatePartition:
        state = self.states.get((topic_id, index))
        knows = state is not None and state.leader_epoch == leader_epoch
        last_epoch, end = self.disk.replicas.get((topic_id, index), (-1, 0))
        return ReplicaStatePartition(
            index=index,
            error_code=ErrorCode.none if knows else ErrorCode.unknown_leader_epoch,
            leader_epoch=leader_epoch,
            last_epoch=last_epoch,
            log_end_offset=end,
        )

    def _stop(self, key: Key, delete: bool) -> None:
        self.states.pop(key, None)
        if delete:
            self.disk.replicas.pop(key, None)

    def _note(self, request: Any) -> None:
        assert request.controller_epoch >= self._controller_epoch, "V20: an older controller"
        self._controller_epoch = request.controller_epoch
        self.requests.append(request)


def _version(state: PartitionState) -> tuple[int, int]:
    return state.leader_epoch, state.partition_epoch
