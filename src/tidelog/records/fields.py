"""The fields of the records that coordinators keep, as Kafka's generated messages write them.

A key or a value is a version (2 bytes) and then its fields, in order, big-endian. In older
versions text, bytes and arrays begin with their length; in flexible ones with their length plus
one as an unsigned varint, and every structure ends with its tagged fields.

    what             older                    flexible
    text             2-byte length, UTF-8     varint length + 1, UTF-8
    nullable text    the same, -1 is null     the same, 0 is null
    bytes            4-byte length            varint length + 1
    array            4-byte count             varint count + 1
"""

from struct import Struct
from typing import Final

from tidelog.base.errors import ErrorCode, KafkaError

_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_INT64: Final = Struct(">q")
_ID_BYTES: Final = 16
_VARINT_BYTES_MAX: Final = 5


def version_of(data: bytes) -> int:
    """The version that a key or a value begins with."""
    if len(data) < _INT16.size:
        raise _cut_off()
    (version,) = _INT16.unpack_from(data)
    return int(version)


def write_varint(value: int) -> bytes:
    """An unsigned number, seven bits a byte, lowest first."""
    output = bytearray()
    while value > 0x7F:
        output.append(value & 0x7F | 0x80)
        value >>= 7
    output.append(value)
    return bytes(output)


class FieldReader:
    """Reads what follows the version, forward and never past the end."""

    __slots__ = ("_data", "_is_flexible", "_position")

    def __init__(self, data: bytes, *, is_flexible: bool = False) -> None:
        self._data = data
        self._is_flexible = is_flexible
        self._position = _INT16.size

    def int8(self) -> int:
        (value,) = self.raw(1)
        return value - 256 if value > 127 else value

    def int16(self) -> int:
        return self._number(_INT16)

    def int32(self) -> int:
        return self._number(_INT32)

    def int64(self) -> int:
        return self._number(_INT64)

    def uuid(self) -> bytes:
        return self.raw(_ID_BYTES)

    def text(self) -> str:
        value = self.nullable_text()
        if value is None:
            raise _corrupt("there is no text where there must be some")
        return value

    def nullable_text(self) -> str | None:
        size = self.varint() - 1 if self._is_flexible else self.int16()
        return None if size == -1 else self._decoded(size)

    def data(self) -> bytes:
        value = self.nullable_data()
        if value is None:
            raise _corrupt("there are no bytes where there must be some")
        return value

    def nullable_data(self) -> bytes | None:
        size = self.count()
        return None if size == -1 else self.raw(size)

    def count(self) -> int:
        """How many elements an array has; -1 if it is null."""
        return self.varint() - 1 if self._is_flexible else self.int32()

    def tags(self) -> dict[int, bytes]:
        """The tagged fields that end a structure, by number; older versions have none."""
        if not self._is_flexible:
            return {}
        found = {}
        for _ in range(self.varint()):
            tag = self.varint()
            found[tag] = self.raw(self.varint())
        return found

    def varint(self) -> int:
        value = 0
        for place in range(_VARINT_BYTES_MAX):
            (byte,) = self.raw(1)
            value |= (byte & 0x7F) << 7 * place
            if byte < 0x80:
                return value
        raise _corrupt(f"a number of more than {_VARINT_BYTES_MAX} bytes")

    def raw(self, size: int) -> bytes:
        start, end = self._position, self._position + size
        if size < 0 or end > len(self._data):
            raise _cut_off()
        self._position = end
        return self._data[start:end]

    def _number(self, kind: Struct) -> int:
        (value,) = kind.unpack(self.raw(kind.size))
        return int(value)

    def _decoded(self, size: int) -> str:
        try:
            return self.raw(size).decode()
        except UnicodeDecodeError as error:
            raise _corrupt("a text is not UTF-8") from error


class FieldWriter:
    """Puts a version and fields together; every call returns the writer itself."""

    __slots__ = ("_is_flexible", "_output")

    def __init__(self, version: int, *, is_flexible: bool = False) -> None:
        self._output = bytearray(_INT16.pack(version))
        self._is_flexible = is_flexible

    def int8(self, value: int) -> "FieldWriter":
        self._output.append(value & 0xFF)
        return self

    def int16(self, value: int) -> "FieldWriter":
        self._output += _INT16.pack(value)
        return self

    def int32(self, value: int) -> "FieldWriter":
        self._output += _INT32.pack(value)
        return self

    def int64(self, value: int) -> "FieldWriter":
        self._output += _INT64.pack(value)
        return self

    def uuid(self, value: bytes) -> "FieldWriter":
        assert len(value) == _ID_BYTES
        self._output += value
        return self

    def text(self, value: str | None) -> "FieldWriter":
        data = None if value is None else value.encode()
        size = -1 if data is None else len(data)
        if self._is_flexible:
            self.varint(size + 1)
        else:
            self.int16(size)
        self._output += data or b""
        return self

    def data(self, value: bytes | None) -> "FieldWriter":
        self.count(-1 if value is None else len(value))
        self._output += value or b""
        return self

    def count(self, value: int) -> "FieldWriter":
        return self.varint(value + 1) if self._is_flexible else self.int32(value)

    def tags(self, fields: dict[int, bytes] | None = None) -> "FieldWriter":
        """Ends a structure; for older versions there is nothing to write."""
        if self._is_flexible:
            chosen = fields or {}
            self.varint(len(chosen))
            for tag in sorted(chosen):
                self.varint(tag).varint(len(chosen[tag]))
                self._output += chosen[tag]
        return self

    def varint(self, value: int) -> "FieldWriter":
        self._output += write_varint(value)
        return self

    def done(self) -> bytes:
        return bytes(self._output)


def _cut_off() -> KafkaError:
    return _corrupt("a record of a coordinator ends within a field")


def _corrupt(message: str) -> KafkaError:
    return KafkaError(ErrorCode.corrupt_message, message)
