"""What a query reads next, on topics that change under it (row P3, and trap 1: where a query begins
is decided once and written down)."""

import logging
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from support.sim_logs import SimLogs
from tidelog.base.errors import BadValue
from tidelog.base.ids import TopicPartition
from tidelog.client.cluster import id_of_text
from tidelog.client.fetching import Range
from tidelog.spark.losses import DataLoss
from tidelog.spark.options import SourceOptions
from tidelog.spark.stream_planning import IDLE_MS, StreamPlanner

Json = dict[str, Any]


class Clock:
    def __init__(self) -> None:
        self.ms = 1_000_000

    def now_ms(self) -> int:
        self.ms += IDLE_MS
        return self.ms


def planner(
    logs: SimLogs, *, clock: Clock | None = None, topics: str = "t", **options: Any
) -> StreamPlanner:
    needed = {"kafka.bootstrap.servers": "a:1", "subscribe": topics}
    parsed = SourceOptions.parse(needed | options, is_stream=True)
    return StreamPlanner(parsed, logs, (clock or Clock()).now_ms)


def logs_with(*records: int) -> SimLogs:
    logs = SimLogs()
    logs.create("t", len(records))
    for partition, number in enumerate(records):
        logs.append("t", partition, number)
    return logs


def ranges(tasks: list[Range]) -> list[tuple[int, int, int]]:
    return [(task.partition, task.start, task.end) for task in tasks]


def test_where_a_query_begins_is_in_the_end_of_its_first_batch() -> None:
    """P3, trap 1: the initial offset is asked for twice, and a record may come in between."""
    logs = logs_with(5, 0)
    query = planner(logs)
    initial = query.initial()
    logs.append("t", 0, 3)
    assert query.initial() == initial == {"start": "latest"}
    first = query.next(initial, is_limited=False)
    assert query.tasks(initial, first) == []
    logs.append("t", 0, 2)
    logs.append("t", 1, 1)
    second = query.next(first, is_limited=False)
    assert ranges(query.tasks(first, second)) == [(0, 8, 10), (1, 0, 1)]


def test_a_batch_that_is_run_again_after_a_crash_is_the_same_batch() -> None:
    """P3, trap 1: with the driver killed in the first batch, on a growing log."""
    logs = logs_with(10, 10)
    options: dict[str, Any] = {
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "9",
        "minPartitions": "4",
    }
    query = planner(logs, **options)
    end = query.next(query.initial(), is_limited=True)
    before = query.tasks(query.initial(), end)
    logs.append("t", 0, 100)
    logs.topics["t"][1].begin = 3
    restarted = planner(logs, **options)
    assert restarted.tasks(restarted.initial(), end) == before
    assert {task.topic_id for task in before} == {(1).to_bytes(16)}
    assert ranges(before) == [(0, 0, 2), (0, 2, 4), (1, 0, 2), (1, 2, 4)]


def test_of_an_empty_topic_the_earliest_is_where_it_was_when_the_query_began() -> None:
    """P3: what came and went while the query was stopped was never read, and somebody hears."""
    logs = logs_with(0)
    query = planner(logs, startingOffsets="earliest")
    first = query.next(query.initial(), is_limited=False)
    assert query.tasks(query.initial(), first) == []
    assert query.next(first, is_limited=False) == first
    logs.append("t", 0, 10)
    logs.topics["t"][0].begin = 3
    with pytest.raises(DataLoss, match="t-0: offsets 0 to 2 are gone: the log begins at 3"):
        planner(logs).next(first, is_limited=False)
    careless = planner(logs, failOnDataLoss="false")
    second = careless.next(first, is_limited=False)
    assert ranges(careless.tasks(first, second)) == [(0, 3, 10)]


def test_brokers_are_asked_every_100_ms_when_idle_and_no_more() -> None:
    """Trap 17"""
    logs = logs_with(4)
    moment = [0]
    needed = {"kafka.bootstrap.servers": "a:1", "subscribe": "t"}
    options = SourceOptions.parse(needed, is_stream=True)
    query = StreamPlanner(options, logs, lambda: moment[0])
    start = query.next(query.initial(), is_limited=False)
    asked = logs.asked
    for moment[0] in range(1, 1001):
        assert query.next(start, is_limited=False) == start
    assert 9 <= logs.asked - asked <= 11
    logs.append("t", 0, 1)
    moment[0] += IDLE_MS
    assert query.next(start, is_limited=False) != start


