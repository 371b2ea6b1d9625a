"""Topics of many partitions, made and deleted in slices: what else happens meanwhile."""

import pytest

from support.brokers import DELETE_TOPICS, SimNode, one_batch
from support.wire_client import CREATE_TOPICS, METADATA, creation

COUNT = 120


def topic_is_whole(node: SimNode, topic: str) -> None:
    """Every partition that the image has is led here, and takes records."""
    found = node.broker.metadata.image.topics.get(topic)
    if found is not None:
        assert node.loop.run_until(
            lambda: all(
                (topic, index) in node.broker.partitions.by_key
                for index in range(len(found.partitions))
            ),
            120_000,
        )
        for index in {0, len(found.partitions) - 1}:
            answer = node.client().produce(topic, one_batch("a"), index=index)
            assert answer.error_code.name == "none"
    assert all(log_dir.failure is None for log_dir in node.broker.logs.dirs)


def test_others_are_answered_while_partitions_are_made_and_deleted() -> None:
    node = SimNode()
    client, other = node.client(), node.client()
    client.send(CREATE_TOPICS, 7, **creation("wide", COUNT))
    asked = 0
    while not client.answers:
        other.ask(METADATA, 12, topics=[], include_topic_authorized_operations=False)
        asked += 1
    assert asked > 3
    topic_is_whole(node, "wide")
    client.ask(DELETE_TOPICS, 5, topic_names=["wide"], timeout=60_000)
    client.create("wide", partitions=COUNT)
    topic_is_whole(node, "wide")
    names = [name for name in node.disk.list("/data") if name.endswith("-delete")]
    assert len(names) == COUNT


@pytest.mark.parametrize("after_ms", [0, 30, 100, 250])
@pytest.mark.parametrize("how", ["stop", "kill", "power"])
def test_an_end_in_the_middle_of_making_or_deleting_loses_no_partition(
    how: str, after_ms: int
) -> None:
    """S9, T6."""
    node = SimNode(seed=after_ms)
    client = node.client()
    client.create("old", partitions=COUNT)
    client.send(DELETE_TOPICS, 5, topic_names=["old"], timeout=60_000)
    client.send(CREATE_TOPICS, 7, **creation("new", COUNT))
    node.loop.run_for(after_ms)
    match how:
        case "stop":
            node.stop()
        case "kill":
            node.kill()
        case _:
            node.lose_power("some")
    node.start()
    for topic in ("old", "new"):
        topic_is_whole(node, topic)
    held = {partition.name for partition in node.broker.partitions}
    assert node.loop.run_until(
        lambda: {name for d in node.broker.logs.dirs for name in d.logs} == held
    ), "what belongs to no topic is gone"
