"""Produce requests that a client sends ahead, and that come in one piece."""

import errno
import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.brokers import (
    API_VERSIONS,
    PRODUCE,
    SimClient,
    SimNode,
    one_batch,
    without_max_timestamp,
)
from support.histories import records_of
from support.joining import forget_joined, serving, was_joined
from tidelog.records.reference import Record, encode_batch

PARTITIONS = 3
TOPICS = ("events", "others")
Batch = tuple[int, bytes | None]
"""A partition, and what is sent for it."""


@pytest.fixture
def node(how: str) -> SimNode:
    assert how
    return begun()


@pytest.fixture(params=["joined", "one by one"])
def how(request: pytest.FixtureRequest) -> Iterator[str]:
    with serving(request.param):
        yield request.param


def begun(**settings: Any) -> SimNode:
    """A broker with two topics in which every partition has a record, and knows producer 0."""
    node = SimNode(**settings)
    client = node.client()
    for topic in TOPICS:
        client.create(topic, partitions=PARTITIONS, max_message_bytes=1_000_000)
        for index in range(PARTITIONS):
            assert client.produce(topic, numbered(0, "first"), index=index).base_offset == 0
    return node


def request(client: SimClient, *batches: Batch, acks: int = -1, version: int = 9) -> bytes:
    return wide_request(client, {"events": list(batches)}, acks, version)


def wide_request(
    client: SimClient, data: dict[str, list[Batch]], acks: int = -1, version: int = 9
) -> bytes:
    """Of several topics."""
    return client.request(
        PRODUCE,
        version,
        transactional_id=None,
        acks=acks,
        timeout=1000,
        topic_data=[
            {
                "name": topic,
                "partition_data": [{"index": index, "records": batch} for index, batch in batches],
            }
            for topic, batches in data.items()
        ],
    )


def rows(answer: Any) -> list[tuple[str, int, int]]:
    return [
        (row.error_code.name, row.base_offset, row.log_start_offset)
        for topic in answer.responses
        for row in topic.partition_responses
    ]


def offsets(client: SimClient, count: int) -> list[list[int]]:
    return [[row[1] for row in rows(answer)] for answer in client.answers[-count:]]


def log_of(node: SimNode, index: int = 0, topic: str = "events") -> Any:
    return node.broker.partitions.find(topic, index).log


def values(node: SimNode, index: int, topic: str = "events") -> list[str]:
    client = node.client()
    client.send_fetch([(topic, index, 0)])
    return [value for _, value in records_of(client.wait().responses[0].partitions[0].records)]


@pytest.mark.parametrize("acks", [1, -1])
def test_each_request_is_answered_in_its_turn_with_offsets_of_its_own(
    node: SimNode, acks: int
) -> None:
    """A1, R5."""
    client = node.client()
    sent = [
        request(
            client, *((index, one_batch(f"{number}")) for index in range(PARTITIONS)), acks=acks
        )
        for number in range(5)
    ]
    client.send_bytes(b"".join(sent))
    client.wait()
    assert offsets(client, 5) == [[number] * PARTITIONS for number in range(1, 6)]
    for index in range(PARTITIONS):
        assert values(node, index) == ["first", *"01234"]


def test_what_they_have_for_a_partition_is_written_at_once() -> None:
    """At least in one of some histories all of them come in one piece."""
    writes = []
    for seed in range(8):
        with serving("joined"):
            node = begun(seed=seed)
            client = node.client()
            trace = node.disk.trace()
            sent = [
                request(client, (0, one_batch(str(n))), (1, one_batch(str(n)))) for n in range(5)
            ]
            client.send_bytes(b"".join(sent))
            client.wait()
        writes.append(sum(operation == "pwrite" for operation, path in trace if "events" in path))
    assert min(writes) == 2, "one for each partition"
    assert max(writes) <= 10


def test_of_what_is_refused_nothing_else_suffers(node: SimNode) -> None:
    client = node.client()
    bad = one_batch("x")[:-1] + b"?"
    sent = [
        request(client, (0, one_batch("a")), (1, one_batch("b"))),
        request(client, (0, bad), (1, one_batch("c")), (7, one_batch("d"))),
        request(client, (0, one_batch("e")), (1, None)),
    ]
    client.send_bytes(b"".join(sent))
    client.wait()
    assert [[row[0] for row in rows(answer)] for answer in client.answers[-3:]] == [
        ["none", "none"],
        ["corrupt_message", "none", "unknown_topic_or_partition"],
        ["none", "corrupt_message"],
    ]
    assert values(node, 0) == ["first", "a", "e"]
    assert values(node, 1) == ["first", "b", "c"]


