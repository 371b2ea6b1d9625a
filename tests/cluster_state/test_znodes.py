"""The JSON of every node is what Kafka 3.9 writes, and no bytes at all break its reading.

The golden texts follow core's `zk/ZkData.scala` of that version; key order is that of its maps.
"""

from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.base.errors import BadValue
from tidelog.cluster import znodes
from tidelog.cluster.image import BrokerInfo
from tidelog.cluster.topic_nodes import random_topic_id
from tidelog.cluster.znodes import Assignment, State

TOPIC_ID = bytes(range(16))
ID_TEXT = "AAECAwQFBgcICQoLDA0ODw"
STATE = State(
    leader=1,
    leader_epoch=4,
    isr=(1, 2),
    controller_epoch=9,
    broker_epochs={1: 7, 2: 1 << 32, 0: 5},
    elr=(0,),
)


def test_a_registration_is_version_five() -> None:
    broker = BrokerInfo(
        broker_id=1,
        endpoints={"CLIENT": ("host1", 9092), "REPLICATION": ("::1", 9093)},
        protocols={"CLIENT": "PLAINTEXT", "REPLICATION": "SSL"},
        rack="dc1",
    )
    assert znodes.encode_broker(broker, 2233345666) == (
        b'{"features":{},"listener_security_protocol_map":{"CLIENT":"PLAINTEXT",'
        b'"REPLICATION":"SSL"},"endpoints":["CLIENT://host1:9092","REPLICATION://[::1]:9093"],'
        b'"jmx_port":-1,"rack":"dc1","host":"host1","port":9092,"timestamp":"2233345666",'
        b'"version":5}'
    )


def test_a_registration_without_a_plain_listener_has_no_host_for_old_clients() -> None:
    broker = BrokerInfo(broker_id=1, endpoints={"SSL": ("h", 1)})
    assert b'"host":null,"port":-1' in znodes.encode_broker(broker, 0)


@pytest.mark.parametrize(
    "text",
    [
        '{"version":1,"host":"h","port":9092,"jmx_port":-1,"timestamp":"1"}',
        '{"version":2,"host":"h","port":9092,"jmx_port":-1,"timestamp":"1",'
        '"endpoints":["PLAINTEXT://h:9092"]}',
        '{"version":4,"host":"h","port":9092,"jmx_port":-1,"timestamp":"1",'
        '"endpoints":["PLAINTEXT://h:9092"],"listener_security_protocol_map":'
        '{"PLAINTEXT":"PLAINTEXT"},"rack":null,"unknown":[1]}',
    ],
)
def test_registrations_of_older_brokers_are_read(text: str) -> None:
    broker = znodes.decode_broker(1, text.encode(), epoch=5)
    assert (broker.endpoints, broker.rack, broker.epoch) == ({"PLAINTEXT": ("h", 9092)}, None, 5)


def test_a_topic_is_version_three() -> None:
    assignments = [Assignment(replicas=(1, 2)), Assignment(replicas=(2, 0, 1), adding=(0,))]
    data = znodes.encode_topic(TOPIC_ID, assignments)
    assert data == (
        b'{"removing_replicas":{},"partitions":{"0":[1,2],"1":[2,0,1]},'
        b'"topic_id":"AAECAwQFBgcICQoLDA0ODw","adding_replicas":{"1":[0]},"version":3}'
    )
    assert znodes.decode_topic(data) == (TOPIC_ID, tuple(assignments))


def test_topics_of_older_versions_have_no_id() -> None:
    found = znodes.decode_topic(b'{"version":1,"partitions":{"1":[2],"0":[1]}}')
    assert found == (None, (Assignment(replicas=(1,)), Assignment(replicas=(2,))))


def test_a_partition_state_is_version_one_and_has_two_keys_more() -> None:
    """T4."""
    data = znodes.encode_state(STATE)
    assert data == (
        b'{"controller_epoch":9,"leader":1,"version":1,"leader_epoch":4,"isr":[1,2],'
        b'"broker_epochs":{"1":7,"2":4294967296,"0":5},"elr":[0]}'
    )
    assert znodes.decode_state(data) == STATE
    assert znodes.decode_state(data[:-1] + b',"leader_recovery_state":1}') == STATE


