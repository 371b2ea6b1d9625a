"""A whole broker in one process on virtual time, and a client that talks to it in bytes."""

from collections.abc import Callable
from typing import Any, Protocol

from tidelog.base.ports import Connection, Receiver
from tidelog.base.settings import Settings
from tidelog.base.world import World
from tidelog.broker import Broker
from tidelog.handlers.building import build
from tidelog.records.batch import HEADER_SIZE, read_header, seal
from tidelog.records.reference import Record, encode_batch
from tidelog.wire import codec
from tidelog.world.real.embedded import open_embedded
from tidelog.world.real.snapshotting import Place
from tidelog.world.sim.disk import Loss, SimDisk
from tidelog.world.sim.entropy import SimEntropy
from tidelog.world.sim.loop import SimLoop
from tidelog.world.sim.network import SimNetwork
from tidelog.world.sim.pressure import SimPressure
from tidelog.world.sim.workers import SimWorkers

PORT = 9092
PRODUCE, FETCH, LIST_OFFSETS, METADATA, API_VERSIONS, CREATE_TOPICS = 0, 1, 2, 3, 18, 19
DELETE_TOPICS, OFFSET_FOR_LEADER_EPOCH, INCREMENTAL_ALTER_CONFIGS = 20, 23, 44


class Reachable(Protocol):
    """Where a client can connect to something."""

    @property
    def loop(self) -> SimLoop: ...

    @property
    def network(self) -> SimNetwork: ...


class SimNode:
    """A broker with its disk, network and loop. It can be stopped, killed, and started again."""

    def __init__(self, seed: int = 0, *, beside: "SimNode | None" = None, **settings: Any) -> None:
        named = {name.replace("_", "."): value for name, value in settings.items()}
        self.settings = Settings.of(
            {
                "broker.id": 0,
                "listeners": f"PLAINTEXT://node:{PORT}",
                "log.dirs": "/data",
                **named,
            }
        )
        self.seed = seed
        self._starts = seed * 1000
        self.disk: SimDisk = SimDisk(seed=seed) if beside is None else beside.disk
        self.clock = self.disk.clock
        self.loop: SimLoop = SimLoop(self.clock, seed) if beside is None else beside.loop
        self.network: SimNetwork = SimNetwork(self.loop) if beside is None else beside.network
        self.start()

    def new_broker(self) -> Broker:
        """One that was not started yet, on this disk and network."""
        self._starts += 1
        world = World(
            clock=self.clock,
            entropy=SimEntropy(self._starts),
            disk=self.disk,
            pressure=SimPressure(self.seed),
            loop=self.loop,
            network=self.network.host("node"),
            cleaning=SimWorkers(self.disk),
            inspecting=SimWorkers(self.disk),
            host_name="node",
            open_coordination=lambda folder: open_embedded(
                Place(disk=self.disk, loop=self.loop, clock=self.clock, folder=folder)
            ),
        )
        return Broker(self.settings, world)

    def start(self) -> None:
        self.broker = self.new_broker()
        outcomes: list[Exception | None] = []
        self.broker.start(outcomes.append)
        assert self.loop.run_until(lambda: bool(outcomes)), "the broker starts"
        if outcomes[0] is not None:
            raise outcomes[0]

    def stop(self) -> None:
        ended: list[bool] = []
        self.broker.stop(lambda: ended.append(True))
        assert self.loop.run_until(lambda: bool(ended)), "the broker stops"

    def kill(self) -> None:
        """The process dies, and whatever it or its clients were about to do with it."""
        self.disk.process_dies()
        self._begin_anew()

    def lose_power(self, loss: Loss = "all") -> None:
        """The machine dies, and with it what was not synced."""
        self.disk.machine_dies(loss)
        self._begin_anew()

    def _begin_anew(self) -> None:
        self.loop = SimLoop(self.clock, self.seed + 1)
        self.network = SimNetwork(self.loop)

    def client(self) -> "SimClient":
        return SimClient(self)


