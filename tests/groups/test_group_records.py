"""The records of groups and offsets are those of Apache Kafka 4.3.1: the bytes here were written by
its own serializers, in every version it knows (A5)."""

import pytest

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.groups.records import (
    GroupValue,
    MemberValue,
    OffsetKey,
    OffsetValue,
    read_group_key,
    read_group_value,
    read_offset_key,
    read_offset_value,
    write_group_key,
    write_group_value,
    write_offset_key,
    write_offset_value,
)
from tidelog.records.fields import version_of

TOPIC_ID = bytes(range(1, 17))
OFFSET = 1234567890123
COMMITTED_MS = 1700000000123
EXPIRES_MS = 1700000099999
OFFSETS = {
    0: "00000000011f71fb04cb00046e6f74650000018bcfe5687b",
    1: "00010000011f71fb04cb00046e6f74650000018bcfe5687b0000018bcfe6ee9f",
    2: "00020000011f71fb04cb00046e6f74650000018bcfe5687b",
    3: "00030000011f71fb04cb0000000900046e6f74650000018bcfe5687b",
    4: "00040000011f71fb04cb00000009056e6f74650000018bcfe5687b0100100102030405060708090a0b0c0d0e"
    "0f10",
}
GROUPS = {
    0: "00000008636f6e73756d657200000003000572616e67650003612d31000000020003612d31000161000a2f31"
    "32372e302e302e310000afc8000000060001000000000000000200010003622d3200016200092f31302e302e"
    "302e32000017700000000000000000",
    1: "00010008636f6e73756d657200000003000572616e67650003612d31000000020003612d31000161000a2f31"
    "32372e302e302e31000493e00000afc8000000060001000000000000000200010003622d3200016200092f31"
    "302e302e302e32000003e8000017700000000000000000",
    2: "00020008636f6e73756d657200000003000572616e67650003612d310000018bcfe5687b000000020003612d"
    "31000161000a2f3132372e302e302e31000493e00000afc8000000060001000000000000000200010003622d"
    "3200016200092f31302e302e302e32000003e8000017700000000000000000",
    3: "00030008636f6e73756d657200000003000572616e67650003612d310000018bcfe5687b000000020003612d"
    "3100036f6e65000161000a2f3132372e302e302e31000493e00000afc8000000060001000000000000000200"
    "010003622d32ffff00016200092f31302e302e302e32000003e8000017700000000000000000",
    4: "000409636f6e73756d6572000000030672616e676504612d310000018bcfe5687b0304612d31046f6e650261"
    "0b2f3132372e302e302e31000493e00000afc8070001000000000300010004622d320002620a2f31302e302e"
    "302e32000003e80000177001010000",
}
EMPTY_GROUPS = {
    0: "0000000000000000ffffffff00000000",
    1: "0001000000000000ffffffff00000000",
    2: "0002000000000000ffffffffffffffffffffffff00000000",
    3: "0003000000000000ffffffffffffffffffffffff00000000",
    4: "000401000000000000ffffffffffffffff0100",
}
OFFSET_KEY = "000100077265616465727300066f726465727300000007"
GROUP_KEY = "0002000772656164657273"


def member(number: int, version: int) -> MemberValue:
    """Of two that Kafka wrote; older versions left some of it out."""
    session_timeout_ms = (45000, 6000)[number]
    return MemberValue(
        member_id=("a-1", "b-2")[number],
        instance_id="one" if version >= 3 and number == 0 else None,
        client_id="ab"[number],
        client_host=("/127.0.0.1", "/10.0.0.2")[number],
        rebalance_timeout_ms=(300000, 1000)[number] if version >= 1 else session_timeout_ms,
        session_timeout_ms=session_timeout_ms,
        subscription=(b"\0\1\0\0\0\0", b"")[number],
        assignment=(b"\0\1", b"")[number],
    )


