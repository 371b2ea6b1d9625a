"""What is left of a broker when it is stopped or killed, and started again."""

import pytest

from support.brokers import (
    CREATE_TOPICS,
    DELETE_TOPICS,
    INCREMENTAL_ALTER_CONFIGS,
    LIST_OFFSETS,
    SimNode,
    one_batch,
)
from tidelog.base.errors import BadValue
from tidelog.records.reference import read_records


def end_offset(node: SimNode, topic: str = "events") -> int:
    return node.broker.partitions.find(topic, 0).log.log_end_offset


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_records_topics_ids_and_settings_survive(how: str) -> None:
    """S9, T6: after a clean stop and after a crash of the process."""
    node = SimNode()
    client = node.client()
    client.create("events", partitions=3, retention_ms=12345)
    for number in range(20):
        client.produce("events", one_batch(f"v{number}"), index=number % 3)
    topic_id = node.broker.partitions.find("events", 0).topic_id
    cluster_id = node.broker.cluster_id
    end(node, how)
    node.start()
    assert node.broker.cluster_id == cluster_id
    for index in range(3):
        partition = node.broker.partitions.find("events", index)
        assert partition.topic_id == topic_id
        assert partition.log.settings.retention_ms == 12345
        assert partition.high_watermark == partition.log.log_end_offset == (7, 7, 6)[index]
    stored = node.client().fetch("events", 6).records
    assert [record.value for record in read_records(stored)] == [b"v18"]


def end(node: SimNode, how: str) -> None:
    if how == "stop":
        node.stop()
    else:
        node.kill()


def test_each_start_is_a_new_leader_epoch() -> None:
    """D9, L1."""
    node = SimNode()
    node.client().create("events")
    epochs = [node.broker.partitions.find("events", 0).leader_epoch]
    for how in ("kill", "stop", "kill"):
        node.client().produce("events", one_batch("a"))
        end(node, how)
        node.start()
        epochs.append(node.broker.partitions.find("events", 0).leader_epoch)
    assert epochs == [0, 1, 2, 3]
    node.client().produce("events", one_batch("a"))
    entries = node.broker.partitions.find("events", 0).log.epochs.entries
    assert entries == [(0, 0), (1, 1), (2, 2), (3, 3)]


def test_a_deleted_topic_stays_deleted_and_one_of_its_name_is_another() -> None:
    """T6."""
    node = SimNode()
    client = node.client()
    client.create("events")
    client.produce("events", one_batch("a"))
    before = node.broker.partitions.find("events", 0).topic_id
    client.ask(DELETE_TOPICS, 5, topic_names=["events"], timeout=1000)
    client.create("events")
    assert node.broker.partitions.find("events", 0).topic_id != before
    assert end_offset(node) == 0
    node.kill()
    node.start()
    assert end_offset(node) == 0
    node.loop.run_for(2_000_000)
    assert [name for name in node.disk.list("/data") if "delete" in name] == []


def test_settings_that_are_altered_act_at_once_and_after_a_restart() -> None:
    """O2."""
    node = SimNode()
    client = node.client()
    client.create("events")
    change = {"name": "max.message.bytes", "config_operation": 0, "value": "500"}
    resource = {"resource_type": 2, "resource_name": "events", "configs": [change]}
    answer = client.ask(INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource], validate_only=False)
    assert answer.responses[0].error_code.name == "none"
    for _ in range(2):
        refused = node.client().produce("events", one_batch("x" * 1000))
        assert refused.error_code.name == "message_too_large"
        node.stop()
        node.start()


def test_a_broker_refuses_dirs_whose_cluster_it_does_not_know() -> None:
    """A log dir without its tree would otherwise lose every topic in it."""
    node = SimNode()
    node.client().create("events")
    node.stop()
    for name in node.disk.list("/data/znodes"):
        node.disk.remove(f"/data/znodes/{name}")
    with pytest.raises(BadValue, match="cluster"):
        node.start()


def test_time_lookups_give_the_same_after_a_restart() -> None:
    node = SimNode(log_segment_bytes=1 << 20)
    client = node.client()
    client.create("events")
    for number in range(30):
        client.produce("events", one_batch("x" * 100_000, timestamp=1_700_000_000_000 + number))
    asked = [
        {"partition_index": 0, "current_leader_epoch": -1, "timestamp": timestamp}
        for timestamp in (-1, -2, -3, -4, 1_700_000_000_011, 1_700_000_000_999)
    ]

    def ask() -> list[int]:
        answers: list[int] = []
        for row in asked:
            topics = [{"name": "events", "partitions": [row]}]
            answer = node.client().ask(
                LIST_OFFSETS, 8, replica_id=-1, isolation_level=0, topics=topics
            )
            found = answer.topics[0].partitions[0]
            assert found.error_code.name == "none"
            answers.append(found.offset)
        return answers

    before = ask()
    assert before == [30, 0, 29, 0, 11, -1]
    node.kill()
    node.start()
    assert ask() == before


def test_a_port_that_is_taken_is_named() -> None:
    node = SimNode()
    with pytest.raises(BadValue, match="9092"):
        SimNode(beside=node, log_dirs="/other")


def test_a_log_dir_that_is_in_use_is_named() -> None:
    node = SimNode()
    with pytest.raises(BadValue, match="/data is in use"):
        SimNode(beside=node, listeners="PLAINTEXT://node:9093")


def test_an_answered_creation_survives_a_kill_at_any_moment() -> None:
    for delay_ms in range(0, 60, 3):
        node = SimNode(seed=delay_ms)
        client = node.client()
        client.send(
            CREATE_TOPICS,
            5,
            topics=[
                {
                    "name": "events",
                    "num_partitions": 3,
                    "replication_factor": 1,
                    "assignments": [],
                    "configs": [],
                }
            ],
            timeout=1000,
            validate_only=False,
        )
        node.loop.run_for(delay_ms)
        answered = bool(client.answers)
        node.kill()
        node.start()
        assert not answered or "events" in node.broker.metadata.image.topics
        there = "events" in node.broker.metadata.image.topics
        assert len(node.broker.partitions) == (3 if there else 0)
