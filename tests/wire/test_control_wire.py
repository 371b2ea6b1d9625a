"""What the controller and the brokers tell one another comes out as it went in, and bytes that
are none of it are refused (rules B1, B2; tests Z1 and Z2)."""

import tracemalloc
from collections.abc import Callable
from dataclasses import fields, replace
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.messages import CONTROL, MessageType, message, message_types
from support.mutants import mutated, receive, serve
from tidelog.base import control
from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.wire import codec, entity_reader
from tidelog.wire.entity_reader import VALUES_MAX, read_entity
from tidelog.wire.entity_writer import write_entity
from tidelog.wire.header import read_request_header
from tidelog.wire.values import encode_count

KINDS = list(message_types(CONTROL))
REQUESTS = [kind for kind in KINDS if kind.role == "request"]
RESPONSES = [kind for kind in KINDS if kind.role == "response"]
TOPIC_ID = bytes(range(16))

PARTITION = control.PartitionState(
    index=3,
    controller_epoch=7,
    leader=1,
    leader_epoch=9,
    partition_epoch=12,
    isr=(1, 2),
    isr_epochs=(4_294_967_300, 88),
    elr=(3,),
    elr_epochs=(77,),
    replicas=(1, 2, 3, 4),
    adding_replicas=(4,),
    removing_replicas=(),
)


def request_frame(kind: MessageType, entity: Any) -> bytes:
    return codec.write_request(kind.api_key, kind.version, 5, "broker-1", entity)[4:]


def response_frame(kind: MessageType, entity: Any) -> bytes:
    return codec.write_response(kind.api_key, kind.version, 5, entity)[4:]


def written(entity: Any) -> bytes:
    out = bytearray()
    write_entity(out, entity)
    return bytes(out)


def is_refused(work: Callable[..., Any], *arguments: Any) -> bool:
    """Anything but this one error is raised."""
    try:
        work(*arguments)
    except KafkaError as error:
        if error.code is not ErrorCode.invalid_request:
            raise
        return True
    return False


@settings(max_examples=200, deadline=None)
@given(kind=st.sampled_from(REQUESTS), seed=st.integers(0, 2**32))
def test_a_brokers_request_comes_out_as_it_went_in(kind: MessageType, seed: int) -> None:
    entity = message(Random(seed), kind.entity)
    view = memoryview(bytearray(request_frame(kind, entity)))
    header, at = read_request_header(view)
    assert (header.api_key, header.version) == (kind.api_key, kind.version)
    assert (header.correlation_id, header.client_id) == (5, "broker-1")
    read = codec.read_request(kind.api_key, kind.version, view, at)
    assert type(read) is control.REQUESTS[kind.api_key]
    assert read == entity


@settings(max_examples=200, deadline=None)
@given(kind=st.sampled_from(RESPONSES), seed=st.integers(0, 2**32))
def test_a_brokers_answer_comes_out_as_it_went_in(kind: MessageType, seed: int) -> None:
    entity = message(Random(seed), kind.entity)
    frame = response_frame(kind, entity)
    assert codec.read_response(kind.api_key, kind.version, frame) == (5, entity)
    assert type(entity) is control.RESPONSES[kind.api_key]


def test_every_message_has_an_example_in_which_every_field_matters() -> None:
    """No field is lost on the way: another value makes other bytes."""
    for kind in KINDS:
        entity = next(
            found
            for seed in range(1_000)
            if all(
                getattr(found := message(Random(seed), kind.entity), field.name) != ()
                for field in fields(kind.entity)
            )
        )
        before = written(entity)
        for field in fields(kind.entity):
            other = _other(getattr(entity, field.name))
            assert written(replace(entity, **{field.name: other})) != before, (kind, field.name)


def _other(value: Any) -> Any:
    match value:
        case bool():
            return not value
        case int():
            return value ^ 1
        case str():
            return value + "x"
        case _:
            return ()


