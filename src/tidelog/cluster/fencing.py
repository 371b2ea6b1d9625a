"""Which control requests a broker may act on.

A controller that was deposed may not know it yet, and a request may be meant for a process that
has died since: the first carry a lower controller epoch than was seen before, the second another
broker epoch than the broker's own. It is looked at here, once, for all of them.
"""

from tidelog.base.control import (
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    ReplicaStatesRequest,
    ReplicaStatesResponse,
    StopReplicaRequest,
    StopReplicaResponse,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)
from tidelog.base.errors import ErrorCode

NOT_REGISTERED = -1

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

    def registered(self, broker_epoch: int) -> None:
        self.broker_epoch = broker_epoch
        self._went_on.clear()

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
        given up and arrives after those would undo what they said."""
        if not request.is_full:
            self._went_on[type(request)] = request.controller_epoch
            return False
        return self._went_on.get(type(request)) == request.controller_epoch


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
