"""Frames that are almost right: valid requests of every API and version served, to clients and
between brokers, then damaged where it hurts. All of it comes from a seed.
"""

from collections.abc import Callable
from random import Random
from typing import Any

from support.messages import CONTROL, SERVED, message, message_types
from tidelog.wire import codec
from tidelog.wire.fetch import read_fetch_request
from tidelog.wire.fetch_client import read_fetch_response
from tidelog.wire.header import read_request_header
from tidelog.wire.produce import read_produce_request
from tidelog.wire.produce_client import read_produce_response

_BYTES = (0, 1, 2, 0x7F, 0x80, 0x81, 0xFE, 0xFF)
_NUMBERS = (0, 1, -1, -2, 127, 128, 255, 256, 32_767, 32_768, 65_535, 2**31 - 1, -(2**31))


def requests(seed: int, each: int) -> list[bytes]:
    """Valid requests without their lengths, `each` of every API and version served."""
    random = Random(seed)
    return [
        codec.write_request(
            kind.api_key, kind.version, random.getrandbits(31), "fuzz", message(random, kind.entity)
        )[4:]
        for kind in message_types((*SERVED, *CONTROL))
        if kind.role == "request"
        for _ in range(each)
    ]


def responses(seed: int, each: int) -> list[tuple[int, int, bytes]]:
    """Valid answers likewise, with their API and version."""
    random = Random(seed)
    return [
        (
            kind.api_key,
            kind.version,
            codec.write_response(
                kind.api_key, kind.version, random.getrandbits(31), message(random, kind.entity)
            )[4:],
        )
        for kind in message_types((*SERVED, *CONTROL))
        if kind.role == "response"
        for _ in range(each)
    ]


def mutated(random: Random, frame: bytes, other: bytes) -> bytes:
    """One to four injuries, mostly one."""
    data = bytearray(frame)
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        random.choice(_INJURIES)(random, data, other)
    return bytes(data)


def _flip(random: Random, data: bytearray, _: bytes) -> None:
    if data:
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)


def _set_byte(random: Random, data: bytearray, _: bytes) -> None:
    if data:
        data[random.randrange(len(data))] = random.choice(_BYTES)


def _set_number(random: Random, data: bytearray, _: bytes) -> None:
    size = random.choice((2, 4, 8))
    at = random.randrange(len(data) + 1)
    number = random.choice(_NUMBERS) & ((1 << (8 * size)) - 1)
    data[at : at + size] = number.to_bytes(size, "big")


def _long_varint(random: Random, data: bytearray, _: bytes) -> None:
    at = random.randrange(len(data) + 1)
    data[at : at + 1] = b"\xff" * random.choice((1, 2, 4, 5, 9)) + bytes((random.choice(_BYTES),))


def _truncate(random: Random, data: bytearray, _: bytes) -> None:
    del data[random.randrange(len(data) + 1) :]


def _append(random: Random, data: bytearray, _: bytes) -> None:
    data += random.randbytes(random.choice((1, 2, 8, 40)))


def _cut_out(random: Random, data: bytearray, _: bytes) -> None:
    at = random.randrange(len(data) + 1)
    del data[at : at + random.choice((1, 2, 4, 16))]


def _repeat(random: Random, data: bytearray, _: bytes) -> None:
    at = random.randrange(len(data) + 1)
    data[at:at] = data[at : at + random.choice((1, 4, 16, 64))] * random.choice((1, 2, 50))


def _splice(random: Random, data: bytearray, other: bytes) -> None:
    data[random.randrange(len(data) + 1) :] = other[random.randrange(len(other) + 1) :]


def _other_version(random: Random, data: bytearray, _: bytes) -> None:
    data[2:4] = random.randrange(-1, 20).to_bytes(2, "big", signed=True)


def _noise(random: Random, data: bytearray, _: bytes) -> None:
    data[4:] = random.randbytes(random.choice((0, 6, 20, 100)))


_INJURIES: tuple[Callable[[Random, bytearray, bytes], None], ...] = (
    *(_flip, _set_byte, _set_number, _long_varint, _truncate, _append),
    *(_cut_out, _repeat, _splice, _other_version, _noise),
)


def serve(frame: bytes) -> Any:
    """What a broker does with a frame, up to the handler. Raises nothing but `KafkaError`."""
    view = memoryview(bytearray(frame))
    header, at = read_request_header(view)
    codec.entity_type(header.api_key, header.version, "request")
    if header.api_key == 0:
        return read_produce_request(view, at, header.version)
    if header.api_key == 1:
        return read_fetch_request(view, at, header.version)
    return codec.read_request(header.api_key, header.version, view, at)


def receive(api_key: int, version: int, frame: bytes) -> Any:
    """What a client does with an answer."""
    if api_key == 0:
        return read_produce_response(memoryview(frame), version)
    if api_key == 1:
        return read_fetch_response(memoryview(frame), version)
    return codec.read_response(api_key, version, frame)
