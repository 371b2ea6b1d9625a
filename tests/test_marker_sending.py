"""Markers on their way to leaders, of a partition that is not to be found for a while."""

from collections.abc import Callable

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.base.ids import TopicPartition
from tidelog.cluster.image import Image, PartitionInfo, TopicInfo
from tidelog.marker_sending import GONE_AFTER_MS, Lot, MarkerSender, Results
from tidelog.transactions.surroundings import Ending
from tidelog.world.sim.loop import SimLoop

HERE = TopicPartition("orders", 0)
LEADER = 1
ENDING = Ending(
    producer_id=7,
    producer_epoch=3,
    coordinator_epoch=0,
    is_commit=True,
    transaction_version=2,
    partitions=(HERE,),
)


class Scene:
    """Leaders write at once what they are sent."""

    def __init__(self) -> None:
        self.image = Image()
        self.loop = SimLoop()
        self.sent: list[tuple[int, TopicPartition]] = []
        self.ended: list[KafkaError | None] = []
        self._sender = MarkerSender(self.loop, self.loop.clock, lambda: self.image, self._deliver)

    def put_topic(self) -> None:
        partition = PartitionInfo(
            replicas=(LEADER,), isr=(LEADER,), leader=LEADER, leader_epoch=0, state_version=0
        )
        self.image.put_topic(
            TopicInfo(name=HERE.topic, topic_id=b"t" * 16, partitions=(partition,))
        )

    def write(self) -> None:
        self._sender.write(ENDING, lambda: False, self.ended.append)
        self.loop.run_for(2 * GONE_AFTER_MS)

    def _deliver(
        self, broker_id: int, lot: Lot, done: Callable[[Results | KafkaError], None]
    ) -> None:
        asked = [(ending.producer_id, each) for ending, partitions in lot for each in partitions]
        self.sent += [(broker_id, partition) for _, partition in asked]
        done(dict.fromkeys(asked, ErrorCode.none))


def test_a_partition_that_was_deleted_needs_no_marker() -> None:
    scene = Scene()
    scene.write()
    assert (scene.sent, scene.ended) == ([], [None])


def test_a_topic_that_cannot_be_read_gets_its_markers_when_it_can_be() -> None:
    """Were it taken for deleted, the transaction would stay open there for ever (X30)."""
    scene = Scene()
    scene.image.unreadable[HERE.topic] = "its node is damaged"
    scene.write()
    assert (scene.sent, scene.ended) == ([], []), "it is waited for"
    scene.image.unreadable.clear()
    scene.put_topic()
    assert scene.loop.run_until(lambda: bool(scene.ended))
    assert (scene.sent, scene.ended) == ([(LEADER, HERE)], [None])