def test_a_bad_batch_among_good_ones_is_refused_alone(node: SimNode) -> None:
    client = node.client()
    bad = one_batch("x")[:-1] + b"?"
    batches = [one_batch("a"), bad, one_batch("b"), one_batch("c")]
    client.send_bytes(
        b"".join(request(client, (0, batch), (1, one_batch("z"))) for batch in batches)
    )
    client.wait()
    assert offsets(client, 4) == [[1, 1], [-1, 2], [2, 3], [3, 4]]
    assert values(node, 0) == ["first", "a", "b", "c"]


def test_a_batch_that_is_looked_into_keeps_its_place_among_the_others(node: SimNode) -> None:
    client = node.client()
    batches = [one_batch("a"), without_max_timestamp(one_batch("b")), one_batch("c")]
    client.send_bytes(
        b"".join(request(client, (0, batch), (1, one_batch("z"))) for batch in batches)
    )
    client.wait()
    assert offsets(client, 3) == [[1, 1], [2, 2], [3, 3]]
    assert values(node, 0) == ["first", "a", "b", "c"]


def test_another_request_between_them_keeps_its_place(node: SimNode) -> None:
    client = node.client()
    sent = [
        request(client, (0, one_batch("a")), (1, one_batch("a"))),
        request(client, (0, one_batch("b")), (1, one_batch("b")), version=7),
        client.request(API_VERSIONS, 4, client_software_name="test", client_software_version="1"),
        request(client, (0, one_batch("c")), (1, one_batch("c"))),
        request(client, (0, one_batch("d")), acks=0),
        request(client, (0, one_batch("e"))),
    ]
    client.send_bytes(b"".join(sent))
    client.wait()
    assert values(node, 0) == ["first", *"abcde"]


def test_those_before_garbage_are_answered(node: SimNode) -> None:
    client = node.client()
    sent = [
        request(client, (0, one_batch(str(number))), (1, one_batch("z"))) for number in range(3)
    ]
    torn = request(client, (0, one_batch("torn")))
    short = torn[:-1]
    client.send_bytes(b"".join(sent) + (len(short) - 4).to_bytes(4, "big") + short[4:] + sent[0])
    node.loop.run_for(1000)
    assert len(client.answers) == 3
    assert client.closed_why is not None
    assert values(node, 0) == ["first", "0", "1", "2"]


def test_a_refused_batch_with_acks_0_ends_the_connection_behind_it(node: SimNode) -> None:
    client = node.client()
    bad = one_batch("x")[:-1] + b"?"
    sent = [
        request(client, (0, one_batch("a")), (1, one_batch("a")), acks=1),
        request(client, (0, bad), acks=0),
        request(client, (0, one_batch("b")), acks=1),
    ]
    client.send_bytes(b"".join(sent))
    node.loop.run_for(1000)
    assert client.closed_why is not None
    assert len(client.answers) == 1


@pytest.mark.parametrize("part", [0.0, 0.5, 1.0])
@pytest.mark.usefixtures("how")
def test_a_disk_that_fails_acknowledges_none_of_them(part: float) -> None:
    """F18: what was in the write that failed is refused, and what comes behind it too."""
    node = begun()
    client = node.client()
    node.disk.fail(errno.EIO, operations=["pwrite"], path="*/events-1/*.log", part=part)
    sent = [
        request(client, *((index, one_batch(f"{number}")) for index in range(PARTITIONS)))
        for number in range(4)
    ]
    client.send_bytes(b"".join(sent))
    client.wait()
    acknowledged: dict[tuple[int, int], str] = {}
    for number, answer in enumerate(client.answers[-4:]):
        for index, (code, offset, _) in enumerate(rows(answer)):
            assert code in ("none", "kafka_storage_error"), code
            if code == "none":
                acknowledged[index, offset] = str(number)
    assert {index for index, _ in acknowledged} == {0}, "the first was written before"
    node.kill()
    node.start()
    for (index, offset), value in acknowledged.items():
        assert values(node, index)[offset] == value


def numbered(sequence: int, value: str, producer_id: int = 0) -> bytes:
    record = Record(offset=0, timestamp=1_700_000_000_000, key=b"k", value=value.encode())
    return bytes(
        encode_batch([record], producer_id=producer_id, producer_epoch=0, base_sequence=sequence)
    )


