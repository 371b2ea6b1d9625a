"""What kernels do with bytes: load words, copy runs, read and write the format's numbers.

Readers give back a value and the position after it, or position -1 where the bytes end
too early or a number is too long: the caller checks.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils

from tidelog.records.kernels import helper, intrinsic


def _address(context: Any, builder: Any, array_type: Any, array: Any, position: Any) -> Any:
    data = context.make_array(array_type)(context, builder, array).data
    return cgutils.pointer_add(builder, data, position)


def _loader(bits: int) -> Any:
    def load(_context: Any, buffer: Any, _position: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            pointer = _address(context, builder, signature.args[0], *arguments)
            word = ir.IntType(bits)
            value = builder.load(builder.bitcast(pointer, word.as_pointer()), align=1, typ=word)
            return value if bits == 64 else builder.zext(value, ir.IntType(64))

        return types.uint64(buffer, types.int64), generate

    return intrinsic(load)


# Eight or four bytes as a little-endian number, wherever they start.
load_word = _loader(64)
load_half_word = _loader(32)


@intrinsic
def copy_bytes(_context: Any, target: Any, _to: Any, source: Any, _start: Any, _size: Any) -> Any:
    """target[to : to + size] = source[start : start + size]"""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        target, to, source, start, size = arguments
        into = _address(context, builder, signature.args[0], target, to)
        taken = _address(context, builder, signature.args[2], source, start)
        cgutils.raw_memcpy(builder, into, taken, size, 1)
        return context.get_dummy_value()

    number = types.int64
    return types.void(target, number, source, number, number), generate


@helper
def read_int32(data: Any, position: int) -> Any:
    result = np.uint32(0)
    for place in range(4):
        result = result << np.uint32(8) | np.uint32(data[position + place])
    return np.int64(np.int32(result))


@helper
def read_int64(data: Any, position: int) -> Any:
    result = np.uint64(0)
    for place in range(8):
        result = result << np.uint64(8) | np.uint64(data[position + place])
    return np.int64(result)


@helper
def _read_long_varint(data: Any, position: int, end: int, bytes_max: int) -> Any:
    result = np.uint64(0)
    for place in range(bytes_max):
        if position >= end:
            return result, -1
        byte = np.uint64(data[position])
        position += 1
        result |= (byte & np.uint64(0x7F)) << np.uint64(7 * place)
        if byte < np.uint64(0x80):
            return result, position
    return result, -1


@helper
def read_varint(data: Any, position: int, end: int) -> Any:
    if position < end and data[position] < 0x80:
        short = np.int64(data[position])
        return short >> 1 ^ -(short & 1), position + 1
    zigzag, position = _read_long_varint(data, position, end, 5)
    zigzag &= np.uint64(0xFFFFFFFF)
    return np.int64(zigzag >> np.uint64(1)) ^ -np.int64(zigzag & np.uint64(1)), position


@helper
def read_varlong(data: Any, position: int, end: int) -> Any:
    zigzag, position = _read_long_varint(data, position, end, 10)
    return np.int64(zigzag >> np.uint64(1)) ^ -np.int64(zigzag & np.uint64(1)), position


@helper
def zigzag(value: int) -> Any:
    return np.uint64(value << 1 ^ value >> 63)


@helper
def varint_size(value: int) -> Any:
    rest = zigzag(value)
    size = 1
    while rest > np.uint64(0x7F):
        rest >>= np.uint64(7)
        size += 1
    return size


@helper
def write_varint(data: Any, position: int, value: int) -> Any:
    rest = zigzag(value)
    while rest > np.uint64(0x7F):
        data[position] = np.uint8(rest & np.uint64(0x7F) | np.uint64(0x80))
        rest >>= np.uint64(7)
        position += 1
    data[position] = np.uint8(rest)
    return position + 1


@helper
def bit_is_set(bitmap: Any, index: int) -> Any:
    return bitmap[index >> 3] >> (index & 7) & 1


@helper
def clear_bit(bitmap: Any, index: int) -> None:
    bitmap[index >> 3] &= np.uint8(0xFF ^ 1 << (index & 7))