def test_what_is_limited_is_read_in_several_batches_and_all_of_it() -> None:
    logs = logs_with(100, 1)
    query = planner(logs, startingOffsets="earliest", maxOffsetsPerTrigger="40")
    found = []
    start = query.initial()
    while (end := query.next(start, is_limited=True)) != start:
        found += ranges(query.tasks(start, end))
        start = end
    assert found == [(0, 0, 39), (1, 0, 1), (0, 39, 79), (0, 79, 100)]
    everything = query.next(query.initial(), is_limited=False)
    assert ranges(query.tasks(query.initial(), everything)) == [(0, 0, 100), (1, 0, 1)]


def test_a_limit_in_bytes_reads_large_records_in_smaller_batches() -> None:
    logs = logs_with(100, 100)
    logs.record_bytes = {TopicPartition("t", 0): 1000, TopicPartition("t", 1): 10}
    query = planner(logs, startingOffsets="earliest", maxBytesPerTrigger="10100")
    end = query.next(query.initial(), is_limited=True)
    assert ranges(query.tasks(query.initial(), end)) == [(0, 0, 10), (1, 0, 10)]
    everything = query.next(query.initial(), is_limited=False)
    assert ranges(query.tasks(query.initial(), everything)) == [(0, 0, 100), (1, 0, 100)]


def test_a_limit_in_bytes_is_refused_where_brokers_do_not_tell_sizes() -> None:
    query = planner(logs_with(5), startingOffsets="earliest", maxBytesPerTrigger="100")
    with pytest.raises(BadValue, match=r"maxBytesPerTrigger=100: .* size of t-0"):
        query.next(query.initial(), is_limited=True)


def test_too_few_records_wait_for_more_or_for_the_time_that_was_set() -> None:
    logs, clock = logs_with(0), Clock()
    options: dict[str, Any] = {"minOffsetsPerTrigger": "10", "maxTriggerDelay": "5s"}
    query = planner(logs, clock=clock, **options)
    start = query.next(query.initial(), is_limited=True)
    logs.append("t", 0, 9)
    assert query.next(start, is_limited=True) == start
    clock.ms += 5000
    after = query.next(start, is_limited=True)
    assert ranges(query.tasks(start, after)) == [(0, 0, 9)]
    logs.append("t", 0, 9)
    assert query.next(after, is_limited=True) == after
    logs.append("t", 0, 1)
    assert query.next(after, is_limited=True) != after


def test_what_is_there_now_is_read_to_its_end_and_nothing_later() -> None:
    """Trigger.AvailableNow, with limits; a minimum does not hold it up."""
    logs = logs_with(10)
    query = planner(
        logs, startingOffsets="earliest", maxOffsetsPerTrigger="6", minOffsetsPerTrigger="5"
    )
    query.stop_at_what_is_there()
    logs.append("t", 0, 50)
    logs.grow("t", 1)
    logs.append("t", 1, 5)
    first = query.next(query.initial(), is_limited=True)
    second = query.next(first, is_limited=True)
    assert ranges(query.tasks(first, second)) == [(0, 6, 10)]
    assert query.next(second, is_limited=True) == second
    later = planner(logs, startingOffsets="earliest")
    end = later.next(second, is_limited=False)
    assert ranges(later.tasks(second, end)) == [(0, 10, 60), (1, 0, 5)]


def test_a_start_behind_what_is_there_now_is_no_loss() -> None:
    logs = logs_with(0)
    logs.append("t", 0, 5, time_ms=10)
    query = planner(logs, startingTimestamp="20")
    query.stop_at_what_is_there()
    logs.append("t", 0, 3, time_ms=15)
    logs.append("t", 0, 2, time_ms=20)
    end = query.next(query.initial(), is_limited=False)
    assert query.tasks(query.initial(), end) == []
    assert query.next(end, is_limited=False) == end
    later = planner(logs, startingTimestamp="20")
    after = later.next(end, is_limited=False)
    assert ranges(later.tasks(end, after)) == [(0, 8, 10)]


def test_what_is_there_now_and_ages_out_before_it_is_read_is_one_loss(
    caplog: pytest.LogCaptureFixture,
) -> None:
    logs = logs_with(5)
    query = planner(logs, startingOffsets="earliest", failOnDataLoss="false")
    start = query.next(query.initial(), is_limited=False)
    logs.append("t", 0, 5)
    query.stop_at_what_is_there()
    logs.append("t", 0, 5)
    logs.topics["t"][0].begin = 12
    with caplog.at_level(logging.WARNING, "tidelog.spark"):
        end = query.next(start, is_limited=False)
        assert query.tasks(start, end) == []
        assert query.next(end, is_limited=False) == end
        later = planner(logs, failOnDataLoss="false")
        after = later.next(end, is_limited=False)
    assert ranges(later.tasks(end, after)) == [(0, 12, 15)]
    (record,) = caplog.records
    assert "t-0: offsets 5 to 11 are gone" in record.getMessage()


