"""What brokers announce through the tree: ISR changes and settings: I4, O1."""

import pytest

from support.agreement import assert_agreed, topics_in_tree
from support.members import Cluster, Member
from tidelog.base.errors import KafkaError
from tidelog.base.ids import TopicIdPartition
from tidelog.cluster.image import PartitionInfo, TopicInfo
from tidelog.cluster.isr_change import shrunk
from tidelog.cluster.isr_writes import IsrWriter, Wrote
from tidelog.cluster.notifications import decode_isr_change, encode_isr_change
from tidelog.cluster.requests import Change, ConfigChange, NewTopic
from tidelog.world.sim.coordination import CoordinationFaults


def cluster_of(count: int, seed: int = 0) -> tuple[Cluster, list[Member]]:
    cluster = Cluster(seed)
    members = [cluster.started(number) for number in range(count)]
    assignment = {0: [1, 0, 2]} if count == 3 else {0: [0]}
    (topic,) = members[0].create(NewTopic(name="t", assignment=assignment))
    assert isinstance(topic, TopicInfo)
    assert_agreed(cluster, members)
    for member in members:
        member.changes.clear()
    return cluster, members


def standing(cluster: Cluster) -> tuple[TopicIdPartition, PartitionInfo]:
    topic = topics_in_tree(cluster)["t"]
    return TopicIdPartition(topic.topic_id, "t", 0), topic.partitions[0]


def shrink(cluster: Cluster, member: Member, gone: int) -> None:
    """A leader takes a follower out of the ISR and announces it."""
    name, before = standing(cluster)
    outcomes: list[object] = []
    writer = IsrWriter(member.coordination)
    writer.write(name, before, shrunk(before, [gone], 1), outcomes.append)
    assert cluster.loop.run_until(lambda: bool(outcomes))
    assert isinstance(outcomes[0], Wrote)
    member.metadata.isr_changed("t", 0)


def test_an_isr_that_a_leader_changed_is_announced_told_to_all_and_cleared_away() -> None:
    """I4."""
    cluster, members = cluster_of(3)
    shrink(cluster, members[1], 2)
    cluster.loop.run_for(2400)
    assert cluster.paths("/isr_change_notification")[1:] == []
    cluster.loop.run_for(2000)
    assert_agreed(cluster, members)
    assert members[2].metadata.image.topics["t"].partitions[0].isr == (1, 0)
    cluster.loop.run_for(100)
    assert cluster.paths("/isr_change_notification")[1:] == []


def test_announcements_of_isr_changes_are_spaced() -> None:
    """I4: the second waits until no change was made for 5 s, or a minute has passed."""
    cluster, (member,) = cluster_of(1)
    written: list[int] = []
    cluster.ensemble.on_write = lambda path: (
        written.append(cluster.loop.clock.monotonic_ms())
        if path.startswith("/isr_change_notification/")
        else None
    )
    start_ms = cluster.loop.clock.monotonic_ms()
    for _ in range(70):
        member.metadata.isr_changed("t", 0)
        cluster.loop.run_for(1000)
    cluster.loop.run_for(10_000)
    times = [at_ms - start_ms for at_ms in written[::2]]
    assert 2500 <= times[0] <= 2600
    assert 62_400 <= times[1] <= 65_200, "a minute after the first, however busy it was"
    assert 73_900 <= times[2] <= 78_000, "5 s after the last change, at the next look"
    assert len(times) == 3


def test_the_text_of_an_announcement_is_kafkas() -> None:
    text = encode_isr_change([("t", 0), ("u", 3)])
    expected = (
        b'{"version":1,"partitions":[{"topic":"t","partition":0},{"topic":"u","partition":3}]}'
    )
    assert text == expected
    assert decode_isr_change(text) == [("t", 0), ("u", 3)]