class SimClient:
    """A connection to the broker. Answers are kept in the order they come."""

    def __init__(self, node: Reachable, host: str = "node", port: int = PORT) -> None:
        self._loop = node.loop
        self._room = bytearray(1 << 16)
        self._received = bytearray()
        self._sent = 0
        self._asked: list[tuple[int, int, int]] = []
        self.answers: list[Any] = []
        self.frames: list[bytes] = []
        self.closed_why: str | None = None
        opened: list[Connection | OSError] = []

        def take(link: Connection | OSError) -> Receiver | None:
            opened.append(link)
            return self if not isinstance(link, OSError) else None

        node.network.host("client").connect(host, port, take)
        assert self._loop.run_until(lambda: bool(opened))
        assert not isinstance(opened[0], OSError), opened[0]
        self.link = opened[0]

    def buffer(self) -> memoryview:
        return memoryview(self._room)

    def received(self, size: int) -> None:
        self._received += self._room[:size]
        while len(self._received) >= 4:
            end = 4 + int.from_bytes(self._received[:4], "big")
            if len(self._received) < end:
                return
            frame = bytes(self._received[4:end])
            del self._received[:end]
            self.frames.append(frame)
            if self._asked:
                api_key, version, asked_as = self._asked.pop(0)
                correlation_id, entity = codec.read_response(api_key, version, frame)
                assert correlation_id == asked_as, "answers come in the order of the requests"
                self.answers.append(entity)

    def closed(self, why: str) -> None:
        self.closed_why = why

    # -- asking

    def send(self, api_key: int, version: int, **values: Any) -> None:
        """Sends a request and does not wait."""
        self.send_bytes(self.request(api_key, version, **values))

    def request(self, api_key: int, version: int, **values: Any) -> bytes:
        """What is to be sent next, maybe with others; its answer is awaited from now on."""
        entity = build(codec.entity_type(api_key, version, "request"), values)
        self._sent += 1
        if not (api_key == PRODUCE and values["acks"] == 0):
            self._asked.append((api_key, version, self._sent))
        return codec.write_request(api_key, version, self._sent, "test", entity)

    def send_bytes(self, data: bytes) -> None:
        self.link.send(data)

    def ask(self, api_key: int, version: int, **values: Any) -> Any:
        self.send(api_key, version, **values)
        return self.wait()

    def wait(self) -> Any:
        """The answer to the last request that has one."""
        wanted = len(self.answers) + len(self._asked)
        self.until(lambda: len(self.answers) == wanted)
        return self.answers[-1]

    def until(self, condition: Callable[[], bool]) -> None:
        assert self._loop.run_until(lambda: condition() or self.closed_why is not None)
        assert condition(), f"closed: {self.closed_why}"

    # -- what most tests need

    def create(self, topic: str, partitions: int = 1, **configs: Any) -> None:
        answer = self.ask(
            CREATE_TOPICS,
            7,
            topics=[
                {
                    "name": topic,
                    "num_partitions": partitions,
                    "replication_factor": 1,
                    "assignments": [],
                    "configs": [
                        {"name": name.replace("_", "."), "value": str(value)}
                        for name, value in configs.items()
                    ],
                }
            ],
            timeout=1000,
            validate_only=False,
        )
        assert answer.topics[0].error_code.name == "none", answer.topics[0].error_message

    def produce(self, topic: str, batch: bytes, *, index: int = 0, acks: int = -1) -> Any:
        """The answer for the one partition."""
        self.send_produce(topic, batch, index=index, acks=acks)
        return self.wait().responses[0].partition_responses[0]

    def send_produce(self, topic: str, batch: bytes, *, index: int = 0, acks: int = -1) -> None:
        partition = {"index": index, "records": batch}
        self.send(
            PRODUCE,
            9,
            transactional_id=None,
            acks=acks,
            timeout=1000,
            topic_data=[{"name": topic, "partition_data": [partition]}],
        )

    def fetch(self, topic: str, offset: int, *, version: int = 12, **values: Any) -> Any:
        """The answer for the one partition."""
        self.send_fetch([(topic, 0, offset)], version=version, **values)
        return self.wait().responses[0].partitions[0]

    def send_fetch(
        self, wanted: list[tuple[str, int, int]], *, version: int = 12, **values: Any
    ) -> None:
        topics = [
            {
                "topic": topic,
                "partitions": [
                    {
                        "partition": index,
                        "fetch_offset": offset,
                        "partition_max_bytes": 1 << 20,
                        "current_leader_epoch": -1,
                    }
                ],
            }
            for topic, index, offset in wanted
        ]
        given = {
            "replica_id": -1,
            "max_wait": 0,
            "min_bytes": 1,
            "session_epoch": -1,
            "topics": topics,
            "forgotten_topics_data": [],
        }
        self.send(FETCH, version, **(given | values))


def one_batch(*values: str, key: str | None = "k", timestamp: int = 1_700_000_000_000) -> bytes:
    records = [
        Record(
            offset=offset,
            timestamp=timestamp + offset,
            key=None if key is None else key.encode(),
            value=value.encode(),
        )
        for offset, value in enumerate(values)
    ]
    return bytes(encode_batch(records))


def without_max_timestamp(batch: bytes) -> bytes:
    """As clients send it that leave it to the broker to find the youngest record: Sarama did."""
    return bytes(seal(read_header(batch)._replace(max_timestamp=-1), batch[HEADER_SIZE:]))