def test_partitions_that_are_added_are_read_from_their_beginning() -> None:
    logs = logs_with(3)
    query = planner(logs)
    start = query.next(query.initial(), is_limited=False)
    logs.grow("t", 2)
    logs.append("t", 2, 4)
    end = query.next(start, is_limited=False)
    assert ranges(query.tasks(start, end)) == [(2, 0, 4)]


@pytest.mark.parametrize("is_bounded", [False, True])
def test_a_query_that_begins_again_asks_twice_for_topics_that_it_knows(is_bounded: bool) -> None:
    logs = logs_with(5)
    query = planner(logs, startingOffsets="earliest", failOnDataLoss="false")
    start = query.next(query.initial(), is_limited=False)
    logs.append("t", 0, 2)
    logs.not_heard_of = {"t"}
    query = planner(logs, startingOffsets="earliest", failOnDataLoss="false")
    if is_bounded:
        query.stop_at_what_is_there()
    end = query.next(start, is_limited=False)
    assert ranges(query.tasks(start, end)) == [(0, 5, 7)]


def _aged(logs: SimLogs) -> None:
    logs.append("t", 0, 10)
    logs.topics["t"][0].begin = 7


def _aged_by_one(logs: SimLogs) -> None:
    logs.append("t", 0, 10)
    logs.topics["t"][0].begin = 6


def _cut_off(logs: SimLogs) -> None:
    del logs.topics["t"][0].times[2:]


def _made_again(logs: SimLogs) -> None:
    logs.delete("t")
    logs.create("t", 1)
    logs.append("t", 0, 9)


def _new_but_aged(logs: SimLogs) -> None:
    logs.grow("t", 1)
    logs.append("t", 1, 4)
    logs.topics["t"][1].begin = 3


LOSSES = [
    (_aged, "t-0: offsets 5 to 6 are gone: the log begins at 7", [(0, 7, 15)]),
    (_aged_by_one, "t-0: offsets 5 to 5 are gone", [(0, 6, 15)]),
    (_cut_off, "t-0 was read up to offset 5, and now ends at 2", []),
    (_made_again, "topic t was deleted and made again", [(0, 0, 9)]),
    (_new_but_aged, "t-1 is new to the query: its offsets 0 to 2 are gone", [(1, 3, 4)]),
    (lambda logs: logs.delete("t"), "topic t is gone: of its partitions were read 0 up to 5", []),
]


@pytest.mark.parametrize(("change", "why", "rest"), LOSSES)
def test_a_loss_is_an_error_that_names_topic_partition_and_offsets(
    change: Any, why: str, rest: list[Any]
) -> None:
    del rest
    logs = logs_with(5)
    query = planner(logs)
    start = query.next(query.initial(), is_limited=False)
    change(logs)
    with pytest.raises(DataLoss, match=why) as raised:
        query.next(start, is_limited=False)
    assert "failOnDataLoss" in str(raised.value)