ORDINARY = ("plain", "next")
UNUSUAL = ("repeated", "ahead", "bad", "large", "none")


@st.composite
def plans(draw: st.DrawFn) -> "Plan":
    """Every other one of nothing but what is joined."""
    kinds = st.sampled_from(ORDINARY + (UNUSUAL if draw(st.booleans()) else ()))
    index = st.integers(0, PARTITIONS - 1)
    of_topic = st.lists(st.tuples(index, kinds), min_size=2, max_size=PARTITIONS)
    of_request = st.tuples(
        st.sampled_from([1, -1]), st.dictionaries(st.sampled_from(TOPICS), of_topic, min_size=1)
    )
    return draw(st.lists(of_request, min_size=1, max_size=8))


Plan = list[tuple[int, dict[str, list[tuple[int, str]]]]]


def batches_of(plan: Plan) -> list[tuple[int, dict[str, list[Batch]]]]:
    """What a client sends that counts sequences up whatever becomes of them."""
    sequences = dict.fromkeys(itertools.product(TOPICS, range(PARTITIONS)), 1)
    found: list[tuple[int, dict[str, list[Batch]]]] = []
    for number, (acks, wanted) in enumerate(plan):
        data: dict[str, list[Batch]] = {}
        for topic, of_topic in wanted.items():
            batches = data.setdefault(topic, [])
            for index, kind in of_topic:
                value = f"{number}-{kind}"
                step = {"next": 0, "repeated": -1, "ahead": 2}.get(kind)
                if step is not None:
                    sequence = max(0, sequences[topic, index] + step)
                    batches.append((index, numbered(sequence, value)))
                    sequences[topic, index] += kind == "next"
                elif kind == "none":
                    batches.append((index, None))
                else:
                    batch = one_batch(value * (40_000 if kind == "large" else 1))
                    batches.append((index, batch[:-1] + b"?" if kind == "bad" else batch))
        found.append((acks, data))
    return found


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(plans(), st.integers(0, 99), st.booleans())
def test_requests_sent_ahead_come_to_the_same_as_one_at_a_time(
    plan: Plan, seed: int, one_piece: bool
) -> None:
    """A1, A3, B5, R5."""
    wanted = batches_of(plan)
    with serving("joined"):
        ahead = begun(seed=seed)
        client = ahead.client()
        sent = [wide_request(client, data, acks) for acks, data in wanted]
        forget_joined()
        for piece in [b"".join(sent)] if one_piece else sent:
            client.send_bytes(piece)
        client.wait()
        kinds = {kind for _, data in plan for rows in data.values() for _, kind in rows}
        assert was_joined() or not kinds <= set(ORDINARY)
    with serving("one by one"):
        patient = begun(seed=seed)
        other = patient.client()
        for acks, data in wanted:
            other.send_bytes(wide_request(other, data, acks))
            other.wait()
    assert list(map(rows, client.answers)) == list(map(rows, other.answers))
    for topic in TOPICS:
        for index in range(PARTITIONS):
            mine, theirs = log_of(ahead, index, topic), log_of(patient, index, topic)
            assert mine.log_end_offset == theirs.log_end_offset
            assert mine.producers.by_id.keys() == theirs.producers.by_id.keys()
            assert values(ahead, index, topic) == values(patient, index, topic)


def test_one_request_alone_is_joined_too() -> None:
    """The answer is packed by kernels, whoever the partitions belong to."""
    with serving("joined"):
        node = begun()
        client = node.client()
        data: dict[str, list[Batch]] = {
            "others": [(2, one_batch("a")), (0, one_batch("b", "c")), (2, one_batch("d"))],
            "events": [(2, one_batch("e"))],
        }
        trace = node.disk.trace()
        client.send_bytes(wide_request(client, data, acks=1, version=12))
        answer = client.wait()
        assert sum(operation == "pwrite" for operation, path in trace if ".log" in path) == 3
    assert [topic.name for topic in answer.responses] == ["others", "events"]
    assert [row.index for topic in answer.responses for row in topic.partition_responses] == [
        2,
        0,
        2,
        2,
    ]
    assert rows(answer) == [("none", 1, 0), ("none", 1, 0), ("none", 2, 0), ("none", 1, 0)]
    assert values(node, 2, "others") == ["first", "a", "d"]
    assert values(node, 2, "events") == ["first", "e"]


