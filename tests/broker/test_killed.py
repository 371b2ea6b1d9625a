"""`kill -9` of a real server at random moments, under load: every record that was acknowledged
is there afterwards, at its offset, with its bytes; so is every topic, with its id and settings."""

import struct
import threading
import time
from pathlib import Path
from random import Random
from typing import Any

import pytest

from support.brokers import one_batch
from support.histories import records_of
from support.servers import PEER, TidelogServer
from support.wire_client import (
    DELETE_TOPICS,
    DESCRIBE_CONFIGS,
    FETCH,
    METADATA,
    WireClient,
    fetching,
    wait_until,
)

ROUNDS = 4
PARTITIONS = 3

pytestmark = pytest.mark.skipif(PEER != "", reason="tidelog's own promise")


class Load:
    """Clients that go on until the broker is gone, and note what they were promised."""

    def __init__(self, address: str, seed: int) -> None:
        self._address = address
        self._seed = seed
        self.records: dict[tuple[int, int], str] = {}
        self.topics: dict[str, bytes] = {}
        self.deleted: set[str] = set()
        self.seen: dict[tuple[int, int], str] = {}
        self.wrong: list[str] = []

    def threads(self) -> list[threading.Thread]:
        work = [*(self._produce(index) for index in range(PARTITIONS)), self._consume, self._topics]
        return [threading.Thread(target=self._until_killed, args=(one,)) for one in work]

    def _until_killed(self, work: Any) -> None:
        try:
            with WireClient(self._address) as client:
                while True:
                    work(client)
        except (OSError, struct.error):
            return

    def _produce(self, index: int) -> Any:
        random, count = Random(self._seed * 10 + index), 0

        def produce(client: WireClient) -> None:
            nonlocal count
            count += 1
            size = 300_000 if random.random() < 0.05 else random.randrange(1, 500)
            value = f"{self._seed}-{index}-{count}-" + "v" * size
            answer = client.produce("load", one_batch(value), index=index)
            if answer.error_code.name == "none":
                self.records[index, answer.base_offset] = value
            else:
                self.wrong.append(answer.error_code.name)

        return produce

    def _consume(self, client: WireClient) -> None:
        for index in range(PARTITIONS):
            start = max((at for part, at in self.seen if part == index), default=-1) + 1
            asked = fetching("load", start, index=index) | {"max_wait": 20}
            row = client.ask(FETCH, 12, **asked).responses[0].partitions[0]
            for offset, value in records_of(row.records):
                self.seen[index, offset] = value
                if offset >= row.high_watermark:
                    self.wrong.append(f"{offset} is above the high watermark")

    def _topics(self, client: WireClient) -> None:
        name = f"topic-{self._seed}-{len(self.topics)}"
        client.create(name, partitions=2, retention_ms=1_000_000 + self._seed)
        found = metadata(client)
        self.topics[name] = found[name]
        if len(self.topics) % 3 == 0:
            self.deleted.add(name)
            client.ask(DELETE_TOPICS, 5, topic_names=[name], timeout=5000)
        time.sleep(0.01)


def metadata(client: WireClient) -> dict[str, bytes]:
    answer = client.ask(METADATA, 12, topics=None, include_topic_authorized_operations=False)
    return {topic.name: topic.topic_id.bytes for topic in answer.topics}


def test_what_was_acknowledged_survives_being_killed_at_any_moment(tmp_path: Path) -> None:
    server = TidelogServer(tmp_path, {"log.segment.bytes": str(2 << 20)})
    random = Random(11)
    promised: dict[tuple[int, int], str] = {}
    topics: dict[str, bytes] = {}
    try:
        server.start()
        with WireClient(server.address) as client:
            client.create("load", partitions=PARTITIONS)
            topics["load"] = metadata(client)["load"]
        for seed in range(ROUNDS):
            load = Load(server.address, seed)
            threads = load.threads()
            for thread in threads:
                thread.start()
            assert wait_until(lambda load=load: load.records), "there is load"
            time.sleep(0.3 + random.random())
            server.kill()
            for thread in threads:
                thread.join(60)
            assert load.wrong == []
            promised |= load.records
            topics |= {name: id_ for name, id_ in load.topics.items() if name not in load.deleted}
            server.start()
            check(server, promised | load.seen, topics)
        assert "Traceback" not in server.output.read_text()
        server.stop()
    finally:
        server.close()


def check(
    server: TidelogServer, promised: dict[tuple[int, int], str], topics: dict[str, bytes]
) -> None:
    with WireClient(server.address) as client:
        found = metadata(client)
        assert {name: found.get(name) for name in topics} == topics
        stored = {
            (index, offset): value
            for index in range(PARTITIONS)
            for offset, value in read_all(client, index)
        }
        lost = [place for place, value in promised.items() if stored.get(place) != value]
        assert lost == [], f"{len(lost)} of {len(promised)}: {lost[:10]}"
        for name in list(topics)[-3:]:
            check_settings(client, name)


def read_all(client: WireClient, index: int) -> list[tuple[int, str]]:
    found: list[tuple[int, str]] = []
    while True:
        row = client.fetch("load", len(found), index=index)
        new = [item for item in records_of(row.records) if item[0] >= len(found)]
        if not new:
            assert [offset for offset, _ in found] == list(range(len(found)))
            return found
        found += new


def check_settings(client: WireClient, topic: str) -> None:
    if topic == "load":
        return
    resource = {"resource_type": 2, "resource_name": topic, "configuration_keys": ["retention.ms"]}
    answer = client.ask(
        DESCRIBE_CONFIGS,
        4,
        resources=[resource],
        include_synonyms=False,
        include_documentation=False,
    )
    (row,) = answer.results[0].configs
    assert row.value == str(1_000_000 + int(topic.split("-")[1]))