def test_a_partition_is_written_as_it_is_drawn() -> None:
    """int32s index, controller epoch, leader, its epoch, partition epoch, then compact arrays."""
    assert written(PARTITION).hex(" ", 4) == bytes.fromhex(
        "00000003 00000007 00000001 00000009 0000000c"
        "03 00000001 00000002 03 0000000100000004 0000000000000058"
        "02 00000003 02 000000000000004d 05 00000001 00000002 00000003 00000004"
        "02 00000004 01 00"
    ).hex(" ", 4)


def test_a_topic_id_is_sixteen_bytes_whatever_they_are() -> None:
    """Kafka's own messages have None for zeros; here they are what the coordinator has."""
    for topic_id in (bytes(16), b"\xff" * 16, TOPIC_ID):
        topic = control.AskedTopic(topic_id=topic_id)
        assert written(topic) == topic_id + b"\x01\x00"
        assert read_entity(control.AskedTopic, written(topic), 0) == topic


@pytest.mark.parametrize("topic_id", [b"", bytes(15), bytes(17)])
def test_a_topic_id_of_another_size_is_not_written(topic_id: bytes) -> None:
    with pytest.raises(AssertionError, match="a topic id of"):
        written(control.AskedTopic(topic_id=topic_id))


@pytest.mark.parametrize("kind", REQUESTS, ids=lambda kind: kind.entity.__name__)
def test_another_version_of_a_brokers_message_is_refused(kind: MessageType) -> None:
    for version in (-1, kind.version - 1, kind.version + 1, 99):
        for role in ("request", "response"):
            with pytest.raises(KafkaError, match="has no version") as raised:
                codec.entity_type(kind.api_key, version, role)
            assert raised.value.code is ErrorCode.invalid_request


@pytest.mark.parametrize("seed", range(4))
def test_mutated_messages_of_brokers_are_read_or_refused(seed: int) -> None:
    random = Random(seed)
    frames = [
        request_frame(kind, message(random, kind.entity)) for kind in REQUESTS for _ in range(8)
    ]
    answers = [
        (kind, response_frame(kind, message(random, kind.entity)))
        for kind in RESPONSES
        for _ in range(8)
    ]
    refusals = 0
    for _ in range(5_000):
        damaged = mutated(random, random.choice(frames), random.choice(frames))
        refusals += is_refused(serve, damaged)
        kind, answer = random.choice(answers)
        damaged = mutated(random, answer, random.choice(answers)[1])
        refusals += is_refused(receive, kind.api_key, kind.version, damaged)
    assert 2_000 < refusals < 9_500


def test_no_prefix_of_a_brokers_message_is_valid() -> None:
    random = Random(1)
    for kind in REQUESTS:
        frame = request_frame(kind, message(random, kind.entity))
        assert serve(frame) is not None
        for cut in range(len(frame)):
            with pytest.raises(KafkaError):
                serve(frame[:cut])
        with pytest.raises(KafkaError, match="after its end"):
            serve(frame + b"\x00")


def test_a_full_update_of_forty_thousand_partitions_is_read() -> None:
    """More values than any client may send: a cluster has as many partitions as it has."""
    topic = control.TopicMetadata(
        name="orders", topic_id=TOPIC_ID, partitions=(PARTITION,) * 40_000
    )
    update = control.UpdateMetadataRequest(
        controller_id=1,
        controller_epoch=7,
        broker_epoch=88,
        is_full=True,
        topics=(topic,),
        deleted_topic_ids=(),
        unreadable=(),
    )
    assert VALUES_MAX < 40_000 * 13
    assert read_entity(control.UpdateMetadataRequest, written(update), 0) == update


def test_a_brokers_message_has_a_limit_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entity_reader, "CONTROL_VALUES_MAX", 10_000)
    body = b"\x00\x00" + encode_count(5_000, True) + (TOPIC_ID + b"\x01\x00") * 5_000 + b"\x00"
    tracemalloc.start()
    with pytest.raises(KafkaError, match="10000 values"):
        read_entity(control.StopReplicaResponse, body, 0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 200_000
