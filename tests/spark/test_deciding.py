"""Exactly once into topics: a driver that dies between any two steps, tasks that are late, drivers
that do not know of one another (P4, trap 7). Without Spark: what it would do is done here, with
transactions of tasks on a real broker, read by confluent-kafka.
"""

import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import TopicPartition

from clients.confluent import consumer
from support import scripted_brokers
from support.scripted_brokers import scripted
from support.servers import Server
from tidelog.base.errors import BadValue, ErrorCode, KafkaError
from tidelog.client.addresses import Address
from tidelog.client.client import Client
from tidelog.client.errors import Unreachable
from tidelog.client.offsets import Committed, committed_by_groups
from tidelog.client.transacting import FENCED, begin, commit_offsets
from tidelog.client.transactions import TransactionFilter, list_transactions
from tidelog.spark import deciding, task_writing
from tidelog.spark.deciding import Deciding, check_run, last_decision, transaction_ms_max
from tidelog.spark.decisions import (
    NOTE_CHARACTERS_MAX,
    Decision,
    Task,
    decision_in,
    group_of,
    prefix_of,
    run_in_batch,
)
from tidelog.spark.series import Numbers, numbers_in
from tidelog.spark.sink_options import SinkOptions
from tidelog.spark.task_writing import Place, prepare_rows

ROWS = [b"row-%d" % number for number in range(30)]
DESCRIBE_CONFIGS = 32
STEPS = 12
STEPS_IN_SERIES = 15
"""One more than the calls of brokers that a commit makes here."""
CARRYING_OUT = 8
"""The first call after the decision that does something."""


CALLS = (
    *("begin", "committed_by_groups", "describe_transactions", "commit_offsets", "end"),
    "list_transactions",
)


class Killed(BaseException):
    """The driver is gone."""


class Query:
    """One checkpoint, and the topic it writes to."""

    def __init__(self, server: Server, topic: str) -> None:
        self.topic = topic
        self.name = uuid.uuid4().hex
        self.client = Client(server.address)
        self.given = {
            "kafka.bootstrap.servers": server.address,
            "topic": topic,
            "delivery": "exactly-once",
        }
        self.options = SinkOptions.parse(self.given, is_stream=True)

    def prepare(self, run: str, batch: int, number: int, rows: list[bytes]) -> Task | None:
        """What a task does."""
        place = Place(self.name, run, batch, number, 0)
        columns = [pa.RecordBatch.from_pydict({"value": pa.array(rows, pa.binary())})]
        _, transaction = prepare_rows(self.options, columns, place)
        return None if transaction is None else Task(number, 0, *transaction.producer)

    def run(
        self, batch: int, tasks: int, rows: list[bytes] = ROWS, run: str | None = None
    ) -> Decision:
        """All tasks of a batch, in a run of their own: what a driver is then to commit."""
        run = run or uuid.uuid4().hex[:8]
        parts = [rows[number::tasks] for number in range(tasks)]
        prepared = [self.prepare(run, batch, number, part) for number, part in enumerate(parts)]
        found = tuple(task for task in prepared if task is not None)
        return Decision(batch=batch, run=run, tasks=found)

    def deciding(self) -> Deciding:
        return Deciding(self.client, self.name, 10_000)

    def seen(self, server: Server) -> Counter[bytes]:
        """What readers of committed records see, up to where the log ends now."""
        found: Counter[bytes] = Counter()
        with consumer(server.address, **{"isolation.level": "read_uncommitted"}) as reader:
            places = [TopicPartition(self.topic, index) for index in range(2)]
            ends = {
                place.partition: reader.get_watermark_offsets(place, timeout=30)[1]
                for place in places
            }
        options = {"isolation.level": "read_committed", "enable.partition.eof": "true"}
        with consumer(server.address, **options) as reader:
            reader.assign([TopicPartition(self.topic, index, 0) for index in ends])
            left = set(ends)
            while left:
                message = reader.poll(30)
                assert message is not None, "readers do not wait for what nobody ends"
                if message.error() is None:
                    found[message.value()] += 1
                elif message.offset() >= ends[message.partition()]:
                    left.discard(message.partition())
        return found

    def open_now(self) -> list[str]:
        listed = list_transactions(self.client, TransactionFilter(states=("Ongoing",)))
        names = [one.transactional_id for one in listed]
        return [
            name for name in names if name.startswith((prefix_of(self.name), group_of(self.name)))
        ]