def test_a_state_of_kafka_has_no_recorded_epochs_and_no_eligible_leaders() -> None:
    """T4."""
    data = b'{"controller_epoch":9,"leader":1,"version":1,"leader_epoch":4,"isr":[1,2]}'
    assert znodes.decode_state(data) == State(
        leader=1, leader_epoch=4, isr=(1, 2), controller_epoch=9, broker_epochs={}, elr=()
    )


def test_a_state_names_the_epochs_of_its_members_only() -> None:
    epochs = {1: 7, 5: 8}
    state = State(leader=1, leader_epoch=4, isr=(1, 2), controller_epoch=9, broker_epochs=epochs)
    assert b'"broker_epochs":{"1":7},"elr":[]' in znodes.encode_state(state)


def test_nobody_is_in_the_isr_and_an_eligible_leader_as_well() -> None:
    data = b'{"controller_epoch":9,"leader":1,"version":1,"leader_epoch":4,"isr":[1],"elr":[1,2]}'
    assert znodes.decode_state(data).elr == (2,)


@pytest.mark.parametrize(
    "extra",
    [
        '"broker_epochs":[1]',
        '"broker_epochs":{"x":1}',
        '"broker_epochs":{"01":1}',
        '"broker_epochs":{"-1":1}',
        '"broker_epochs":{"4294967296":1}',
        '"broker_epochs":{"1":"7"}',
        '"broker_epochs":{"1":-7}',
        '"broker_epochs":{"1":9223372036854775808}',
        '"broker_epochs":{"1":true}',
        '"elr":7',
        '"elr":[-1]',
        '"elr":[2,2]',
    ],
)
def test_a_state_with_broken_extra_keys_is_refused(extra: str) -> None:
    """Z15: guessing who restarted could cost records."""
    text = f'{{"controller_epoch":9,"leader":1,"version":1,"leader_epoch":4,"isr":[1],{extra}}}'
    with pytest.raises(BadValue):
        znodes.decode_state(text.encode())


def test_the_smaller_nodes_are_kafkas() -> None:
    assert znodes.encode_config({"a": "ü"}) == '{"version":1,"config":{"a":"ü"}}'.encode()
    assert znodes.encode_config_change("topics/t") == b'{"version":2,"entity_path":"topics/t"}'
    assert znodes.encode_controller(3, 1700) == (
        b'{"version":2,"brokerid":3,"timestamp":"1700","kraftControllerEpoch":-1}'
    )
    assert znodes.encode_controller_epoch(12) == b"12"
    assert znodes.encode_cluster_id(ID_TEXT) == b'{"version":"1","id":"AAECAwQFBgcICQoLDA0ODw"}'
    assert znodes.encode_producer_id_block(2, range(1000, 2000)) == (
        b'{"version":1,"broker":2,"block_start":"1000","block_end":"1999"}'
    )


def test_the_smaller_nodes_are_read_back() -> None:
    assert znodes.decode_config(znodes.encode_config({"a": "b"})) == {"a": "b"}
    assert znodes.decode_config(b"") == {}
    assert znodes.decode_controller(znodes.encode_controller(3, 1)) == 3
    assert znodes.decode_controller_epoch(b"12") == 12
    assert znodes.decode_cluster_id(znodes.encode_cluster_id(ID_TEXT)) == ID_TEXT
    block = range(1000, 2000)
    assert znodes.decode_producer_id_block(znodes.encode_producer_id_block(2, block)) == block


def test_an_id_is_written_as_kafka_does() -> None:
    assert znodes.id_text(TOPIC_ID) == ID_TEXT
    assert znodes.id_bytes(ID_TEXT) == TOPIC_ID
    assert znodes.id_text(b"\xff" * 16) == "_____________________w"


@pytest.mark.parametrize(
    "text", ["", "AAAA", "ü" * 22, ID_TEXT + "A", "A" * 24, "!" * 22, "-" * 30]
)
def test_what_is_not_an_id_is_refused(text: str) -> None:
    with pytest.raises(BadValue):
        znodes.id_bytes(text)


