"""What tests ask brokers of a simulated cluster: one function a request, over the wire."""

from typing import Any

from support.brokers import (
    DELETE_TOPICS,
    INCREMENTAL_ALTER_CONFIGS,
    LIST_OFFSETS,
    METADATA,
    OFFSET_FOR_LEADER_EPOCH,
    SimClient,
    one_batch,
)
from support.sim_cluster import SimCluster
from tidelog.records.batch import read_header
from tidelog.records.reference import Record, encode_batch, read_records

DELETE_RECORDS, INIT_PRODUCER_ID, CREATE_PARTITIONS, ELECT_LEADERS = 21, 22, 37, 43
ALTER_REASSIGNMENTS, LIST_REASSIGNMENTS = 45, 46
LATEST, EARLIEST = -1, -2
TOPIC, BROKER = 2, 4


def records_of(data: bytes | None) -> list[Record]:
    """The records of any number of batches."""
    found: list[Record] = []
    left = memoryview(data or b"")
    while left:
        found += read_records(left)
        left = left[read_header(left).size :]
    return found


def write(cluster: SimCluster, topic: str, *values: str, acks: int = -1, index: int = 0) -> int:
    """Writes one batch to the leader, whoever that is by then; its offset."""
    while True:
        client = cluster.client(cluster.wait_led(topic, index))
        row = client.produce(topic, one_batch(*values), index=index, acks=acks)
        client.link.close()
        if row.error_code.name != "not_leader_or_follower":
            assert row.error_code.name == "none", row.error_message
            return int(row.base_offset)


def try_write(client: SimClient, topic: str, *values: str, acks: int = -1) -> str:
    """The name of what a produce was answered with."""
    return str(client.produce(topic, one_batch(*values), acks=acks).error_code.name)


def read(cluster: SimCluster, topic: str, index: int = 0) -> list[str]:
    """Every value a consumer is given, from the leader, up to the end as it says it."""
    client = cluster.client(cluster.wait_led(topic, index))
    while (end := ask_offset(client, topic, index=index)).error_code.name != "none":
        assert end.error_code.name == "offset_not_available", end.error_code
        cluster.run_for(10)
    found: list[str] = []
    offset = list_offset(client, topic, EARLIEST, index=index)
    while offset < end.offset:
        client.send_fetch([(topic, index, offset)])
        row = client.wait().responses[0].partitions[0]
        assert row.error_code.name == "none", row.error_code
        records = [r for r in records_of(row.records) if r.offset >= offset]
        found += [(record.value or b"").decode() for record in records]
        offset = records[-1].offset + 1
    client.link.close()
    return found


def log_values(cluster: SimCluster, broker_id: int, topic: str, index: int = 0) -> list[str]:
    """Every value in a replica's log, committed or not."""
    log = cluster.held(broker_id, topic, index).log
    data = log_bytes(cluster, broker_id, topic, index, log.log_end_offset)
    return [(record.value or b"").decode() for record in records_of(data)]


def log_bytes(
    cluster: SimCluster, broker_id: int, topic: str, index: int, below: int, start: int = -1
) -> bytes:
    """A replica's log from an offset, or its start, to another, as it is on its disk."""
    log = cluster.held(broker_id, topic, index).log
    offset = log.log_start_offset if start < 0 else start
    parts: list[bytes] = []
    while offset < below:
        found = log.read(offset, 1 << 30, below)
        data = found.file.pread(found.size, found.position)
        assert data, f"broker {broker_id} has nothing at {offset}"
        parts.append(data)
        offset = records_of(data)[-1].offset + 1
    return b"".join(parts)


def assert_alike(cluster: SimCluster, topic: str, index: int = 0) -> bytes:
    """All replicas hold the same bytes below the high watermark (V1, R6)."""
    held = {member: cluster.held(member, topic, index) for member in cluster.replicas(topic, index)}
    below = min(replica.high_watermark for replica in held.values())
    start = max(replica.log.log_start_offset for replica in held.values())
    contents = {member: log_bytes(cluster, member, topic, index, below, start) for member in held}
    first = next(iter(contents.values()))
    assert all(content == first for content in contents.values()), f"{topic}-{index} differs"
    return first


def list_offset(
    client: SimClient, topic: str, timestamp: int = LATEST, *, epoch: int = -1, index: int = 0
) -> int:
    row = ask_offset(client, topic, timestamp, epoch=epoch, index=index)
    assert row.error_code.name == "none", row.error_code
    return int(row.offset)


