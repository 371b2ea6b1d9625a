"""What a member of the cluster is given: everything around it, as ports."""

from dataclasses import dataclass

from tidelog.base.coordination import Coordination
from tidelog.base.ports import Clock, Entropy, Loop
from tidelog.cluster.host import Host
from tidelog.cluster.peers import Peers


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    coordination: Coordination
    clock: Clock
    entropy: Entropy
    loop: Loop
    peers: Peers
    """The brokers of the cluster, this one included."""
    host: Host