@pytest.mark.parametrize("data", [b"", b"[]", b'{"partitions":[7]}', b'{"partitions":[{}]}'])
def test_an_announcement_that_cannot_be_read_is_reported_and_cleared_away(
    data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    cluster, members = cluster_of(3)
    cluster.put_watched("/isr_change_notification/isr_change_0000000007", data)
    cluster.loop.run_for(1000)
    assert cluster.paths("/isr_change_notification")[1:] == []
    assert "announcement cannot be read" in caplog.text
    assert_agreed(cluster, members)


def test_a_new_controller_acts_on_announcements_that_are_there() -> None:
    cluster, members = cluster_of(3)
    name, before = standing(cluster)
    cluster.kill(members[0])
    writer = IsrWriter(members[1].coordination)
    writer.write(name, before, shrunk(before, [2], 1), lambda _: None)
    cluster.put("/isr_change_notification/isr_change_0000000001", encode_isr_change([("t", 0)]))
    assert_agreed(cluster, members[1:])
    cluster.loop.run_for(1000)
    assert cluster.paths("/isr_change_notification")[1:] == []


def test_a_setting_altered_through_any_broker_acts_on_all() -> None:
    """O1."""
    cluster, members = cluster_of(3)
    assert members[2].alter("topic", "t", {"retention.ms": ("set", "5")}) == [None]
    assert members[1].alter("broker", "", {"log.retention.ms": ("set", "7")}) == [None]
    cluster.loop.run_for(1000)
    for member in members:
        assert member.metadata.image.topics["t"].config == {"retention.ms": "5"}
        assert member.metadata.settings["log.retention.ms"] == 7
        assert len(member.changes) == 2
        assert Change(topic_configs=("t",)) in member.changes
        assert Change(broker_config=True) in member.changes
    controller = members[0].metadata.controller
    assert controller is not None
    assert controller.realm.image.topics["t"].config == {"retention.ms": "5"}


def test_a_setting_of_one_broker_acts_on_that_one() -> None:
    cluster, members = cluster_of(3)
    assert members[1].alter("broker", "1", {"log.retention.ms": ("set", "7")}) == [None]
    cluster.loop.run_for(1000)
    assert [member.metadata.settings["log.retention.ms"] for member in members] == [None, 7, None]
    (error,) = members[0].alter("broker", "1", {"log.retention.ms": ("set", "7")})
    assert isinstance(error, KafkaError)


@pytest.mark.parametrize("seed", range(8))
def test_changes_made_at_once_through_all_brokers_are_all_there(seed: int) -> None:
    """Nobody's change is lost, none is missed between two watches."""
    cluster, members = cluster_of(3, seed)
    for member in members:
        member.coordination.faults = CoordinationFaults(lost_before=0.01, lost_after=0.01)
    names = ["segment.ms", "retention.ms", "max.message.bytes", "file.delete.delay.ms"]
    results: list[list[KafkaError | None]] = []
    for number, name in enumerate(names * 3):
        change = ConfigChange(kind="topic", name="t", changes={name: ("set", str(60_000 + number))})
        members[number % 3].metadata.alter_configs([change], False, results.append)
    assert cluster.loop.run_until(lambda: len(results) == 12)
    assert results == [[None]] * 12
    cluster.loop.run_for(10_000)
    stored = cluster.json("/config/topics/t")["config"]
    assert sorted(stored) == sorted(names)
    for member in members:
        assert member.metadata.image.topics["t"].config == stored


def test_what_was_altered_while_a_session_was_away_is_known_when_it_is_back() -> None:
    """X22."""
    cluster, members = cluster_of(3)
    members[2].coordination.lose_connection(away_ms=30_000)
    cluster.loop.run_for(20_000)
    assert members[1].alter("topic", "t", {"retention.ms": ("set", "5")}) == [None]
    assert members[2].metadata.image.topics["t"].config == {}
    assert_agreed(cluster, members)
    cluster.loop.run_for(1000)
    assert members[2].metadata.image.topics["t"].config == {"retention.ms": "5"}
    assert Change(topic_configs=("t",)) in members[2].changes


def test_a_session_that_expires_between_preparing_and_joining_costs_no_announcement() -> None:
    """X22: the watch on changes was left in a session that is gone."""
    cluster, members = cluster_of(3)
    cluster.kill(members[2])
    again = cluster.member(2)
    prepared: list[Exception | None] = []
    again.metadata.prepare(prepared.append)
    assert cluster.loop.run_until(lambda: prepared == [None])
    again.coordination.expire()
    cluster.exchange.reachable[2] = again.metadata.handle
    joined: list[Exception | None] = []
    again.metadata.join(joined.append)
    assert cluster.loop.run_until(lambda: joined == [None])
    assert members[1].alter("topic", "t", {"retention.ms": ("set", "5")}) == [None]
    cluster.loop.run_for(1000)
    assert again.metadata.image.topics["t"].config == {"retention.ms": "5"}
