"""What a broker does that a controller tells what to lead and to follow.

The requests that come here were let through by `fencing`: they are the current controller's and
meant for this incarnation of the broker. The broker implements it with its partitions, trials
with theirs.
"""

from collections.abc import Callable
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
    def leader_and_isr(
        self, request: LeaderAndIsrRequest, done: Callable[[LeaderAndIsrResponse], None]
    ) -> None:
        """`done` once, at once or later. Nothing else is asked for before."""

    def stop_replica(
        self, request: StopReplicaRequest, done: Callable[[StopReplicaResponse], None]
    ) -> None:
        """The same."""

    def replica_states(self, request: ReplicaStatesRequest) -> ReplicaStatesResponse: ...

    def resign(self) -> None:
        """The broker's session is over: it leads and follows nothing until it is told again. This
        may come while a request is being acted on, which then ends as it likes."""