def ask_offset(
    client: SimClient,
    topic: str,
    timestamp: int = LATEST,
    *,
    epoch: int = -1,
    index: int = 0,
    version: int = 7,
) -> Any:
    asked = {"partition_index": index, "current_leader_epoch": epoch, "timestamp": timestamp}
    answer = client.ask(
        LIST_OFFSETS,
        version,
        replica_id=-1,
        isolation_level=0,
        timeout=1000,
        topics=[{"name": topic, "partitions": [asked]}],
    )
    return answer.topics[0].partitions[0]


def end_of_epoch(client: SimClient, topic: str, epoch: int, current_epoch: int = -1) -> Any:
    asked = {"partition": 0, "current_leader_epoch": current_epoch, "leader_epoch": epoch}
    answer = client.ask(
        OFFSET_FOR_LEADER_EPOCH,
        4,
        replica_id=-1,
        topics=[{"topic": topic, "partitions": [asked]}],
    )
    return answer.topics[0].partitions[0]


def send_delete_records(client: SimClient, topic: str, offset: int, timeout_ms: int) -> None:
    asked = {"partition_index": 0, "offset": offset}
    topics = [{"name": topic, "partitions": [asked]}]
    client.send(DELETE_RECORDS, 2, topics=topics, timeout=timeout_ms)


def delete_topic(cluster: SimCluster, topic: str) -> str:
    client = cluster.client(cluster.controller)
    topics = [{"name": topic, "topic_id": bytes(16)}]
    answer = client.ask(DELETE_TOPICS, 6, topics=topics, timeout=10_000)
    return str(answer.responses[0].error_code.name)


def grow(cluster: SimCluster, topic: str, count: int) -> str:
    client = cluster.client(cluster.controller)
    topics = [{"name": topic, "count": count, "assignments": None}]
    answer = client.ask(CREATE_PARTITIONS, 3, topics=topics, timeout=10_000, validate_only=False)
    return str(answer.results[0].error_code.name)


def reassign(cluster: SimCluster, topic: str, replicas: list[int] | None, index: int = 0) -> str:
    """Starts to move a partition, or with None takes that back."""
    client = cluster.client(cluster.controller)
    wanted = {"partition_index": index, "replicas": replicas}
    topics = [{"name": topic, "partitions": [wanted]}]
    answer = client.ask(ALTER_REASSIGNMENTS, 0, timeout=10_000, topics=topics)
    assert answer.error_code.name == "none", answer.error_message
    return str(answer.responses[0].partitions[0].error_code.name)


def moving(cluster: SimCluster) -> dict[tuple[str, int], tuple[Any, Any, Any]]:
    """Replicas, those to be added and those to be removed, of what is under way."""
    client = cluster.client(cluster.controller)
    answer = client.ask(LIST_REASSIGNMENTS, 0, timeout=10_000, topics=None)
    return {
        (topic.name, row.partition_index): (
            row.replicas,
            row.adding_replicas,
            row.removing_replicas,
        )
        for topic in answer.topics
        for row in topic.partitions
    }


def elect(cluster: SimCluster, topic: str, *, unclean: bool = False) -> str:
    client = cluster.client(cluster.controller)
    answer = client.ask(
        ELECT_LEADERS,
        2,
        election_type=1 if unclean else 0,
        topic_partitions=[{"topic": topic, "partitions": [0]}],
        timeout=10_000,
    )
    return str(answer.replica_election_results[0].partition_result[0].error_code.name)


def alter(client: SimClient, kind: int, name: str, **values: Any) -> str:
    """Sets settings of a topic or a broker; a value of None takes one away."""
    configs = [
        {"name": key.replace("_", "."), "config_operation": value is None, "value": value}
        for key, value in values.items()
    ]
    resource = {"resource_type": kind, "resource_name": name, "configs": configs}
    answer = client.ask(INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource], validate_only=False)
    return str(answer.responses[0].error_code.name)


def describe(client: SimClient, *topics: str, create: bool = False) -> Any:
    return client.ask(
        METADATA,
        9,
        topics=[{"name": topic} for topic in topics] or None,
        allow_auto_topic_creation=create,
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=False,
    )


def new_producer(client: SimClient) -> int:
    answer = client.ask(
        INIT_PRODUCER_ID,
        4,
        transactional_id=None,
        transaction_timeout=1000,
        producer_id=-1,
        producer_epoch=-1,
    )
    assert answer.error_code.name == "none", answer.error_code
    return int(answer.producer_id)


def numbered(producer_id: int, sequence: int, *values: str) -> bytes:
    """A batch of an idempotent producer."""
    records = [
        Record(offset=at, timestamp=1_700_000_000_000, key=b"k", value=value.encode())
        for at, value in enumerate(values)
    ]
    batch = encode_batch(records, producer_id=producer_id, producer_epoch=0, base_sequence=sequence)
    return bytes(batch)