def partition_of(node: SimNode, index: int) -> Any:
    return node.broker.partitions.find("events", index)


@pytest.mark.usefixtures("how")
class TestWhateverHowItIsServed:
    """What holds for each batch by itself holds for those of a request of two partitions."""

    def test_a_compacted_topic_wants_keys(self) -> None:
        client = begun().client()
        client.create("compacted", partitions=2, cleanup_policy="compact")
        for index in (0, 1):
            assert client.produce("compacted", one_batch("v"), index=index).base_offset == 0
        keyless = [(index, one_batch("v", key=None)) for index in (0, 1)]
        client.send_bytes(wide_request(client, {"compacted": list(keyless)}, 1))
        assert [row[0] for row in rows(client.wait())] == ["invalid_record"] * 2

    def test_too_few_in_sync(self) -> None:
        """A2."""
        node = begun()
        partition_of(node, 1).replica.min_isr = 2
        client = node.client()
        client.send_bytes(request(client, (0, one_batch("a")), (1, one_batch("b"))))
        assert [row[0] for row in rows(client.wait())] == ["none", "not_enough_replicas"]

    @pytest.mark.parametrize("count", [1, 3])
    def test_acks_that_are_none(self, count: int) -> None:
        node = begun()
        client = node.client()
        sent = [
            request(client, (0, one_batch("a")), (1, one_batch("b")), acks=5) for _ in range(count)
        ]
        client.send_bytes(b"".join(sent))
        client.wait()
        assert [row[0] for answer in client.answers[-count:] for row in rows(answer)] == [
            "invalid_required_acks"
        ] * (2 * count)
        assert log_of(node, 0).log_end_offset == 1

    def test_log_starts_and_bytes_in(self) -> None:
        node = begun()
        partition_of(node, 0).delete_records(1)
        client = node.client()
        client.send_bytes(request(client, (0, one_batch("a")), (1, one_batch("b")), acks=1))
        assert rows(client.wait()) == [("none", 1, 1), ("none", 1, 0)]
        for index in (0, 1):
            partition = partition_of(node, index)
            assert partition.bytes_in == partition.log.segments.active.size

    def test_who_wants_it_committed_waits_for_that(self) -> None:
        """R5."""
        node = begun()
        partition_of(node, 0).delete_records(1)
        for index in (0, 1):
            partition_of(node, index).replica.elr = (2,)
        client = node.client()
        client.send_bytes(request(client, (0, one_batch("a")), (1, one_batch("b"))))
        node.loop.run_for(100)
        assert not client.answers
        for index in (0, 1):
            partition = partition_of(node, index)
            partition.replica.elr = ()
            assert partition.replica.advance()
            partition._committed()
        assert rows(client.wait()) == [("none", 1, 1), ("none", 1, 0)]

    def test_a_transaction_keeps_what_is_outside_of_it_out(self) -> None:
        node = begun()
        log_of(node, 0).producers.by_id[0].txn_first_offset = 1
        client = node.client()
        client.send_bytes(request(client, (0, numbered(1, "y")), (1, numbered(1, "y"))))
        assert [row[0] for row in rows(client.wait())] == ["invalid_txn_state", "none"]

    def test_sequences_begin_again_at_their_end(self) -> None:
        """A3."""
        node = begun()
        last = (1 << 31) - 1
        for index in (0, 1):
            log_of(node, index).producers.by_id[0].next_sequence = last
        client = node.client()
        batches = [(index, numbered(at, "y")) for at in (last, 0) for index in (0, 1)]
        client.send_bytes(request(client, *batches))
        assert [row[1] for row in rows(client.wait())] == [1, 1, 2, 2]
        assert log_of(node, 0).producers.by_id[0].next_sequence == 1

    def test_of_two_dirs_the_sound_one_goes_on(self) -> None:
        node = begun(log_dirs="/data,/more")
        logs = [log_of(node, index) for index in range(PARTITIONS)]
        failing = logs[0].home.path
        assert {log.home.path for log in logs} == {"/data", "/more"}
        node.disk.fail(errno.EIO, operations=["pwrite"], path=f"{failing}/events-0/*.log")
        client = node.client()
        client.send_bytes(request(client, *((n, one_batch(str(n))) for n in range(PARTITIONS))))
        for log, row in zip(logs, rows(client.wait()), strict=True):
            is_failed = log.home.path == failing
            assert row[0] == ("kafka_storage_error" if is_failed else "none")
            assert log.log_end_offset == 1 + (not is_failed)