@pytest.fixture
def query(log_server: Server, new_topic: Any) -> Iterator[Query]:
    made = Query(log_server, new_topic(2))
    yield made
    made.client.close()


def dying_at(step: int, monkeypatch: pytest.MonkeyPatch, *, is_done: bool) -> None:
    """Lets the driver die at its so-many-th call of a broker, before or after it was made."""
    calls = 0

    def deadly(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == step and not is_done:
                raise Killed
            result = function(*arguments, **named)
            if calls == step:
                raise Killed
            return result

        return call

    for name in CALLS:
        monkeypatch.setattr(deciding, name, deadly(getattr(deciding, name)))


@pytest.mark.parametrize("is_done", [False, True])
@pytest.mark.parametrize(
    ("step", "in_series"),
    [
        *((step, False) for step in range(1, STEPS)),
        *((step, True) for step in range(1, STEPS_IN_SERIES)),
    ],
)
def test_a_driver_that_dies_at_any_step_loses_and_repeats_nothing(
    step: int,
    in_series: bool,
    is_done: bool,
    query: Query,
    log_server: Server,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    query.deciding().commit(query.run(0, 2, [b"before"]), in_series=in_series)
    prepared = query.run(1, 2)
    with monkeypatch.context() as patch:
        dying_at(step, patch, is_done=is_done)
        with pytest.raises(Killed):
            query.deciding().commit(prepared, in_series=in_series)
    query.deciding().commit(query.run(1, 3), in_series=in_series)
    query.deciding().commit(query.run(2, 1, [b"after"]), in_series=in_series)
    assert query.seen(log_server) == Counter([b"before", *ROWS, b"after"])
    assert query.open_now() == []


def test_a_batch_that_fails_leaves_nothing_and_is_written_when_it_is_run_again(
    query: Query, log_server: Server
) -> None:
    prepared = query.run(0, 3)
    query.prepare(prepared.run, 0, 7, [b"of a task that did not come to its end"])
    query.deciding().abort(prepared)
    assert query.open_now() == []
    assert query.seen(log_server) == Counter()
    query.deciding().commit(query.run(0, 2))
    assert query.seen(log_server) == Counter(ROWS)


def test_a_commit_that_fails_after_the_decision_is_not_taken_back_by_abort(
    query: Query, log_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared = query.run(0, 2)
    with monkeypatch.context() as patch:
        dying_at(CARRYING_OUT, patch, is_done=False)
        with pytest.raises(Killed):
            query.deciding().commit(prepared)
    assert last_decision(query.client, query.name) == prepared
    query.deciding().abort(prepared)
    query.deciding().commit(query.run(0, 1))
    assert query.seen(log_server) == Counter(ROWS)


@pytest.mark.parametrize("is_abandoned", [False, True])
def test_what_a_driver_decided_and_did_not_carry_out_is_carried_out_by_a_later_batch(
    query: Query, log_server: Server, monkeypatch: pytest.MonkeyPatch, is_abandoned: bool
) -> None:
    """In a series of batch writes nobody need try the same one again."""
    prepared = query.run(0, 3)
    with monkeypatch.context() as patch:
        dying_at(CARRYING_OUT + 1, patch, is_done=False)
        with pytest.raises(Killed):
            query.deciding().commit(prepared)
    later = query.run(1, 1, [b"next"])
    if is_abandoned:
        query.deciding().abort(later)
    else:
        query.deciding().commit(later)
    assert query.seen(log_server) == Counter(ROWS if is_abandoned else [*ROWS, b"next"])
    assert query.open_now() == []


def test_what_a_commit_decided_and_did_not_carry_out_is_carried_out_by_abort(
    query: Query, log_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write that is in no series is not tried again under its name."""
    prepared = query.run(0, 3)
    with monkeypatch.context() as patch:
        dying_at(CARRYING_OUT + 1, patch, is_done=False)
        with pytest.raises(Killed):
            query.deciding().commit(prepared)
    query.deciding().abort(prepared)
    assert query.seen(log_server) == Counter(ROWS)
    assert query.open_now() == []


def test_a_batch_that_fails_leaves_nothing_under_the_names_of_the_batch_before(
    query: Query, log_server: Server
) -> None:
    query.deciding().commit(query.run(0, 2, run="run"))
    query.prepare("run", 1, 0, [b"of a task that did not come to its end"])
    query.deciding().abort(Decision(batch=1, run="run", tasks=()))
    assert query.open_now() == []
    assert query.seen(log_server) == Counter(ROWS)


def test_a_task_that_begins_when_its_run_was_given_up_writes_nothing(
    query: Query, log_server: Server
) -> None:
    query.deciding().abort(Decision(batch=0, run="run", tasks=()))
    with pytest.raises(KafkaError, match="run run was given up"):
        query.prepare("run", 0, 0, ROWS)
    assert query.open_now() == []
    query.deciding().commit(query.run(0, 2))
    assert query.seen(log_server) == Counter(ROWS)


def test_a_task_that_has_begun_when_its_run_is_given_up_writes_nothing(
    query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has nothing open yet when the driver looks for what is."""

    def given_up_after(*arguments: Any) -> None:
        check_run(*arguments)
        query.deciding().abort(Decision(batch=0, run="run", tasks=()))

    monkeypatch.setattr(task_writing, "check_run", given_up_after)
    with pytest.raises(KafkaError) as raised:
        query.prepare("run", 0, 0, ROWS)
    assert raised.value.code in FENCED
    assert query.open_now() == []


def test_a_task_that_fails_leaves_nothing_open(query: Query, log_server: Server) -> None:
    def rows() -> Iterator[Any]:
        yield pa.RecordBatch.from_pydict({"value": pa.array(ROWS, pa.binary())})
        assert query.open_now() != []
        raise ZeroDivisionError

    options = SinkOptions.parse({**query.given, "kafka.linger.ms": "0"}, is_stream=True)
    with pytest.raises(ZeroDivisionError):
        prepare_rows(options, rows(), Place(query.name, "run", 0, 0, 0))
    assert query.open_now() == []
    assert query.seen(log_server) == Counter()


@pytest.mark.parametrize("who", ["the first", "the last"])
def test_a_batch_of_which_something_was_given_up_meanwhile_is_not_decided(
    query: Query, log_server: Server, who: str
) -> None:
    """A transaction lasts as long as brokers allow, and a batch may take longer."""
    query.deciding().commit(query.run(0, 2, [b"before"]))
    prepared = query.run(1, 2)
    one = prepared.transactions(query.name)[0 if who == "the first" else -1]
    begin(query.client, one.transactional_id, 60_000)
    with pytest.raises(KafkaError, match="it took longer than transaction"):
        query.deciding().commit(prepared)
    query.deciding().abort(prepared)
    query.deciding().commit(query.run(1, 3))
    assert query.seen(log_server) == Counter([b"before", *ROWS])
    assert query.open_now() == []


def test_a_copy_of_a_task_that_is_done_after_the_decision_gives_up(
    query: Query, log_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has nothing open yet when the driver looks for what is."""
    prepared = query.run(0, 2)

    def decided_after(*arguments: Any) -> None:
        check_run(*arguments)
        query.deciding().commit(prepared)

    monkeypatch.setattr(task_writing, "check_run", decided_after)
    late = query.prepare(prepared.run, 0, 7, ROWS)
    assert late is not None, "it has written its rows"
    assert query.open_now() == []
    assert query.seen(log_server) == Counter(ROWS)


def test_a_copy_of_a_task_that_begins_after_the_decision_does_not_undo_it(
    query: Query, log_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark counts the attempts of a stage that it runs again from 0 again, so that a copy may have
    the name of the task whose rows count."""
    prepared = query.run(0, 2)
    with monkeypatch.context() as patch:
        dying_at(CARRYING_OUT, patch, is_done=False)
        with pytest.raises(Killed):
            query.deciding().commit(prepared)
    assert query.prepare(prepared.run, 0, 0, ROWS) is None
    query.deciding().commit(prepared)
    assert query.seen(log_server) == Counter(ROWS)


def test_a_late_copy_of_a_task_leaves_the_next_batch_alone(
    query: Query, log_server: Server
) -> None:
    """Tasks of one run have the same names in all its batches."""
    query.deciding().commit(query.run(0, 2, [b"before"], run="run"))
    prepared = query.run(1, 2, run="run")
    assert query.prepare("run", 0, 0, ROWS) is None
    query.deciding().commit(prepared)
    assert query.seen(log_server) == Counter([b"before", *ROWS])
    assert query.open_now() == []


def test_a_copy_that_begins_while_the_next_batch_is_written_leaves_it_alone(
    query: Query, log_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it asked first was answered before the decision, and then it was cut off for a while."""
    first, second = run_in_batch("run", 0), run_in_batch("run", 1)
    prepared = query.run(0, 2, run=first)
    later: list[Task | None] = []

    def begun_later(*arguments: Any) -> Any:
        monkeypatch.undo()
        query.deciding().commit(prepared)
        later.append(query.prepare(second, 1, 7, [b"next"]))
        return begin(*arguments)

    monkeypatch.setattr(task_writing, "begin", begun_later)
    query.prepare(first, 0, 7, ROWS)
    [task] = later
    assert task is not None
    query.deciding().commit(Decision(batch=1, run=second, tasks=(task,)))
    assert query.seen(log_server) == Counter([*ROWS, b"next"])
    assert query.open_now() == []


def test_what_a_copy_asks_that_takes_long_it_asks_before_whether_it_is_late(
    query: Query, log_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared = query.run(0, 2)

    def told_later(client: Client) -> int:
        query.deciding().commit(prepared)
        return transaction_ms_max(client)

    monkeypatch.setattr(task_writing, "transaction_ms_max", told_later)
    assert query.prepare(prepared.run, 0, 0, ROWS) is None
    assert query.seen(log_server) == Counter(ROWS)


def test_a_task_whose_coordinator_is_slow_finds_meanwhile_that_it_is_late(
    query: Query, log_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared = query.run(0, 2)

    def unanswered(_client: Client, name: str, _timeout_ms: int) -> Any:
        query.deciding().commit(prepared)
        raise Unreachable(Address("broker", 9092), f"no answer about {name}")

    monkeypatch.setattr(task_writing, "begin", unanswered)
    assert query.prepare(prepared.run, 0, 0, ROWS) is None
    assert query.seen(log_server) == Counter(ROWS)


def test_a_copy_that_is_not_done_when_the_decision_is_made_is_swept_away(
    query: Query, log_server: Server
) -> None:
    prepared = query.run(0, 2)
    loser = query.prepare(prepared.run, 0, 7, ROWS)
    assert loser is not None
    query.deciding().commit(prepared)
    assert query.open_now() == []
    assert query.seen(log_server) == Counter(ROWS)


def test_of_two_drivers_on_one_checkpoint_one_decides(query: Query, log_server: Server) -> None:
    one, other = query.run(0, 2), query.run(0, 3)
    query.deciding().commit(one)
    assert query.deciding().commit(other) == one
    query.deciding().commit(query.run(1, 1, [b"next"]))
    with pytest.raises(KafkaError, match="another driver runs on this checkpoint"):
        query.deciding().commit(query.run(0, 1))
    assert query.seen(log_server) == Counter([*ROWS, b"next"])


def test_a_write_of_a_series_that_was_overtaken_says_so(query: Query, log_server: Server) -> None:
    """Its rows were given up with the decision about the other one."""
    overtaken, other = query.run(5, 2), query.run(6, 1, [b"other"])
    query.deciding().commit(other, in_series=True)
    with pytest.raises(KafkaError, match="number 5 is not written and cannot be, since number 6"):
        query.deciding().commit(overtaken, in_series=True)
    query.deciding().abort(overtaken)
    assert query.seen(log_server) == Counter([b"other"])
    assert query.open_now() == []


def test_a_number_of_a_series_that_was_never_written_is_not_taken_for_a_repeated_one(
    query: Query, log_server: Server
) -> None:
    for number in (5, 6, 8):
        query.deciding().commit(query.run(number, 1, [b"%d" % number]), in_series=True)
    for number in (8, 5, 6):
        query.deciding().commit(query.run(number, 1), in_series=True)
    for number in (7, 4):
        with pytest.raises(KafkaError, match=f"number {number} is not written"):
            query.deciding().commit(query.run(number, 1), in_series=True)
    assert query.seen(log_server) == Counter([b"5", b"6", b"8"])


def test_a_number_below_what_was_written_before_numbers_were_noted_counts_as_written(
    query: Query, log_server: Server
) -> None:
    query.deciding().commit(query.run(5, 1, [b"5"]))
    query.deciding().commit(query.run(3, 1), in_series=True)
    query.deciding().commit(query.run(8, 1, [b"8"]), in_series=True)
    query.deciding().commit(query.run(3, 1), in_series=True)
    with pytest.raises(KafkaError, match="number 7 is not written"):
        query.deciding().commit(query.run(7, 1), in_series=True)
    assert query.seen(log_server) == Counter([b"5", b"8"])


def test_of_very_many_numbers_of_a_series_the_oldest_count_as_written() -> None:
    numbers = Numbers()
    for number in range(0, 4_000, 2):
        numbers = numbers.with_range(number, number)
    [(_, note)] = numbers.offsets().values()
    assert len(note) <= NOTE_CHARACTERS_MAX
    found = numbers_in([note])
    assert all(number in found for number in range(0, 4_000, 2))
    assert [number for number in range(3_500, 4_001) if number not in found] == [
        *range(3_501, 4_000, 2),
        4_000,
    ]


def test_a_driver_that_was_overtaken_while_it_decided_does_not_decide(
    query: Query, log_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = query.run(0, 2)
    with monkeypatch.context() as patch:
        decide = commit_offsets

        def overtaken(*arguments: Any) -> None:
            patch.undo()
            query.deciding().commit(query.run(0, 3))
            decide(*arguments)

        patch.setattr(deciding, "commit_offsets", overtaken)
        with pytest.raises(KafkaError, match=r"was not extended|were not committed"):
            query.deciding().commit(slow)
    query.deciding().abort(slow)
    assert query.seen(log_server) == Counter(ROWS)


def test_a_coordinator_that_was_replaced_without_knowing_it_decides_nothing_twice(
    query: Query, log_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """V14: it is cut off from the others, and tells the next driver of a decision before the last,
    until it hears that another one takes commits."""
    query.deciding().commit(query.run(0, 1, [b"before"]))
    former = committed_by_groups(query.client, [group_of(query.name)])
    query.deciding().commit(query.run(1, 2))
    is_cut_off = True

    def told(*arguments: Any, **named: Any) -> Any:
        is_asked = arguments[1] == [group_of(query.name)]
        return former if is_cut_off and is_asked else committed_by_groups(*arguments, **named)

    def taken(*arguments: Any) -> None:
        nonlocal is_cut_off
        is_cut_off = False
        commit_offsets(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(deciding, "committed_by_groups", told)
        patch.setattr(deciding, "commit_offsets", taken)
        again = query.run(1, 3)
        with pytest.raises(KafkaError, match="a decision was made"):
            query.deciding().commit(again)
    query.deciding().abort(again)
    query.deciding().commit(query.run(1, 1))
    query.deciding().commit(query.run(2, 1, [b"after"]))
    assert query.seen(log_server) == Counter([b"before", *ROWS, b"after"])
    assert query.open_now() == []


def test_what_was_decided_and_then_given_up_is_said_loudly(
    query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared = query.run(0, 2)
    with monkeypatch.context() as patch:
        dying_at(CARRYING_OUT, patch, is_done=False)
        with pytest.raises(Killed):
            query.deciding().commit(prepared)
    first = prepared.transactions(query.name)[0]
    begin(query.client, first.transactional_id, 60_000)
    with pytest.raises(KafkaError, match=f"decided to commit what {first.transactional_id} wrote"):
        query.deciding().commit(query.run(0, 1))


def test_how_long_transactions_may_last_another_broker_says_where_one_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It need not lead or coordinate anything, and stays in the cluster until its session ends."""
    monkeypatch.setitem(scripted_brokers._SERVED_MAX, DESCRIBE_CONFIGS, 4)
    is_over = threading.Event()

    def told(number: int, key: int, _body: Any) -> Any:
        assert key == DESCRIBE_CONFIGS
        if number == 1:
            is_over.wait()
        config = {"name": "transaction.max.timeout.ms", "value": f"{number}000", "read_only": False}
        config |= {"config_source": 5, "is_sensitive": False, "synonyms": []}
        row = {"error_code": ErrorCode.none, "error_message": None, "configs": [config]}
        return {"results": [row | {"resource_type": 4, "resource_name": str(number)}]}

    with scripted(told) as brokers, Client(brokers.addresses[2], timeout_ms=10_000) as client:
        try:
            assert transaction_ms_max(client) == 2_000
        finally:
            is_over.set()


def test_a_decision_of_very_many_tasks_is_spread_over_several_notes() -> None:
    tasks = tuple(Task(number, 0, 4_000_000 + number, 3) for number in range(1_000))
    decision = Decision(batch=12, run="0123456789abcdef", tasks=tasks)
    offsets = decision.offsets()
    assert len(offsets) == 5
    assert all(len(note) < 4_096 for _, note in offsets.values())
    committed = {
        place: Committed(offset=offset, leader_epoch=-1, metadata=note)
        for place, (offset, note) in offsets.items()
    }
    assert decision_in(committed) == decision
    committed.pop(min(committed))
    with pytest.raises(BadValue, match="batch 12 cannot be read"):
        decision_in(committed)
