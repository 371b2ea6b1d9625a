"""Partitions of keys, as every Kafka client computes them."""

import pyarrow as pa
import pytest
from aiokafka.partitioner import murmur2 as murmur2_of_aiokafka
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.records.murmur2 import murmur2, partition_for
from tidelog.records.partition_kernels import NO_PARTITION, partitions_for

# From Apache Kafka's own tests.
KNOWN = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize("key", KNOWN)
def test_murmur2_is_javas(key: bytes) -> None:
    assert murmur2(key) == KNOWN[key]


@given(st.binary(max_size=40))
@settings(deadline=None)
def test_murmur2_is_that_of_other_clients(key: bytes) -> None:
    assert murmur2(key) & 0xFFFFFFFF == murmur2_of_aiokafka(key) & 0xFFFFFFFF


def test_a_negative_hash_gives_a_partition() -> None:
    assert partition_for(b"21", 7) == (-973932308 & 0x7FFFFFFF) % 7


@given(
    st.lists(st.none() | st.binary(max_size=40), max_size=30),
    st.integers(1, 2**31 - 1),
    st.integers(0, 5),
)
@settings(deadline=None)
def test_a_column_of_keys_gets_the_partitions_of_its_keys(
    keys: list[bytes | None], partitions: int, start: int
) -> None:
    found = partitions_for(pa.array(keys, pa.binary())[start:], partitions)
    assert found.type == pa.int32()
    assert found.to_pylist() == [
        NO_PARTITION if key is None else partition_for(key, partitions) for key in keys[start:]
    ]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_binary(), pa.large_string()])
def test_keys_may_be_of_any_type_of_bytes(kind: pa.DataType) -> None:
    keys = pa.array(["foobar", "abc"], kind)
    assert partitions_for(keys, 9).to_pylist() == [
        partition_for(b"foobar", 9),
        partition_for(b"abc", 9),
    ]
