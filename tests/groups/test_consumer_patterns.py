"""Subscriptions by regular expression, resolved by the broker (A5)."""

import subprocess
import sys
import time

import pytest

from support.consumer_stage import Consumer, add_topic, consumer_stage, find, remove_topic, settle
from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.groups.topic_patterns import check_pattern, matching


def names(consumer: Consumer) -> list[str]:
    return sorted({topic for topic, _ in consumer.partitions})


def test_a5_a_member_has_the_topics_that_match_as_a_whole() -> None:
    stage = consumer_stage({"bar": 1, "baz": 1, "foo": 1, "ba": 1, "xbar": 1})
    a = Consumer(stage, "a", pattern="ba.").join()
    assert names(a) == ["bar", "baz"]
    b = Consumer(stage, "b", "foo", pattern="x.*").join()
    settle(a, b)
    assert names(b) == ["foo", "xbar"]
    assert sorted(find(stage).patterns) == ["ba.", "x.*"]


def test_a5_new_topics_are_found_within_the_interval_and_deleted_ones_go() -> None:
    stage = consumer_stage({"bar": 1})
    a = Consumer(stage, "a", pattern="ba.*").join()
    a.beat()
    add_topic(stage, "bax", 1)
    add_topic(stage, "foo", 1)
    stage.wait(10_000)
    settle(a)
    assert names(a) == ["bar", "bax"]
    remove_topic(stage, "bar")
    settle(a)
    assert names(a) == ["bax"]


def test_topics_are_not_looked_through_at_every_heartbeat(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = consumer_stage({"bar": 1})
    a = Consumer(stage, "a", pattern="ba.*").join()
    stage.wait(10_000)
    a.beat()
    looked: list[int] = []
    names_of_topics = stage.topics.names

    def counted() -> list[str]:
        looked.append(1)
        return names_of_topics()

    monkeypatch.setattr(stage.topics, "names", counted)
    for number in range(40):
        add_topic(stage, f"foo{number}", 1)
        stage.wait(1000)
        a.beat()
    assert 3 <= len(looked) <= 4


def test_an_expression_that_nobody_uses_any_more_is_forgotten() -> None:
    stage = consumer_stage({"bar": 1, "foo": 1})
    a = Consumer(stage, "a", pattern="ba.*").join()
    b = Consumer(stage, "b", pattern="fo.*").join()
    settle(a, b)
    a.beat(pattern="fo.*")
    assert list(find(stage).patterns) == ["fo.*"]
    a.leave()
    b.leave()
    assert not find(stage).patterns


def test_a5_resolved_expressions_survive_the_coordinator() -> None:
    stage = consumer_stage({"bar": 1, "foo": 1})
    a = Consumer(stage, "a", pattern="ba.*").join()
    stage.move()
    assert find(stage).patterns["ba.*"].topics == ("bar",)
    settle(a)
    assert names(a) == ["bar"]


@pytest.mark.parametrize("pattern", ["(a", "a(?=b)", r"(a)\1", "*", "(a{1000}){1000}", "\ud800"])
def test_what_is_no_regular_expression_of_re2_is_refused(pattern: str) -> None:
    stage = consumer_stage()
    assert Consumer(stage, "a", pattern=pattern).join().code is (
        ErrorCode.invalid_regular_expression
    )
    assert not stage.journal.written
    with pytest.raises(KafkaError):
        check_pattern(pattern, 1000)


def test_what_is_wrong_with_an_expression_is_said_as_text() -> None:
    with pytest.raises(KafkaError, match=r"^[^:]*: 't\[12' is no regular expression: missing \]"):
        check_pattern("t[12", 1000)


def test_an_expression_that_no_key_of_a_record_could_hold_is_refused() -> None:
    stage = consumer_stage()
    assert Consumer(stage, "a", pattern="a" * 32_768).join().code is (
        ErrorCode.invalid_regular_expression
    )
    assert Consumer(stage, "a", pattern="a" * 32_767).join().code is ErrorCode.none
    assert Consumer(stage, "m" * 32_768).join().code is ErrorCode.invalid_request


@pytest.mark.parametrize("pattern", ["(a+)+b", "(a|a)*b", "(.*a){12}b", "(a?){100}a{100}b"])
def test_an_expression_that_others_take_for_ever_to_match_is_matched_in_bounded_time(
    pattern: str,
) -> None:
    began = time.thread_time()
    assert matching(pattern, ["a" * 249] * 20) == ()
    assert time.thread_time() - began < 2


def test_the_engine_is_loaded_by_the_first_expression_only() -> None:
    script = (
        "import sys; import tidelog.groups.shard; assert 're2' not in sys.modules; "
        "from tidelog.groups.topic_patterns import matching; "
        "assert matching('a.', ['ab', 'abc']) == ('ab',); assert 're2' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120)
