"""A real broker process that may have few files open (F17): without any a log dir has failed, and a
broker ends with its last one."""

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from support.brokers import one_batch
from support.servers import PEER, TidelogServer
from support.wire_client import METADATA, WireClient, wait_until
from support.witness import SETTINGS, check_log, plain_socket

FILES_MAX = 128
"""`ulimit -n`"""
SEGMENTS = 50

pytestmark = pytest.mark.skipif(PEER != "", reason="looks into tidelog's own process")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[TidelogServer]:
    settings = SETTINGS | {"replica.high.watermark.checkpoint.interval.ms": "100"}
    server = TidelogServer(tmp_path, settings, files_max=FILES_MAX)
    server.start()
    try:
        with WireClient(server.address) as client:
            client.create("events", segment_bytes=1_000)
        yield server
        server.stop()
        check_log(server)
    finally:
        server.close()


def write_and_read_segments(client: WireClient) -> None:
    first = client.produce("events", one_batch("x" * 900)).base_offset
    for number in range(1, SEGMENTS):
        assert client.produce("events", one_batch("x" * 900)).base_offset == first + number
    for number in range(first + SEGMENTS):
        assert client.fetch("events", number).records


def names(client: WireClient) -> set[str]:
    asked = {"topics": None, "include_topic_authorized_operations": False}
    return {topic.name for topic in client.ask(METADATA, 12, **asked).topics}


def is_let_in(server: TidelogServer) -> bool:
    try:
        with WireClient(server.address) as client:
            return bool(client.fetch("events", 0).records)
    except ConnectionError:
        return False


def test_closed_segments_do_not_take_them_all(server: TidelogServer) -> None:
    with WireClient(server.address) as client:
        write_and_read_segments(client)


def test_connections_leave_some_for_files(server: TidelogServer) -> None:
    with WireClient(server.address) as client, ExitStack() as idle:
        for _ in range(2 * FILES_MAX):
            idle.enter_context(plain_socket(server.address))
        write_and_read_segments(client)
        time.sleep(0.5)  # Checkpoints are written.
        assert f"the {FILES_MAX} files that may be open" in server.output.read_text()
    assert wait_until(lambda: is_let_in(server))


def test_replicas_that_would_need_more_are_not_made(server: TidelogServer) -> None:
    """Otherwise no start would find enough for all of them either."""
    for _ in range(2):
        with WireClient(server.address) as client:
            if "many" not in names(client):
                client.create("many", partitions=2 * FILES_MAX)
            assert wait_until(lambda: "not made replicas=" in server.output.read_text())
            codes = Counter(
                client.produce("many", one_batch("x"), index=index).error_code.name
                for index in range(2 * FILES_MAX)
            )
            write_and_read_segments(client)
        assert codes["none"] > FILES_MAX // 2
        assert set(codes) == {"none", "kafka_storage_error"}
        server.stop()
        server.start()


def test_replicas_are_counted_although_connections_before_them_have_gone(
    server: TidelogServer,
) -> None:
    """F17: what is open is not only what lies below the lowest number that is free."""
    many = FILES_MAX // 2
    with ExitStack() as gone:
        for _ in range(8):
            gone.enter_context(plain_socket(server.address))
        with WireClient(server.address) as client:
            client.create("first", partitions=many)
    with WireClient(server.address) as client:
        assert client.produce("first", one_batch("x"), index=many - 1).error_code.name == "none"
        client.create("second", partitions=many)
        assert wait_until(lambda: "not made replicas=" in server.output.read_text())
        write_and_read_segments(client)


def test_replicas_that_were_not_made_are_made_when_there_is_room(server: TidelogServer) -> None:
    """F17: who has taken the files may have been connections that are gone soon."""
    with WireClient(server.address) as client:
        with ExitStack() as idle:
            for _ in range(FILES_MAX // 3):
                idle.enter_context(plain_socket(server.address))
            client.create("many", partitions=FILES_MAX // 3)
            assert wait_until(lambda: "not made replicas=" in server.output.read_text())
            time.sleep(1)  # All that is told because of it is told.
        for index in range(FILES_MAX // 3):
            assert wait_until(partial(takes_records, client, index))


def takes_records(client: WireClient, index: int) -> bool:
    return bool(client.produce("many", one_batch("x"), index=index).error_code.name == "none")
