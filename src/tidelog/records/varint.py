"""The numbers inside a record: zigzag varints of 32 and 64 bits, as in protocol buffers.

Seven bits a byte, lowest first, the top bit set on all but the last byte. A 32-bit number
takes at most 5 bytes and a 64-bit one at most 10; like Kafka's reader, this one drops the
bits that do not fit, and refuses a number that goes on.
"""

from typing import Final

from tidelog.base.errors import ErrorCode, KafkaError

INT_BYTES_MAX: Final = 5
LONG_BYTES_MAX: Final = 10
_MASKS: Final = {INT_BYTES_MAX: (1 << 32) - 1, LONG_BYTES_MAX: (1 << 64) - 1}


def append_varint(output: bytearray, value: int) -> None:
    zigzag = value << 1 if value >= 0 else (-value << 1) - 1
    while zigzag > 0x7F:
        output.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    output.append(zigzag)


class Reader:
    """Reads forward through `data`, and never past its end."""

    __slots__ = ("data", "position")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0

    def remaining(self) -> int:
        return len(self.data) - self.position

    def integer(self) -> int:
        return self._varint(INT_BYTES_MAX)

    def long(self) -> int:
        return self._varint(LONG_BYTES_MAX)

    def take(self, size: int) -> bytes:
        if size < 0:
            raise _invalid(f"a length of {size}")
        if size > self.remaining():
            raise _invalid(f"a length of {size} where {self.remaining()} bytes remain")
        start = self.position
        self.position += size
        return self.data[start : self.position]

    def nullable(self) -> bytes | None:
        """A length and that many bytes; -1 stands for null."""
        size = self.integer()
        return None if size == -1 else self.take(size)

    def _varint(self, bytes_max: int) -> int:
        zigzag = 0
        for place in range(bytes_max):
            if not self.remaining():
                raise _invalid("the records end within a number")
            byte = self.data[self.position]
            self.position += 1
            zigzag |= (byte & 0x7F) << 7 * place
            if byte < 0x80:
                zigzag &= _MASKS[bytes_max]
                return zigzag >> 1 ^ -(zigzag & 1)
        raise _invalid(f"a number of more than {bytes_max} bytes")


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.invalid_record, message)
