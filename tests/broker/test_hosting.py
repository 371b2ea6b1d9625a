"""What a broker makes of what a controller says where it comes late or is taken back (X17, X22)."""

from typing import Any

from support.brokers import SimNode
from tidelog.base.control import LeaderAndIsrRequest, LeaderAndIsrResponse, TopicState
from tidelog.cluster.image import NO_LEADER, PartitionInfo
from tidelog.cluster.messages import partition_state
from tidelog.partition import Partition
from tidelog.replication.replica import Role


def made() -> tuple[SimNode, Partition]:
    node = SimNode()
    node.client().create("events")
    return node, node.broker.partitions.find("events", 0)


def tell(node: SimNode, partition: Partition, **changes: Any) -> LeaderAndIsrResponse:
    known = partition.state
    assert isinstance(known, PartitionInfo)
    fields = {name: getattr(known, name) for name in PartitionInfo.__slots__} | changes
    state = partition_state(0, PartitionInfo(**fields))
    topic = TopicState(name="events", topic_id=partition.topic_id, partitions=(state,))
    request = LeaderAndIsrRequest(
        controller_id=0,
        controller_epoch=1,
        broker_epoch=node.broker.metadata.broker_epoch,
        is_full=False,
        topics=(topic,),
        unreadable=(),
    )
    answers: list[LeaderAndIsrResponse] = []
    node.broker.hosting.leader_and_isr(request, answers.append)
    assert node.loop.run_until(lambda: bool(answers))
    return answers[0]


def test_who_follows_nobody_is_not_sent_back_to_an_earlier_epoch() -> None:
    node, partition = made()
    tell(node, partition, leader=NO_LEADER, leader_epoch=5, state_version=5)
    assert (partition.replica.role, partition.leader_epoch) == (Role.nobody, 5)
    assert tell(node, partition, leader=0, leader_epoch=4, state_version=4).error_code == 0
    assert (partition.replica.role, partition.leader_epoch) == (Role.nobody, 5)
    tell(node, partition, leader=0, leader_epoch=6, state_version=6)
    assert (partition.replica.role, partition.is_led) == (Role.leader, True)


def test_who_has_resigned_is_told_the_same_again() -> None:
    node, partition = made()
    node.broker.hosting.resign()
    assert not partition.is_led
    tell(node, partition)
    assert partition.is_led


def test_what_waited_for_a_slow_write_does_not_begin_after_a_resignation() -> None:
    """X22: the session in which it was said is over."""
    node, partition = made()
    partition.is_busy = True
    tell(node, partition, leader_epoch=1, state_version=1)
    assert not partition.is_led, "it waits for what is being written"
    node.broker.hosting.resign()
    partition.is_busy = False
    partition.became_idle()
    assert (partition.replica.role, partition.is_led) == (Role.nobody, False)
