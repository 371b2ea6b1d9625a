"""What the outboxes of a controller share: what there is to tell, how it is sent, and who is told
what comes back."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tidelog.base.control import ReplicaStatesResponse
from tidelog.base.ports import Clock, Loop
from tidelog.cluster.image import BrokerInfo
from tidelog.cluster.messages import Told
from tidelog.cluster.peers import Peers
from tidelog.cluster.realm import PartitionName, Realm

Asked = Mapping[PartitionName, int]
"""Partitions, and the leader epoch under which they were asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    realm: Realm
    told: Told
    peers: Peers
    loop: Loop
    clock: Clock
    doubted: Callable[[], None]
    """A broker knows of a later controller."""
    replica_answered: Callable[[BrokerInfo, PartitionName, int], None]
    """A broker cannot do what it was told with a partition, or can again where it could not; with
    the error's code."""
    replicas_reported: Callable[[BrokerInfo, Asked, ReplicaStatesResponse | None], None]
    """What a broker answered to questions; None if it did not."""
