"""Batches that are looked into: the compiled way finds what the plain one finds (Z4)."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.base.errors import KafkaError
from tidelog.base.ports import Buffer
from tidelog.records.batch import HEADER_SIZE, read_header, seal
from tidelog.records.inspection import (
    FEW_BYTES_MAX,
    FEW_RECORDS_MAX,
    argument_for,
    stored_batch,
    task_for,
)
from tidelog.records.inspector import BLAMED_AMONG_MAX, keys_missing, run
from tidelog.records.reference import Record, encode_batch, read_records
from tidelog.world.sim.disk import SimDisk

LIMIT = 1 << 24


def batch_of(count: int, key: bytes | None = b"k", **fields: int) -> bytearray:
    records = [Record(offset=n, timestamp=0, key=key, value=b"") for n in range(count)]
    return encode_batch(records, **fields)  # type: ignore[arg-type]


def counted_plainly(batch: Buffer, limit: int) -> int:
    return sum(record.key is None for record in read_records(batch, limit))


def found(count: object, batch: Buffer) -> int | str:
    assert callable(count)
    try:
        result: int = count(batch, LIMIT)
    except KafkaError as error:
        return str(error)
    return result


def test_only_batches_of_few_records_and_bytes_go_to_the_quick_worker() -> None:
    assert task_for(batch_of(1)) == "inspect"
    assert task_for(batch_of(FEW_RECORDS_MAX)) == "inspect"
    assert task_for(batch_of(FEW_RECORDS_MAX + 1)) == "inspect many"
    large = encode_batch([Record(offset=0, timestamp=0, key=b"", value=bytes(FEW_BYTES_MAX))])
    assert task_for(large) == "inspect many"


@pytest.mark.parametrize("compression", range(5))
def test_missing_keys_are_counted_alike(compression: int) -> None:
    records = [
        Record(offset=n, timestamp=n, key=None if n % 3 == 0 else b"key", value=None)
        for n in range(100)
    ]
    batch = encode_batch(records, compression=compression)
    assert keys_missing(batch, LIMIT) == counted_plainly(batch, LIMIT) == 34


@settings(max_examples=200, deadline=None)
@given(
    changes=st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=4),
    compression=st.sampled_from([0, 1, 4]),
)
def test_damage_is_found_alike(changes: list[tuple[int, int]], compression: int) -> None:
    """What is changed lies behind the header, which was checked before."""
    records = [
        Record(offset=n, timestamp=n, key=b"k%d" % n, value=b"v", headers=(("h", b"x"),))
        for n in range(20)
    ]
    batch = encode_batch(records, compression=compression)
    for at, byte in changes:
        batch[61 + at % (len(batch) - 61)] = byte
    assert found(keys_missing, batch) == found(counted_plainly, batch)


@pytest.mark.parametrize(
    ("codec", "fast", "hard"), [("gzip", 1, 9), ("lz4", 9, 12), ("zstd", 1, 19)]
)
def test_a_batch_is_compressed_at_the_level_that_its_topic_has(
    codec: str, fast: int, hard: int
) -> None:
    """O2: lz4's 9 is its usual level, and the fastest, as in Kafka."""
    draws = Random(1)
    words = [b"w%d" % draws.randrange(500) for _ in range(20_000)]
    batch = encode_batch([Record(offset=0, timestamp=0, key=b"k", value=b" ".join(words))])
    sizes = {}
    for level in (fast, hard):
        argument = argument_for(batch, 1 << 20, keys_required=False, compression=codec, level=level)
        stored = stored_batch(run(SimDisk(), argument))
        assert [record.value for record in read_records(stored)] == [b" ".join(words)]
        sizes[level] = len(stored)
    assert sizes[hard] < 0.97 * sizes[fast]


def test_a_worker_gives_back_what_is_to_be_stored_or_says_what_is_wrong() -> None:
    argument = argument_for(
        batch_of(3_000), 1 << 20, keys_required=True, compression="uncompressed"
    )
    assert stored_batch(run(SimDisk(), argument)) == batch_of(3_000)
    keyless = argument_for(
        batch_of(3_000, key=None), 1 << 20, keys_required=True, compression="producer"
    )
    with pytest.raises(KafkaError, match="3000 records have no key"):
        stored_batch(run(SimDisk(), keyless))


@pytest.mark.parametrize(
    ("count", "blamed"), [(7, [2, 3, 6]), (BLAMED_AMONG_MAX, [2, 3, 6]), (BLAMED_AMONG_MAX + 1, [])]
)
def test_records_without_key_are_named_unless_the_batch_is_huge(
    count: int, blamed: list[int]
) -> None:
    records = [
        Record(offset=n, timestamp=0, key=None if n in (2, 3, 6) else b"k", value=b"")
        for n in range(count)
    ]
    batch = encode_batch(records, compression=4)
    argument = argument_for(batch, 1 << 20, keys_required=True, compression="producer")
    with pytest.raises(KafkaError, match="3 records have no key") as raised:
        stored_batch(run(SimDisk(), argument))
    assert raised.value.records == blamed


@pytest.mark.parametrize("compression", range(5))
@pytest.mark.parametrize("times", [[5], [5_000, 9_000_000_000, 4, 7_000], [-1, -1]])
def test_a_max_timestamp_that_was_not_given_is_found_in_the_records(
    times: list[int], compression: int
) -> None:
    records = [Record(offset=n, timestamp=at, key=b"k") for n, at in enumerate(times)]
    whole = encode_batch(records, compression=compression)
    lacking = seal(read_header(whole)._replace(max_timestamp=-1), whole[HEADER_SIZE:])
    argument = argument_for(lacking, 1 << 20, keys_required=False, compression="producer")
    assert stored_batch(run(SimDisk(), argument)) == whole


def test_a_time_that_does_not_exist_is_refused_where_the_youngest_record_is_looked_for() -> None:
    late = [Record(offset=n, timestamp=at) for n, at in enumerate([0, (1 << 63) - 1])]
    batch = encode_batch(late)
    header = read_header(batch)._replace(base_timestamp=5, max_timestamp=-1)
    argument = argument_for(
        seal(header, batch[HEADER_SIZE:]), 1 << 20, keys_required=False, compression="producer"
    )
    with pytest.raises(KafkaError, match="a time that does not exist"):
        stored_batch(run(SimDisk(), argument))