@pytest.mark.parametrize(("change", "why", "rest"), LOSSES)
def test_a_loss_that_is_no_error_is_warned_of_once_and_reading_goes_on(
    change: Any, why: str, rest: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    logs = logs_with(5)
    query = planner(logs, failOnDataLoss="false")
    start = query.next(query.initial(), is_limited=False)
    change(logs)
    with caplog.at_level(logging.WARNING, "tidelog.spark"):
        end = query.next(start, is_limited=False)
        assert ranges(query.tasks(start, end)) == rest
        assert query.next(end, is_limited=False) == end
    (record,) = caplog.records
    assert why in record.getMessage()


def test_a_topic_that_is_not_there_when_a_query_begins_is_an_error() -> None:
    query = planner(logs_with(1), topics="t,u", failOnDataLoss="false")
    with pytest.raises(BadValue, match="option subscribe: there is no topic u"):
        query.next(query.initial(), is_limited=False)


@pytest.mark.parametrize(
    ("option", "value", "why"),
    [
        ("startingOffsets", '{"t":{"0":1}}', "has nothing for t-1"),
        ("startingOffsets", '{"t":{"0":1,"1":0,"2":0}}', "names what is not read: t-2"),
        ("startingOffsetsByTimestamp", '{"t":{"0":1}}', "has nothing for t-1"),
        ("startingTimestamp", "99", "t-0 has no record since 99"),
    ],
)
def test_places_must_be_given_for_exactly_the_partitions_that_are_read(
    option: str, value: str, why: str
) -> None:
    options: dict[str, Any] = {option: value}
    query = planner(logs_with(3, 3), **options)
    with pytest.raises(BadValue, match=f"option {option}.*{why}"):
        query.next(query.initial(), is_limited=False)


def test_an_offset_that_is_not_there_is_a_loss() -> None:
    logs = logs_with(8)
    logs.topics["t"][0].begin = 4
    for offset in (3, 9):
        options: dict[str, Any] = {"startingOffsets": f'{{"t":{{"0":{offset}}}}}'}
        query = planner(logs, **options)
        with pytest.raises(DataLoss, match=f"t-0: offset {offset} .* only 4 to 8"):
            query.next(query.initial(), is_limited=False)
        lenient = planner(logs, **options, failOnDataLoss="false")
        end = lenient.next(lenient.initial(), is_limited=False)
        assert ranges(lenient.tasks(lenient.initial(), end)) == ([(0, 4, 8)] if offset == 3 else [])


def test_a_checkpoint_of_others_or_out_of_order_is_refused() -> None:
    """P3: fail loudly."""
    logs = logs_with(9)
    query = planner(logs, startingOffsets="earliest", maxOffsetsPerTrigger="3")
    first = query.next(query.initial(), is_limited=True)
    second = query.next(first, is_limited=True)
    third = query.next(second, is_limited=True)
    with pytest.raises(BadValue, match="not one of tidelog's"):
        query.next({"t": {"0": 5}}, is_limited=False)
    with pytest.raises(BadValue, match="begins at 6 after one that ended at 3"):
        query.tasks(first, third)
    backwards = {**second, "from": second["to"], "to": second["from"]}
    with pytest.raises(BadValue, match="backwards"):
        query.tasks(query.initial(), backwards)
    with pytest.raises(BadValue, match="damaged"):
        query.next({**first, "to": {"t": 5}}, is_limited=False)


class QueryOnAChangingLog(RuleBasedStateMachine):
    """Whatever happens to topics and driver: every record that was not aged out before it was read
    is read once, in order, and a batch that is run again has the same tasks."""

    def __init__(self) -> None:
        super().__init__()
        self.logs = logs_with(3, 0)
        self.clock = Clock()
        self.restart()
        self.start: Json = self.query.initial()
        self.read: dict[tuple[bytes | None, int], list[int]] = {}

    @rule()
    def restart(self) -> None:
        self.query = planner(
            self.logs,
            clock=self.clock,
            startingOffsets="earliest",
            maxOffsetsPerTrigger="7",
            minPartitions="3",
            failOnDataLoss="false",
        )

    @rule(partition=st.integers(0, 3), records=st.integers(1, 20))
    def append(self, partition: int, records: int) -> None:
        if partition < len(self.logs.topics["t"]):
            self.logs.append("t", partition, records)

    @precondition(lambda self: len(self.logs.topics["t"]) < 4)
    @rule()
    def grow(self) -> None:
        self.logs.grow("t", 1)

    @rule(partition=st.integers(0, 3), to=st.floats(0, 1))
    def age(self, partition: int, to: float) -> None:
        if partition < len(self.logs.topics["t"]):
            log = self.logs.topics["t"][partition]
            log.begin += int((log.end - log.begin) * to)

    @rule()
    def make_again(self) -> None:
        self.logs.delete("t")
        self.logs.create("t", 2)

    @rule(is_limited=st.booleans(), crashes=st.booleans())
    def run_batch(self, is_limited: bool, crashes: bool) -> None:
        end = self.query.next(self.start, is_limited=is_limited)
        tasks = self.query.tasks(self.start, end)
        if crashes:
            self.restart()
            assert self.query.tasks(self.start, end) == tasks
        for task in tasks:
            offsets = range(task.start, task.end)
            self.read.setdefault((task.topic_id, task.partition), []).extend(offsets)
        self.start = end

    @invariant()
    def nothing_is_read_twice_or_out_of_order(self) -> None:
        for offsets in self.read.values():
            assert offsets == sorted(set(offsets))

    def teardown(self) -> None:
        for _ in range(100):
            before = self.start
            self.run_batch(is_limited=True, crashes=False)
            if self.start == before:
                break
        topic_id = self.logs.latest()["t"].topic_id
        assert topic_id is not None
        for partition, log in enumerate(self.logs.topics["t"]):
            read = self.read.get((id_of_text(topic_id), partition), [])
            assert set(range(log.begin, log.end)) <= set(read)


TestQueryOnAChangingLog = QueryOnAChangingLog.TestCase
TestQueryOnAChangingLog.settings = settings(max_examples=60, stateful_step_count=30)
