"""A node for tests of the admin handlers: the whole broker in a simulated world, so real metadata
on the embedded tree and real logs, with virtual time. A request goes through the codec both ways,
as bytes, but not through a connection."""

from collections.abc import Mapping
from typing import Any

from tidelog.base.settings import Settings
from tidelog.base.world import World
from tidelog.broker import Broker
from tidelog.cluster.image import TopicInfo
from tidelog.handlers.api import Request
from tidelog.handlers.building import build
from tidelog.handlers.table import APIS as ALL_APIS
from tidelog.partition import Partition
from tidelog.wire import codec
from tidelog.wire.header import read_request_header
from tidelog.world.real.embedded import open_embedded
from tidelog.world.real.snapshotting import Place
from tidelog.world.sim.disk import SimDisk
from tidelog.world.sim.entropy import SimEntropy
from tidelog.world.sim.loop import SimLoop
from tidelog.world.sim.network import SimNetwork
from tidelog.world.sim.pressure import SimPressure
from tidelog.world.sim.workers import SimWorkers

_DATA_APIS = frozenset((0, 1, 2, 18, 23))
"""Those that are tested through a connection, in tests/broker."""
APIS = {key: api for key, api in ALL_APIS.items() if key not in _DATA_APIS}
SETTINGS = {
    "broker.id": "1",
    "broker.rack": "here",
    "listeners": "PLAINTEXT://:9092,INTERNAL://:9094",
    "advertised.listeners": "PLAINTEXT://tide.example:9092,INTERNAL://10.0.0.1:9094",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT",
}


class Wire:
    """The connection of one request."""

    peer = "10.0.0.9:40000"
    is_finishing = False

    def __init__(self, listener: str) -> None:
        self.listener = listener
        self.sent: list[bytes] = []

    def answered(self, request: Request) -> None:
        assert request.parts is not None
        for part in request.parts:
            assert isinstance(part, bytes)
            self.sent.append(part)

    def go_on(self) -> None:
        """Nothing waits behind a request."""

    def close(self, why: str) -> None:
        raise AssertionError(why)

    def abort(self, why: str) -> None:
        raise AssertionError(why)


class AdminNode(Broker):
    disk: SimDisk
    loop: SimLoop

    def __init__(self, log_dirs: int = 1, **settings: str) -> None:
        named = {name.replace("_", "."): value for name, value in settings.items()}
        dirs = ",".join(f"/data{number}" for number in range(log_dirs))
        disk = SimDisk()
        loop = SimLoop(disk.clock)
        world = World(
            clock=disk.clock,
            entropy=SimEntropy(),
            disk=disk,
            pressure=SimPressure(),
            loop=loop,
            network=SimNetwork(loop).host("tide"),
            cleaning=SimWorkers(disk),
            inspecting=SimWorkers(disk),
            host_name="tide",
            open_coordination=lambda folder: open_embedded(
                Place(disk=disk, loop=loop, clock=disk.clock, folder=folder)
            ),
        )
        super().__init__(Settings.of({**SETTINGS, "log.dirs": dirs, **named}), world)
        outcomes: list[Exception | None] = []
        self.start(outcomes.append)
        assert loop.run_until(lambda: bool(outcomes))
        assert outcomes == [None]

    def ask(
        self, api_key: int, version: int, /, *, listener: str = "PLAINTEXT", **values: Any
    ) -> Any:
        """The response to a request, as a client reads it."""
        wire = self.begin(api_key, version, listener, **values)
        assert self.loop.run_until(lambda: bool(wire.sent)), "there is an answer"
        (frame,) = wire.sent
        assert int.from_bytes(frame[:4], "big") == len(frame) - 4
        correlation_id, response = codec.read_response(api_key, version, frame[4:])
        assert correlation_id == 7
        return response

    def begin(self, api_key: int, version: int, listener: str, /, **values: Any) -> Wire:
        """Sends a request and does not wait for its answer."""
        api = APIS[api_key]
        entity = build(codec.entity_type(api_key, version, "request"), values)
        frame = memoryview(codec.write_request(api_key, version, 7, "test", entity))[4:]
        header, at = read_request_header(frame)
        assert (header.api_key, header.version) == (api_key, version)
        wire = Wire(listener)
        body = api.read(api_key, version, frame, at)
        request = Request(wire, api, version, header.correlation_id, header.client_id, body)
        response = api.handle(self, request)
        if response is not None:
            request.answer(response)
        return wire

    def create(self, name: str, partitions: int = 1, **configs: Any) -> TopicInfo:
        """A topic, made through the wire."""
        settings = [{"name": k.replace("_", "."), "value": v} for k, v in configs.items()]
        topic = new_topic(name, num_partitions=partitions, configs=settings)
        answer = self.ask(19, 7, topics=[topic], timeout=1000, validate_only=False)
        assert answer.topics[0].error_code.name == "none", answer.topics[0].error_message
        return self.metadata.image.topics[name]

    def partition(self, topic: str, index: int = 0) -> Partition:
        return self.partitions.find(topic, index)


def new_topic(name: str, **values: Any) -> Mapping[str, Any]:
    """A topic of a CreateTopics request."""
    usual = {"num_partitions": -1, "replication_factor": -1, "assignments": (), "configs": ()}
    return {"name": name, **usual, **values}


def versions(key: int) -> range:
    return range(APIS[key].first, APIS[key].last + 1)
