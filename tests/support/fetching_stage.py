"""A follower's fetchers between scripted leaders, on the simulated network."""

from dataclasses import dataclass, field

from support.scripted_leader import FollowedLog, Key, ScriptedLeader
from tidelog.base.settings import Settings
from tidelog.fetchers import Fetchers
from tidelog.peers.link import Address, Wiring
from tidelog.wire.frames import ReceiveBuffers
from tidelog.world.sim.loop import SimLoop
from tidelog.world.sim.network import SimNetwork

ME, LEADER, OTHER = 1, 2, 3
HOSTS = {LEADER: "leader", OTHER: "other"}
TOPIC = b"a topic's id: 16"
WAIT_MS = 500


def keys(count: int, topic: bytes = TOPIC) -> list[Key]:
    return [(topic, index) for index in range(count)]


@dataclass
class Stage:
    seed: int = 0
    values: dict[str, str] = field(default_factory=dict)
    throttled: set[Key] = field(default_factory=set)
    broker_epoch: int = 77
    logs: dict[Key, FollowedLog] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.loop = SimLoop(seed=self.seed)
        self.network = SimNetwork(self.loop)
        self.addresses: dict[int, Address] = {}
        self.leader = self.start(LEADER)
        self.other = self.start(OTHER)
        self.settings = Settings.of({"broker.id": ME, **self.values})
        self.wiring = Wiring(
            network=self.network.host("me"),
            loop=self.loop,
            clock=self.loop.clock,
            buffers=ReceiveBuffers(),
            client_id="follower-1",
        )
        self.fetchers = Fetchers(
            self.wiring,
            self.addresses.get,
            self.settings,
            ME,
            lambda: self.broker_epoch,
            lambda topic_id, index: (topic_id, index) in self.throttled,
        )

    def start(self, broker_id: int, port: int = 9092) -> ScriptedLeader:
        self.addresses[broker_id] = (HOSTS[broker_id], port)
        return ScriptedLeader(self.network, HOSTS[broker_id], port)

    def follow(self, *wanted: Key, leader_id: int = LEADER, epoch: int = 1) -> None:
        for key in wanted:
            old = self.logs.get(key)
            log = FollowedLog(*key, epoch, 0 if old is None else old.end)
            if old is not None:
                old.is_over = True
                self.fetchers.unfollow(old)
            self.logs[key] = log
            self.fetchers.follow(log, leader_id)

    def unfollow(self, key: Key) -> None:
        log = self.logs[key]
        log.is_over = True
        self.fetchers.unfollow(log)

    def until(self, duration_ms: int = 60_000) -> None:
        """Until every partition has all its leader has."""
        assert self.loop.run_until(self.is_level, duration_ms), {
            key: log.end for key, log in self.logs.items()
        }

    def is_level(self) -> bool:
        return all(
            log.is_over or log.end == self.leader.partitions[key].end
            for key, log in self.logs.items()
        )

    def now_ms(self) -> int:
        return self.loop.clock.monotonic_ms()
