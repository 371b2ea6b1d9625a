"""Z15: bad JSON in any node is logged and costs only what it describes; data is left alone."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.members import Cluster
from tidelog.base.errors import BadValue, ErrorCode, KafkaError
from tidelog.cluster.image import TopicInfo
from tidelog.cluster.requests import NewTopic


def prepared() -> Cluster:
    """A cluster with two topics and settings, whose one broker has stopped."""
    cluster = Cluster()
    member = cluster.started()
    member.create(NewTopic(name="good", partition_count=2), NewTopic(name="bad"))
    member.alter("broker", "", {"log.retention.ms": ("set", "7")})
    member.alter("broker", "0", {"log.segment.bytes": ("set", "1000")})
    member.die()
    cluster.forget_the_dead()
    return cluster


@pytest.mark.parametrize(
    "path",
    ["/brokers/topics/bad", "/brokers/topics/bad/partitions/0/state", "/config/topics/bad"],
)
@pytest.mark.parametrize("data", [b"\xff", b"{", b"[]", b'{"partitions":7,"config":7}'])
def test_a_topic_that_cannot_be_read_is_left_alone(
    path: str, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = prepared()
    cluster.put(path, data)
    member = cluster.started()
    image = member.metadata.image
    assert list(image.topics) == ["good"]
    assert list(image.unreadable) == ["bad"]
    assert member.metadata.controller is not None
    assert path in member.metadata.controller.realm.image.unreadable["bad"]
    assert "bad" in caplog.text
    assert cluster.data(path) == data
    (again,) = member.create(NewTopic(name="bad"))
    assert isinstance(again, KafkaError)
    assert again.code is ErrorCode.topic_already_exists
    (gone,) = member.delete("bad")
    assert isinstance(gone, KafkaError)
    assert gone.code is ErrorCode.unknown_topic_or_partition
    assert cluster.data(path) == data


def test_a_topic_that_can_be_read_again_is_there_again_for_brokers_that_knew_it_before() -> None:
    """Were it taken for deleted, groups would forget how far they have read it."""
    cluster = Cluster()
    first, *others = (cluster.started(broker_id) for broker_id in range(3))
    first.create(NewTopic(name="good"), NewTopic(name="bad"))
    path = "/config/topics/bad"
    data = cluster.data(path)
    cluster.put(path, b"{")
    first.die()
    cluster.forget_the_dead()
    third, second = sorted(others, key=lambda member: member.is_controller)
    image = third.metadata.image
    assert cluster.loop.run_until(lambda: list(image.unreadable) == ["bad"])
    assert second.is_controller
    assert list(image.topics) == ["good"]
    cluster.put(path, data)
    second.die()
    cluster.forget_the_dead()
    assert cluster.loop.run_until(lambda: third.is_controller and not image.unreadable)
    cluster.loop.run_for(1000)
    assert sorted(image.topics) == ["bad", "good"]


def test_a_name_that_no_topic_can_have_is_left_alone() -> None:
    cluster = prepared()
    cluster.put("/brokers/topics/..b\u00e4d", b"{}")
    assert "..b\u00e4d" in cluster.started().metadata.image.unreadable


def test_two_topics_with_one_id_are_told_apart() -> None:
    cluster = prepared()
    cluster.put("/brokers/topics/twin", cluster.data("/brokers/topics/good"))
    image = cluster.started().metadata.image
    assert len(image.topics) == len(image.topic_names) == 2
    assert "same id" in next(iter(image.unreadable.values()))


def test_a_topic_that_cannot_be_read_is_deleted_if_it_is_marked() -> None:
    cluster = prepared()
    cluster.put("/brokers/topics/bad", b"{")
    cluster.put("/admin/delete_topics/bad", b"")
    member = cluster.started()
    cluster.loop.run_for(1000)
    assert not cluster.exists("/brokers/topics/bad")
    assert member.metadata.image.unreadable == {}
    assert isinstance(member.create(NewTopic(name="bad"))[0], TopicInfo)


@pytest.mark.parametrize(
    ("path", "name"), [("/brokers/ids/5", "5"), ("/brokers/ids/x", "x"), ("/brokers/ids/07", "07")]
)
def test_a_broker_whose_registration_cannot_be_read_is_left_out(
    path: str, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = prepared()
    cluster.put(path, b"{")
    assert list(cluster.started().metadata.image.brokers) == [0]
    assert f"/brokers/ids/{name}" in caplog.text


@pytest.mark.parametrize("path", ["/config/brokers/0", "/config/brokers/<default>"])
def test_settings_of_brokers_that_cannot_be_read_are_left_out(
    path: str, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = prepared()
    cluster.put(path, b"{")
    cluster.started()
    assert path in caplog.text


def test_another_controller_that_cannot_be_read_is_still_the_controller() -> None:
    cluster = prepared()
    cluster.put("/controller", b"{")
    member = cluster.started()
    assert member.metadata.image.controller_id == -1
    assert member.metadata.controller_epoch is None


@pytest.mark.parametrize("path", ["/cluster/id", "/controller_epoch"])
def test_a_node_without_which_nothing_is_safe_is_named(path: str) -> None:
    cluster = prepared()
    cluster.put(path, b"{")
    error = cluster.member().start()
    assert isinstance(error, BadValue)
    assert path in str(error)


def test_a_registration_by_another_that_cannot_be_read_is_still_respected() -> None:
    cluster = prepared()
    cluster.put("/brokers/ids/0", b"{")
    error = cluster.member().start()
    assert isinstance(error, BadValue)
    assert "broker.id=0" in str(error)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_node_can_hold_anything(data: st.DataObject) -> None:
    """A start ends with None or a sentence, and never touches what it could not read."""
    cluster = prepared()
    paths = [path for path in cluster.paths() if path != "/"]
    for _ in range(data.draw(st.integers(1, 3))):
        path = data.draw(st.sampled_from(paths))
        junk = data.draw(st.binary(max_size=30) | st.sampled_from([b"", b"{}", b"null", b"[1]"]))
        cluster.put(path, junk)
    member = cluster.member()
    error = member.start()
    assert error is None or (isinstance(error, BadValue) and str(error))
    if error is None:
        image = member.metadata.image
        assert set(image.topics) | set(image.unreadable) == {"good", "bad"}
