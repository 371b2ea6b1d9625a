"""DescribeLogDirs: room, sizes, and dirs that are offline (S10)."""

from typing import Any

import pytest

from support.admin_node import AdminNode, versions
from support.logs import NOW, batch
from tidelog.base.errors import ErrorCode

DESCRIBE = 35
NEWEST = versions(DESCRIBE)[-1]


def ask(node: AdminNode, topics: Any = None, version: int = NEWEST) -> Any:
    return node.ask(DESCRIBE, version, topics=topics).results


def names(log_dir: Any) -> list[tuple[str, int]]:
    return [(t.name, p.partition_index) for t in log_dir.topics for p in t.partitions]


def with_topics(log_dirs: int = 1) -> AdminNode:
    node = AdminNode(log_dirs)
    node.create("orders", partitions=2)
    node.create("tides")
    return node


@pytest.mark.parametrize("version", versions(DESCRIBE))
def test_every_version_shows_what_lies_in_a_dir(version: int) -> None:
    node = with_topics()
    size = 0
    for _ in range(3):
        produced = batch(2)
        size += len(produced)
        node.partition("orders").append(memoryview(produced), NOW)
    (log_dir,) = ask(node, version=version)
    assert (log_dir.error_code, log_dir.log_dir) == (ErrorCode.none, "/data0")
    assert names(log_dir) == [("orders", 0), ("orders", 1), ("tides", 0)]
    filled, empty = log_dir.topics[0].partitions
    assert (filled.partition_size, filled.offset_lag, filled.is_future_key) == (size, 0, False)
    assert empty.partition_size == 0
    if version >= 4:
        assert 0 < log_dir.usable_bytes < log_dir.total_bytes
    if version >= 5:
        assert not log_dir.is_cordoned


def test_the_room_is_that_of_the_disk() -> None:
    node = with_topics()
    node.disk.limit(1 << 30)
    (log_dir,) = ask(node)
    assert log_dir.total_bytes == 1 << 30
    assert log_dir.usable_bytes == (1 << 30) - sum(map(len, node.disk.view().values()))


def test_only_partitions_that_are_named_are_shown() -> None:
    node = with_topics()
    asked = [{"topic": "orders", "partitions": [1, 9]}, {"topic": "missing", "partitions": [0]}]
    (log_dir,) = ask(node, asked)
    assert names(log_dir) == [("orders", 1)]


def test_an_empty_list_asks_for_the_dirs_only() -> None:
    (log_dir,) = ask(with_topics(), [])
    assert (log_dir.topics, log_dir.total_bytes > 0) == ((), True)


def test_every_dir_has_its_own() -> None:
    node = with_topics(log_dirs=2)
    first, second = ask(node)
    assert (first.log_dir, second.log_dir) == ("/data0", "/data1")
    assert sorted(names(first) + names(second)) == [("orders", 0), ("orders", 1), ("tides", 0)]


@pytest.mark.parametrize("version", versions(DESCRIBE))
def test_a_dir_that_is_offline_is_named_with_an_error(version: int) -> None:
    node = with_topics(log_dirs=2)
    node.logs.dirs[0].fail(OSError(5, "Input/output error"))
    offline, online = ask(node, version=version)
    assert (offline.error_code, offline.log_dir) == (ErrorCode.kafka_storage_error, "/data0")
    assert offline.topics == ()
    assert online.error_code is ErrorCode.none
    if version >= 4:
        assert (offline.total_bytes, offline.usable_bytes) == (-1, -1)


def test_a_dir_whose_room_cannot_be_told_is_named_with_an_error() -> None:
    node = with_topics()
    node.disk.fail(5, operations=["usage"])
    (log_dir,) = ask(node)
    assert log_dir.error_code is ErrorCode.kafka_storage_error
    (again,) = ask(node)
    assert again.error_code is ErrorCode.none


def test_a_log_that_belongs_to_no_partition_here_has_no_lag_to_tell() -> None:
    node = with_topics()
    node.partitions.remove(node.partition("tides"))
    (log_dir,) = ask(node, [{"topic": "tides", "partitions": [0]}])
    assert log_dir.topics[0].partitions[0].offset_lag == -1
