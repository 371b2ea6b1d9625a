"""The fields that Kafka's requests and answers are made of, written and read by hand.

Only what the flexible versions need: compact strings, arrays and bytes carry their length plus one
as an unsigned varint, and 0 for null; every structure ends with its tagged fields. The product's
own codec is not used here, so that what is measured is not also what measures.
"""

from struct import Struct, unpack_from

NO_TAGS = b"\0"
NULL = b"\0"
EMPTY_ARRAY = b"\1"

int16 = Struct(">h").pack
int32 = Struct(">i").pack
int64 = Struct(">q").pack


def varint(value: int) -> bytes:
    written = bytearray()
    while value > 0x7F:
        written.append(value & 0x7F | 0x80)
        value >>= 7
    written.append(value)
    return bytes(written)


def compact(value: bytes | str) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return varint(len(raw) + 1) + raw


def array(items: list[bytes]) -> bytes:
    return varint(len(items) + 1) + b"".join(items)


class Reader:
    """Takes one field after the other from an answer."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, size: int) -> bytes:
        start, self._at = self._at, self._at + size
        if self._at > len(self._data):
            raise ValueError(f"an answer of {len(self._data)} bytes ends before byte {self._at}")
        return self._data[start : self._at]

    def int16(self) -> int:
        value: int = unpack_from(">h", self.take(2))[0]
        return value

    def int32(self) -> int:
        value: int = unpack_from(">i", self.take(4))[0]
        return value

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def compact(self) -> bytes:
        return self.take(max(self.varint() - 1, 0))

    def count(self) -> int:
        return max(self.varint() - 1, 0)

    def skip_tags(self) -> None:
        for _ in range(self.varint()):
            self.varint()
            self.take(self.varint())
