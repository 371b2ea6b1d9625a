"""When leaderships go back to the preferred replicas by themselves (E4)."""

from dataclasses import replace

from tidelog.base.ids import TopicPartition
from tidelog.cluster.balancing import Placed, to_move
from tidelog.cluster.elections import Situation
from tidelog.cluster.image import PartitionInfo

LIVE = {1: 10, 2: 20}
NOW = Situation(live=LIVE, controller_epoch=2)


def partitions(total: int, elsewhere: int, preferred: int = 1) -> list[Placed]:
    """Partitions that prefer a broker, some of which the other one leads."""
    other = 3 - preferred
    return [
        (
            TopicPartition(f"t{preferred}", number),
            PartitionInfo(
                replicas=(preferred, other),
                isr=(1, 2),
                leader=other if number < elsewhere else preferred,
                leader_epoch=1,
                state_version=1,
                broker_epochs=LIVE,
            ),
        )
        for number in range(total)
    ]


def test_leaders_stay_up_to_the_share_that_is_allowed() -> None:
    """E4: leader.imbalance.per.broker.percentage."""
    assert to_move(partitions(10, 1), NOW, 10) == []
    moved = to_move(partitions(10, 2), NOW, 10)
    assert moved == [TopicPartition("t1", 0), TopicPartition("t1", 1)]
    assert to_move(partitions(10, 0), NOW, 0) == []
    assert len(to_move(partitions(10, 1), NOW, 0)) == 1


def test_each_broker_has_its_own_share() -> None:
    """E4."""
    mixed = partitions(10, 1) + partitions(2, 1, preferred=2)
    assert to_move(mixed, NOW, 10) == [TopicPartition("t2", 0)]


def test_only_what_can_go_back_does() -> None:
    """E4."""
    placed = partitions(4, 4)
    name, out_of_sync = placed[0]
    placed[0] = (name, replace(out_of_sync, isr=(2,)))
    name, leaderless = placed[1]
    placed[1] = (name, replace(leaderless, leader=-1))
    name, moving = placed[2]
    placed[2] = (name, replace(moving, adding_replicas=(1,)))
    assert to_move(placed, NOW, 10) == [TopicPartition("t1", 3)]
    assert to_move(placed, replace(NOW, live={2: 20}), 10) == []
    assert to_move(placed, replace(NOW, live={1: 11, 2: 20}), 10) == []
