"""The hash by which Kafka's clients choose a partition for a key, equal to Java's.

All clients must agree on it, or records of one key land in different partitions. For whole
columns of keys there is `partition_kernels`.
"""

from typing import Final

SEED: Final = 0x9747B28C
FACTOR: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """A signed 32-bit number, as Java has it."""
    result = SEED ^ len(data)
    whole = len(data) & ~3
    for position in range(0, whole, 4):
        word = int.from_bytes(data[position : position + 4], "little") * FACTOR & _MASK
        word = (word ^ word >> 24) * FACTOR & _MASK
        result = result * FACTOR & _MASK ^ word
    if whole < len(data):
        result = (result ^ int.from_bytes(data[whole:], "little")) * FACTOR & _MASK
    result = (result ^ result >> 13) * FACTOR & _MASK
    result ^= result >> 15
    return result - (1 << 32) if result >> 31 else result


def partition_for(key: bytes, partitions: int) -> int:
    """The partition of a key; a record without one may go anywhere."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions
