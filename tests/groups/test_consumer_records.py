"""The records of the newer protocol, against bytes that Apache Kafka 4.3.1 wrote (A5)."""

import pytest

from tidelog.base.errors import KafkaError
from tidelog.base.journal import Entry
from tidelog.groups import consumer_records as records
from tidelog.groups.consumer_member import ClassicSide, Member, MemberState
from tidelog.groups.consumer_records import EpochValue, Key, PatternValue

T1 = (1).to_bytes(8, "big") + (2).to_bytes(8, "big")
T2 = (3).to_bytes(8, "big") + (4).to_bytes(8, "big")
MEMBER_KEY = "000367727000036d656d"


def kafka(key: str, value: str) -> Entry:
    return Entry(bytes.fromhex(key), bytes.fromhex(value))


GROUP = kafka("00030003677270", "000000000007010008fedcba9876543210")
GROUP_WITHOUT_HASH = kafka("00030003677270", "00000000000700")
TARGET_EPOCH = kafka("00060003677270", "00000000000900")
TARGET_EPOCH_WITH_TIME = kafka("00060003677270", "0000000000090100080000018bcfe56800")
DESCRIBED = kafka(
    "0005" + MEMBER_KEY,
    "000005696e7374057261636b07636c69656e740b2f3132372e302e302e31030462617204666f6f0562612e2a"
    "000493e008756e69666f726d00",
)
DESCRIBED_WITH_NOTHING = kafka("0005" + MEMBER_KEY, "0000000001010100ffffffff0000")
DESCRIBED_CLASSIC = kafka(
    "0005" + MEMBER_KEY,
    "00000000026302680204666f6f01000003e80001001b010000afc8030672616e6765040102030007737469636b"
    "79010000",
)
TARGET = kafka(
    "0007" + MEMBER_KEY,
    "000003000000000000000100000000000000020400000000000000010000012c00000000000000000300000000"
    "0000000402000000050000",
)
TARGET_OF_NOTHING = kafka("0007" + MEMBER_KEY, "00000100")
CURRENT = kafka(
    "0008" + MEMBER_KEY,
    "00000000000b0000000a01020000000000000001000000000000000203000000000000000101000903000000"
    "0b0000000902000000000000000300000000000000040200000005010005020000000300",
)
CURRENT_WITHOUT_EPOCHS = kafka(
    "0008" + MEMBER_KEY,
    "0000fffffffe0000000a000200000000000000010000000000000002030000000000000001000100",
)
PATTERN = kafka(
    "00100003677270000462612e2a", "000003046261720462617a00000000000030390000018bcfe5680000"
)

MEMBER = Member(
    member_id="mem",
    instance_id="inst",
    rack_id="rack",
    client_id="client",
    client_host="/127.0.0.1",
    topics=("bar", "foo"),
    pattern="ba.*",
    rebalance_timeout_ms=300_000,
    assignor="uniform",
)
CLASSIC_MEMBER = Member(
    member_id="mem",
    client_id="c",
    client_host="h",
    topics=("foo",),
    rebalance_timeout_ms=1000,
    classic=ClassicSide(45_000, (("range", b"\1\2\3"), ("sticky", b""))),
)
MEMBER_WITH_PARTITIONS = Member(
    member_id="mem",
    epoch=11,
    previous_epoch=10,
    state=MemberState.UNREVOKED,
    held={T1: {0: 11, 1: 9}},
    revoking={T2: {5: 3}},
)


def value_of(entry: Entry) -> bytes:
    assert entry.value is not None
    return entry.value


def test_a5_group_epochs_are_written_and_read_as_kafka_does() -> None:
    value = EpochValue(7, -81985529216486896)
    assert records.group_entry("grp", value) == GROUP
    assert records.read_group(value_of(GROUP)) == value
    assert records.group_entry("grp", EpochValue(7)) == GROUP_WITHOUT_HASH
    assert records.read_group(value_of(GROUP_WITHOUT_HASH)) == EpochValue(7)
    assert records.read_key(GROUP.key) == Key(records.GROUP_EPOCH, "grp")


def test_a5_assignment_epochs_are_written_and_read_as_kafka_does() -> None:
    assert records.target_epoch_entry("grp", 9) == TARGET_EPOCH
    assert records.read_target_epoch(value_of(TARGET_EPOCH)) == 9
    assert records.read_target_epoch(value_of(TARGET_EPOCH_WITH_TIME)) == 9


@pytest.mark.parametrize(
    ("member", "entry"), [(MEMBER, DESCRIBED), (CLASSIC_MEMBER, DESCRIBED_CLASSIC)]
)
def test_a5_members_are_written_and_read_as_kafka_does(member: Member, entry: Entry) -> None:
    assert records.member_entry("grp", member) == entry
    assert records.read_member(value_of(entry), Member(member_id="mem")) == member
    assert records.read_key(entry.key) == Key(records.MEMBER, "grp", "mem")


def test_a5_a_member_that_says_nothing_of_itself_is_read() -> None:
    assert records.read_member(value_of(DESCRIBED_WITH_NOTHING), MEMBER) == Member(member_id="mem")


def test_a5_targets_are_written_and_read_as_kafka_does() -> None:
    assignment = {T2: (5,), T1: (0, 1, 300)}
    assert records.target_entry("grp", "mem", assignment) == TARGET
    assert records.read_target(value_of(TARGET)) == assignment
    assert records.target_entry("grp", "mem", {}) == TARGET_OF_NOTHING
    assert records.read_target(value_of(TARGET_OF_NOTHING)) == {}


def test_a5_what_members_have_is_written_and_read_as_kafka_does() -> None:
    assert records.current_entry("grp", MEMBER_WITH_PARTITIONS) == CURRENT
    assert records.read_current(value_of(CURRENT), Member(member_id="mem")) == (
        MEMBER_WITH_PARTITIONS
    )


def test_a5_partitions_of_an_older_broker_count_as_got_in_the_epoch_of_the_member() -> None:
    member = records.read_current(value_of(CURRENT_WITHOUT_EPOCHS), Member(member_id="mem"))
    assert (member.epoch, member.held, member.revoking) == (-2, {T1: {0: -2, 1: -2}}, {})


def test_a5_patterns_are_written_and_read_as_kafka_does() -> None:
    value = PatternValue(topics=("bar", "baz"), resolved_ms=1_700_000_000_000, version=12345)
    assert records.pattern_entry("grp", "ba.*", value) == PATTERN
    assert records.read_pattern(value_of(PATTERN)) == value
    assert records.read_key(PATTERN.key) == Key(records.PATTERN, "grp", "ba.*")


def test_tombstones_have_the_key_and_no_value() -> None:
    assert records.tombstone(records.CURRENT, "grp", "mem") == Entry(CURRENT.key, None)
    assert records.tombstone(records.GROUP_EPOCH, "grp") == Entry(GROUP.key, None)


@pytest.mark.parametrize("entry", [DESCRIBED, DESCRIBED_CLASSIC, TARGET, CURRENT, PATTERN])
def test_a_record_that_is_cut_off_is_refused(entry: Entry) -> None:
    readers = {
        records.MEMBER: lambda data: records.read_member(data, MEMBER),
        records.TARGET: records.read_target,
        records.CURRENT: lambda data: records.read_current(data, MEMBER),
        records.PATTERN: records.read_pattern,
    }
    read = readers[records.read_key(entry.key).kind]
    for size in range(len(value_of(entry)) - 1):
        with pytest.raises(KafkaError):
            read(value_of(entry)[:size])


def test_a_value_in_a_version_of_the_future_is_refused() -> None:
    with pytest.raises(KafkaError, match="version 1"):
        records.read_group(b"\0\1" + value_of(GROUP)[2:])
