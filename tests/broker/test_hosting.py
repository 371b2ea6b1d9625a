"""What a broker makes of what a controller says where it comes late or is taken back (X17, X22)."""

from typing import Any

from support.brokers import SimNode, one_batch
from tidelog.base.control import LeaderAndIsrRequest, LeaderAndIsrResponse, TopicState
from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.cluster.image import NO_LEADER, PartitionInfo
from tidelog.cluster.messages import partition_state
from tidelog.handlers.write_txn_markers import write_lot
from tidelog.marker_sending import Results
from tidelog.partition import Partition
from tidelog.records.reference import Record, encode_batch
from tidelog.replication.replica import Role
from tidelog.transactions.surroundings import Ending


class Woken:
    """Somebody who waits for a partition."""

    follower = 1
    asked_ms = 0

    def __init__(self, woken: list[str], name: str) -> None:
        self._woken = woken
        self._name = name

    def wake(self) -> None:
        self._woken.append(self._name)

    def note(self) -> None:
        """It is told more with its next answer."""


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


def waiting() -> tuple[SimNode, Partition, list[KafkaError | None]]:
    """A producer waits for broker 1, which has not fetched what it sent."""
    node = SimNode()
    node.client().create("events", min_insync_replicas=2)
    partition = node.broker.partitions.find("events", 0)
    epochs = {0: node.broker.metadata.broker_epoch, 1: 7}
    changes = {"replicas": (0, 1, 2), "isr": (0, 1, 2), "broker_epochs": epochs}
    tell(node, partition, leader_epoch=1, state_version=1, **changes)
    partition.append(encode_batch([Record(offset=0, timestamp=0, value=b"v")]), 0)
    answers: list[KafkaError | None] = []
    partition.acks.wait(partition.log.log_end_offset, answers.append)
    return node, partition, answers


def test_who_goes_on_to_lead_keeps_the_producers_that_wait() -> None:
    """A1, L1: an epoch of the same leader begins whenever a follower dies. What was appended in
    the epoch before is committed once the in-sync replicas of the new one have it."""
    node, partition, answers = waiting()
    tell(node, partition, isr=(0, 1), leader_epoch=2, state_version=2)
    assert (partition.is_led, partition.leader_epoch, answers) == (True, 2, [])
    partition.replica_fetched(1, 7, (1, 1, 0), 0)
    assert answers == [None]


def test_who_goes_on_to_lead_with_too_few_says_so_to_those_who_wait() -> None:
    """A2: nobody can promise them anything."""
    node, partition, answers = waiting()
    tell(node, partition, isr=(0,), elr=(1,), leader_epoch=2, state_version=2)
    (answer,) = answers
    assert answer is not None
    assert answer.code is ErrorCode.not_enough_replicas_after_append
    assert partition.high_watermark == 0


def test_who_has_too_few_when_a_slow_append_is_done_says_so() -> None:
    """A2: the set was large enough when the request came."""
    node = SimNode()
    client = node.client()
    client.create("events", max_message_bytes=10_000_000, min_insync_replicas=2)
    partition = node.broker.partitions.find("events", 0)
    epochs = {0: node.broker.metadata.broker_epoch, 1: 7}
    changes = {"replicas": (0, 1), "broker_epochs": epochs}
    tell(node, partition, isr=(0, 1), leader_epoch=1, state_version=1, **changes)
    client.send_produce("events", one_batch("x" * 3_000_000), acks=-1)
    assert node.loop.run_until(lambda: partition.is_busy), "it is being written"
    tell(node, partition, isr=(0,), elr=(1,), leader_epoch=1, state_version=2, **changes)
    answer = client.wait().responses[0].partition_responses[0]
    assert answer.error_code.name == "not_enough_replicas_after_append"
    assert partition.log.log_end_offset == 1


def test_who_has_too_few_when_a_marker_is_flushed_says_so() -> None:
    """A2: a coordinator on the same broker would wait for it, with all other markers for what is
    led here."""
    node = SimNode()
    client = node.client()
    client.create("events", flush_messages=1, min_insync_replicas=2)
    partition = node.broker.partitions.find("events", 0)
    epochs = {0: node.broker.metadata.broker_epoch, 1: 7}
    changes = {"replicas": (0, 1), "broker_epochs": epochs}
    tell(node, partition, isr=(0, 1), leader_epoch=1, state_version=1, **changes)
    ending = Ending(
        producer_id=7,
        producer_epoch=0,
        is_commit=True,
        coordinator_epoch=0,
        partitions=(partition.name,),
        transaction_version=0,
    )
    written: list[Results] = []
    broker: Any = node.broker
    write_lot(broker, [(ending, ending.partitions)], written.append)
    assert node.loop.run_until(lambda: partition.is_busy), "it is being flushed"
    tell(node, partition, isr=(0,), elr=(1,), leader_epoch=1, state_version=2, **changes)
    assert node.loop.run_until(lambda: bool(written))
    assert list(written[0].values()) == [ErrorCode.not_enough_replicas_after_append]


def test_readers_that_wait_in_an_earlier_epoch_are_told() -> None:
    """L6: a follower that was told of the new epoch must not wait for an answer of the old one."""
    node, partition, _ = waiting()
    woken: list[str] = []
    partition.waiters[Woken(woken, "reader")] = None
    partition.end_waiters[Woken(woken, "follower")] = None
    tell(node, partition, leader_epoch=1, state_version=2)
    assert woken == []
    tell(node, partition, leader_epoch=2, state_version=3)
    assert woken == ["reader", "follower"]


def test_who_goes_on_to_lead_while_a_batch_is_flushed_sends_it_to_followers() -> None:
    """R2: what a leader has written itself may be told by the controller first, and then nothing
    else would wake a follower that has all there was."""
    node = SimNode()
    client = node.client()
    client.create("events", flush_messages=1)
    partition = node.broker.partitions.find("events", 0)
    epochs = {0: node.broker.metadata.broker_epoch, 1: 7}
    changes = {"replicas": (0, 1), "broker_epochs": epochs}
    tell(node, partition, isr=(0, 1), leader_epoch=1, state_version=1, **changes)
    woken: list[str] = []
    partition.end_waiters[Woken(woken, "follower")] = None
    client.send_produce("events", one_batch("a"), acks=1)
    assert node.loop.run_until(lambda: partition.log.log_end_offset == 1)
    assert (partition.is_busy, woken) == (True, []), "it is being flushed"
    tell(node, partition, isr=(0, 1), leader_epoch=1, state_version=2)
    client.wait()
    assert woken == ["follower"]


def test_readers_do_not_see_what_is_being_flushed_when_a_follower_asks_meanwhile() -> None:
    """V8: the leader is alone in sync, and what it has not flushed is lost with its power."""
    node = SimNode()
    client, reader = node.client(), node.client()
    client.create("events", flush_messages=1)
    partition = node.broker.partitions.find("events", 0)
    tell(node, partition, replicas=(0, 1), leader_epoch=1, state_version=1)
    client.send_produce("events", one_batch("a"))
    assert node.loop.run_until(lambda: partition.log.log_end_offset == 1)
    partition.replica_fetched(1, 7, (0, -1, 0), node.clock.monotonic_ms())
    assert partition.log.recovery_point == 0
    assert partition.high_watermark == 0
    assert not reader.fetch("events", 0).records
    client.wait()
    assert (partition.log.recovery_point, partition.high_watermark) == (1, 1)
    assert reader.fetch("events", 0).records