def group(version: int) -> GroupValue:
    return GroupValue(
        protocol_type="consumer",
        generation=3,
        protocol="range",
        leader="a-1",
        state_time_ms=COMMITTED_MS if version >= 2 else -1,
        members=(member(0, version), member(1, version)),
    )


@pytest.mark.parametrize("version", OFFSETS)
def test_an_offset_of_any_version_is_read(version: int) -> None:
    expected = OffsetValue(
        OFFSET,
        9 if version >= 3 else -1,
        "note",
        COMMITTED_MS,
        EXPIRES_MS if version == 1 else -1,
        TOPIC_ID if version == 4 else bytes(16),
    )
    assert read_offset_value(bytes.fromhex(OFFSETS[version])) == expected


def test_an_offset_is_written_as_kafka_writes_it() -> None:
    value = OffsetValue(OFFSET, 9, "note ü", COMMITTED_MS, -1, TOPIC_ID)
    assert write_offset_value(value).hex() == (
        "00040000011f71fb04cb00000009086e6f746520c3bc0000018bcfe5687b"
        "0100100102030405060708090a0b0c0d0e0f10"
    )
    plain = OffsetValue(1, -1, "", 2)
    assert write_offset_value(plain).hex() == "00040000000000000001ffffffff01000000000000000200"


def test_an_offset_with_a_time_of_its_own_is_written_in_the_version_that_has_one() -> None:
    value = OffsetValue(5, -1, "", COMMITTED_MS, EXPIRES_MS, TOPIC_ID)
    written = write_offset_value(value)
    assert written.hex() == "0001000000000000000500000000018bcfe5687b0000018bcfe6ee9f"
    assert read_offset_value(written) == value._replace(topic_id=bytes(16))


@pytest.mark.parametrize("version", GROUPS)
def test_a_group_of_any_version_is_read(version: int) -> None:
    assert read_group_value(bytes.fromhex(GROUPS[version])) == group(version)


@pytest.mark.parametrize("version", EMPTY_GROUPS)
def test_an_empty_group_of_any_version_is_read(version: int) -> None:
    expected = GroupValue(
        protocol_type="", generation=0, protocol=None, leader=None, state_time_ms=-1, members=()
    )
    assert read_group_value(bytes.fromhex(EMPTY_GROUPS[version])) == expected


def test_a_group_is_written_as_kafka_writes_it() -> None:
    assert write_group_value(group(3)).hex() == GROUPS[3]
    assert (
        write_group_value(read_group_value(bytes.fromhex(EMPTY_GROUPS[3]))).hex()
        == (EMPTY_GROUPS[3])
    )


def test_keys_are_those_of_kafka() -> None:
    key = OffsetKey("readers", "orders", 7)
    assert write_offset_key(key).hex() == OFFSET_KEY
    assert read_offset_key(bytes.fromhex(OFFSET_KEY)) == key
    assert read_offset_key(bytes.fromhex("0000" + OFFSET_KEY[4:])) == key
    assert write_group_key("readers").hex() == GROUP_KEY
    assert read_group_key(bytes.fromhex(GROUP_KEY)) == "readers"
    assert [version_of(bytes.fromhex(key)) for key in (OFFSET_KEY, GROUP_KEY)] == [1, 2]


@pytest.mark.parametrize("version", OFFSETS)
def test_a_record_that_is_cut_off_is_refused(version: int) -> None:
    for whole, read in ((OFFSETS[version], read_offset_value), (GROUPS[version], read_group_value)):
        data = bytes.fromhex(whole)
        for size in range(len(data)):
            with pytest.raises(KafkaError) as caught:
                read(data[:size])
            assert caught.value.code is ErrorCode.corrupt_message


@pytest.mark.parametrize("version", [-1, 5])
def test_a_version_nobody_knows_is_refused(version: int) -> None:
    data = version.to_bytes(2, "big", signed=True) + bytes(100)
    for read in (read_offset_value, read_group_value):
        with pytest.raises(KafkaError, match=f"in version {version}"):
            read(data)
