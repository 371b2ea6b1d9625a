"""What a controller knows of its brokers and partitions."""

import pytest

from tidelog.base.coordination import Check
from tidelog.base.settings import Settings
from tidelog.cluster.elections import Report
from tidelog.cluster.image import NO_LEADER, PartitionInfo, TopicInfo
from tidelog.cluster.leadership import Office
from tidelog.cluster.realm import Realm

A, B = 1, 2


def leaderless(leader_epoch: int) -> PartitionInfo:
    return PartitionInfo(
        replicas=(A, B),
        isr=(A, B),
        leader=NO_LEADER,
        leader_epoch=leader_epoch,
        state_version=leader_epoch,
    )


@pytest.mark.parametrize("leader_epoch", [7, 8, 9])
def test_what_replicas_said_is_kept_for_as_long_as_the_epoch_they_were_asked_under(
    leader_epoch: int,
) -> None:
    """D10: who did not answer then is asked anew in the next one, also if that it was led in
    between was only read, because the answer to the write was lost."""
    office = Office(epoch=1, fence=Check(path="/controller_epoch", version=0))
    realm = Realm(office=office, broker_id=A, settings=lambda: Settings.of({}))
    realm.image.put_topic(TopicInfo(name="t", topic_id=b"t" * 16, partitions=(leaderless(7),)))
    said = Report(leader_epoch=7, broker_epoch=10, last_epoch=6, log_end_offset=5)
    realm.reports["t", 0] = {A: said, B: None}
    realm.put_partitions("t", {0: leaderless(leader_epoch)}, 1)
    assert realm.known(("t", 0)).reports == ({A: said, B: None} if leader_epoch == 7 else {})
