"""The values that all messages are made of, and the one error for bytes that make no sense.

Hand-written codecs read with `struct` straight from the frame and use these functions for
what has no fixed size. Whatever the bytes are, what comes out is a value or a `KafkaError`.

    unsigned varint   7 bits a byte, lowest first, the top bit says that more follow; <= 5 bytes
    string            int16 length, UTF-8; -1 is null
    compact string    unsigned varint length + 1, UTF-8; 0 is null
    tag section       varint count, then each: varint tag, varint size, that many bytes
"""

from struct import Struct, error
from typing import Final

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.base.ports import Buffer

STRING_BYTES_MAX: Final = 32_767
# Topics and partitions of one Produce or Fetch request: a small item costs 30 times its bytes.
ITEMS_MAX: Final = 200_000
# What reading past the end, or text that is none, raises; each reader turns it into `malformed`.
UNREADABLE: Final = (error, IndexError, UnicodeDecodeError, ValueError, OverflowError)

INT16: Final = Struct(">h")
INT32: Final = Struct(">i")
INT64: Final = Struct(">q")

_ONE_BYTE: Final = tuple(bytes((value,)) for value in range(128))
_NAMES_MAX: Final = 2_048
_NAME_BYTES_MAX: Final = 256
# Names by their encoding. They come again with every request, so short ones are remembered; of
# the two encodings only the one with an int16 length begins with a zero.
NAMES: Final[dict[bytes, str]] = {}


def malformed(what: str) -> KafkaError:
    return KafkaError(ErrorCode.invalid_request, what)


def read_varint(data: Buffer, at: int) -> tuple[int, int]:
    """An unsigned varint and where it ends."""
    value = data[at]
    if value < 0x80:
        return value, at + 1
    value &= 0x7F
    for shift in (7, 14, 21, 28):
        at += 1
        byte = data[at]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > 0x7FFF_FFFF:
                raise malformed(f"a length of {value} is past 2147483647")
            return value, at + 1
    raise malformed("a varint is longer than 5 bytes")


def varint(value: int) -> bytes:
    """The unsigned varint of a number."""
    if value < 0x80:
        return _ONE_BYTE[value]
    if value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    if value < 0x20_0000:
        return bytes((value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14))
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def skip_tags(data: Buffer, at: int) -> int:
    """Where a tag section ends, none of whose fields is of interest."""
    if data[at] == 0:
        return at + 1
    count, at = read_varint(data, at)
    end = len(data)
    if count * 2 > end - at:
        raise malformed(f"{count} tagged fields in {end - at} bytes")
    for _ in range(count):
        _, at = read_varint(data, at)
        size, at = read_varint(data, at)
        at += size
        if at > end:
            raise malformed("a tagged field runs past the end")
    return at


def name_of(encoded: bytes, text_at: int) -> str:
    """The text of an encoded string. Where time counts, look into `NAMES` first."""
    name = NAMES.get(encoded)
    if name is None:
        if len(encoded) - text_at > STRING_BYTES_MAX:
            raise malformed(f"a string has more than {STRING_BYTES_MAX} bytes")
        name = str(encoded[text_at:], "utf-8")
        if len(encoded) <= _NAME_BYTES_MAX:
            if len(NAMES) >= _NAMES_MAX:
                NAMES.clear()
            NAMES[encoded] = name
    return name


def read_string(data: Buffer, at: int, flexible: bool) -> tuple[str | None, int]:
    """A nullable string and where it ends."""
    start = at
    if flexible:
        size, at = read_varint(data, at)
        size -= 1
    else:
        size = INT16.unpack_from(data, at)[0]
        at += 2
    if size < 0:
        if size < -1:
            raise malformed(f"a string of {size} bytes")
        return None, at
    end = at + size
    if end > len(data):
        raise malformed(f"a string of {size} bytes where {len(data) - at} are left")
    return name_of(bytes(data[start:end]), at - start), end


def encode_string(text: str | None, flexible: bool) -> bytes:
    """A nullable string as bytes."""
    if text is None:
        return b"\x00" if flexible else b"\xff\xff"
    encoded = text.encode()
    if len(encoded) > STRING_BYTES_MAX:
        raise malformed(f"a string has more than {STRING_BYTES_MAX} bytes")
    return (varint(len(encoded) + 1) if flexible else INT16.pack(len(encoded))) + encoded


def read_count(data: Buffer, at: int, flexible: bool, item_bytes_min: int) -> tuple[int, int]:
    """How many items an array has (-1: it is null), checked against the bytes that are left."""
    if flexible:
        count, at = read_varint(data, at)
        count -= 1
    else:
        count = INT32.unpack_from(data, at)[0]
        at += 4
    if count < -1 or count * item_bytes_min > len(data) - at:
        raise malformed(f"an array of {count} items in {len(data) - at} bytes")
    return count, at


def encode_count(count: int, flexible: bool) -> bytes:
    return varint(count + 1) if flexible else INT32.pack(count)


def text_malformed(message: str) -> KafkaError:
    return malformed(f"{message} ends early, or has text that is not UTF-8")
