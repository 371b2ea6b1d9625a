"""Batches of coordinators: the same bytes as those of the reference."""

from hypothesis import given
from hypothesis import strategies as st

from tidelog.records.entries import encode_entries
from tidelog.records.reference import Record, encode_batch, read_records

entry = st.tuples(st.binary(max_size=600), st.none() | st.binary(max_size=600))


@given(
    st.lists(entry, min_size=1, max_size=80),
    st.integers(0, 1 << 62),
    st.none() | st.tuples(st.integers(0, 1 << 62), st.integers(0, 32_767)),
)
def test_entries_are_encoded_as_the_reference_encodes_them(
    entries: list[tuple[bytes, bytes | None]], timestamp: int, producer: tuple[int, int] | None
) -> None:
    records = [
        Record(offset=number, timestamp=timestamp, key=key, value=value)
        for number, (key, value) in enumerate(entries)
    ]
    found = encode_entries(entries, timestamp, producer)
    if producer is None:
        assert found == encode_batch(records)
    else:
        producer_id, epoch = producer
        assert found == encode_batch(
            records, producer_id=producer_id, producer_epoch=epoch, transactional=True
        )
    assert list(read_records(found, verify_crc=True)) == records


def test_values_longer_than_small_numbers_are_encoded_too() -> None:
    entries = [(b"k" * size, b"v" * (size * 3)) for size in (63, 64, 511, 512, 8191, 8192, 70_000)]
    found = encode_entries(entries, 7)
    assert [(r.key, r.value) for r in read_records(found, verify_crc=True)] == entries