class Drawn:
    """Entropy that gives what it is told to."""

    def __init__(self, *draws: bytes) -> None:
        self._draws = iter(draws)

    def random_bytes(self, count: int) -> bytes:
        drawn = next(self._draws)
        assert len(drawn) == count
        return drawn


def test_an_id_is_never_one_of_those_kafka_reserves() -> None:
    """Zero and one are reserved; a dash in front would look like an option."""
    dashed = b"\xf8" + bytes(15)
    drawn = random_topic_id(Drawn(dashed, bytes(16)))
    assert int.from_bytes(drawn) > 100
    assert znodes.id_text(drawn) == "AAAAAAAAQACAAAAAAAAAAA"


DECODERS: list[Callable[[bytes], object]] = [
    lambda data: znodes.decode_broker(1, data, 1),
    znodes.decode_topic,
    znodes.decode_state,
    znodes.decode_config,
    znodes.decode_controller,
    znodes.decode_controller_epoch,
    znodes.decode_cluster_id,
    znodes.decode_producer_id_block,
]
GOOD = [
    znodes.encode_broker(BrokerInfo(broker_id=1, endpoints={"PLAINTEXT": ("h", 1)}), 5),
    znodes.encode_topic(TOPIC_ID, [Assignment(replicas=(1, 2), removing=(2,))]),
    znodes.encode_state(STATE),
    znodes.encode_config({"a": "b"}),
    znodes.encode_controller(1, 5),
    b"7",
    znodes.encode_cluster_id(ID_TEXT),
    znodes.encode_producer_id_block(2, range(1000, 2000)),
]
BROKEN = [
    b"\xff\xfe",
    b"{",
    b"[]",
    b"null",
    b"7.5",
    b'"text"',
    b"[" * 100_000,
    b"1" * 5000,
    b'{"config":1,"version":3,"partitions":[]}',
    b'{"config":1,"version":3,"partitions":{}}',
    b'{"config":1,"version":3,"partitions":{"1":[1]}}',
    b'{"config":1,"version":3,"partitions":{"0":[1,1]}}',
    b'{"config":1,"version":3,"partitions":{"0":[]}}',
    b'{"config":1,"version":3,"partitions":{"0":[true]}}',
    b'{"config":1,"version":3,"partitions":{"0":[-1]}}',
    b'{"config":1,"version":3,"partitions":{"0":[1]},"topic_id":7}',
    b'{"config":1,"version":3,"partitions":{"0":[1]},"topic_id":"short"}',
    b'{"leader":"1","leader_epoch":1,"isr":[1],"controller_epoch":1,"config":{"a":1}}',
    b'{"leader":1,"leader_epoch":-1,"isr":[1],"controller_epoch":1,"config":[]}',
    b'{"version":5,"endpoints":["nonsense"],"config":7}',
    b'{"version":5,"endpoints":[],"config":{"a":null}}',
    b'{"version":5,"endpoints":7,"id":7,"config":"x","brokerid":true}',
    b'{"block_start":"5","block_end":"3","config":1,"brokerid":4294967296}',
    b'{"block_start":"x","block_end":"3","config":1}',
    b'{"block_start":"1","block_end":"99999999999999999999","config":1,"id":""}',
]


@pytest.mark.parametrize("decode", DECODERS)
@pytest.mark.parametrize("data", BROKEN)
def test_what_cannot_be_read_is_refused_with_a_sentence(
    decode: Callable[[bytes], object], data: bytes
) -> None:
    """Z15."""
    with pytest.raises(BadValue) as refusal:
        decode(data)
    assert len(str(refusal.value)) < 400


@settings(deadline=None)
@given(st.sampled_from(range(len(GOOD))), st.data())
def test_damaged_nodes_are_read_or_refused_and_nothing_else(
    which: int, data: st.DataObject
) -> None:
    """Z15."""
    good = bytearray(GOOD[which])
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(good)))
        good[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    with suppress(BadValue):
        DECODERS[which](bytes(good))


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_random_bytes_are_read_or_refused_and_nothing_else(data: bytes) -> None:
    """Z15."""
    for decode in DECODERS:
        with suppress(BadValue):
            decode(data)
