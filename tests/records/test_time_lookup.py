"""Finding a record by its time says what reading every record says, in the loop and in a worker."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.base.errors import KafkaError
from tidelog.base.limits import DECOMPRESSED_BYTES_MAX
from tidelog.records.reference import Record, encode_batch, read_records
from tidelog.records.time_finder import find, run
from tidelog.records.time_lookup import argument_for, first_not_before, found_by
from tidelog.world.sim.disk import SimDisk

records = st.lists(
    st.tuples(st.integers(0, 1 << 40) | st.integers(0, 300), st.binary(max_size=200)),
    min_size=1,
    max_size=20,
)


@given(
    drawn=records,
    timestamp=st.integers(-1, 1 << 41) | st.integers(0, 300),
    first_offset=st.integers(0, 30),
    compression=st.integers(0, 4),
    log_append_time=st.booleans(),
)
def test_the_first_record_that_is_young_enough_is_found(
    drawn: list[tuple[int, bytes]],
    timestamp: int,
    first_offset: int,
    compression: int,
    log_append_time: bool,
) -> None:
    batch = encode_batch(
        [
            Record(offset=5 + at, timestamp=time, value=value)
            for at, (time, value) in enumerate(drawn)
        ],
        base_offset=5,
        compression=compression,
        log_append_time=log_append_time,
    )
    expected = next(
        (
            (record.offset, record.timestamp)
            for record in read_records(batch)
            if record.timestamp >= timestamp and record.offset >= first_offset
        ),
        None,
    )
    asked = (batch, timestamp, first_offset, DECOMPRESSED_BYTES_MAX)
    assert first_not_before(*asked) == expected
    assert found_by(json.loads(json.dumps(run(SimDisk(), argument_for(*asked))))) == expected


@given(noise=st.binary(max_size=80), at=st.integers(61, 130))
def test_records_that_are_not_sound_are_refused_or_passed_over(noise: bytes, at: int) -> None:
    batch = encode_batch([Record(offset=n, timestamp=n, value=b"v" * 20) for n in range(4)])
    batch[at : at + len(noise)] = noise[: max(0, len(batch) - at)]
    for find_first in (first_not_before, find):
        try:
            found = find_first(bytes(batch), 1 << 50, 0, DECOMPRESSED_BYTES_MAX)
        except KafkaError:
            continue
        assert found is None or found[1] >= 1 << 50


def test_a_batch_that_grows_beyond_the_limit_is_refused() -> None:
    batch = encode_batch([Record(offset=0, timestamp=0, value=bytes(100_000))], compression=4)
    with pytest.raises(KafkaError):
        first_not_before(batch, 0, 0, 50_000)
    with pytest.raises(KafkaError):
        found_by(run(SimDisk(), argument_for(batch, 0, 0, 50_000)))
