"""What a broker does that a controller tells what to lead and to follow.

The requests that come here were let through by `fencing`: they are the current controller's and
meant for this incarnation of the broker. The broker implements it with its partitions, trials
with theirs.
"""

from typing import Protocol

from tidelog.base.control import (
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    ReplicaStatesRequest,
    ReplicaStatesResponse,
    StopReplicaRequest,
    StopReplicaResponse,
)


class Host(Protocol):
    def leader_and_isr(self, request: LeaderAndIsrRequest) -> LeaderAndIsrResponse: ...

    def stop_replica(self, request: StopReplicaRequest) -> StopReplicaResponse: ...

    def replica_states(self, request: ReplicaStatesRequest) -> ReplicaStatesResponse: ...

    def resign(self) -> None:
        """The broker's session is over: it leads and follows nothing until it is told again."""
