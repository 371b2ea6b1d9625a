"""CRC-32C inside kernels: the processor's own instruction, or tables where it has none.

`crc32c(buffer, start, end)` is what `crc32c.crc32c(buffer[start:end])` is outside of them.
The instruction answers after three cycles but takes a word in every one, so three stretches
are read side by side and their checksums joined. Which one it is follows from the features
numba compiles for, not those the machine has: an instruction the code generator may not use
would end the process.
"""

import platform
from typing import Any, Final

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.registry import cpu_target

from tidelog.records.byte_kernels import load_half_word, load_word
from tidelog.records.kernels import BYTES, helper, intrinsic, kernel

_POLYNOMIAL: Final = 0x82F63B78
_ALL: Final = np.uint64(0xFFFFFFFF)


def instruction() -> str | None:
    """The LLVM name of the instruction that takes in 8 bytes; None where there is none."""
    _, _, features = cpu_target.target_context.codegen().magic_tuple()
    machine = platform.machine()
    if "+crc32" in features.split(",") and machine == "x86_64":
        return "llvm.x86.sse42.crc32.64.64"
    if "+crc" in features.split(",") and machine == "aarch64":
        return "llvm.aarch64.crc32cx"
    return None


INSTRUCTION: Final = instruction()
_ON_ARM: Final = INSTRUCTION == "llvm.aarch64.crc32cx"
_NARROW: Final = {
    32: "llvm.aarch64.crc32cw" if _ON_ARM else "llvm.x86.sse42.crc32.32.32",
    8: "llvm.aarch64.crc32cb" if _ON_ARM else "llvm.x86.sse42.crc32.32.8",
}


def _tables() -> Any:
    tables = np.zeros((8, 256), np.uint64)
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = crc >> 1 ^ (_POLYNOMIAL if crc & 1 else 0)
        tables[0, byte] = crc
    for level in range(1, 8):
        before = tables[level - 1]
        tables[level] = before >> np.uint64(8) ^ tables[0][before & np.uint64(255)]
    return tables


_TABLES: Final = _tables()
_STRETCH: Final = 1024


def _after_zeros() -> Any:
    """What becomes of each byte of a checksum when a stretch of zeros follows."""
    low = np.arange(256, dtype=np.uint64)
    tables = np.stack([low << np.uint64(8 * place) for place in range(4)])
    for _ in range(_STRETCH):
        tables = tables >> np.uint64(8) ^ _TABLES[0][tables & np.uint64(255)]
    return tables


_AFTER_ZEROS: Final = _after_zeros()


@intrinsic
def _crc_of_word(_context: Any, _crc: Any, _word: Any) -> Any:
    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        crc, word = arguments
        wide, narrow = ir.IntType(64), ir.IntType(32)
        if INSTRUCTION == "llvm.aarch64.crc32cx":
            shape = ir.FunctionType(narrow, [narrow, wide])
            step = cgutils.get_or_insert_function(builder.module, shape, INSTRUCTION)
            return builder.zext(builder.call(step, [builder.trunc(crc, narrow), word]), wide)
        shape = ir.FunctionType(wide, [wide, wide])
        step = cgutils.get_or_insert_function(builder.module, shape, INSTRUCTION)
        return builder.call(step, [crc, word])

    return types.uint64(types.uint64, types.uint64), generate


def _narrow_step(bits: int) -> Any:
    """Takes in the low bits of a word: 32 or 8 of them."""

    def step(_context: Any, _crc: Any, _word: Any) -> Any:
        def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            crc, word = arguments
            wide, narrow = ir.IntType(64), ir.IntType(32)
            taken = narrow if _ON_ARM else ir.IntType(bits)
            shape = ir.FunctionType(narrow, [narrow, taken])
            name = _NARROW[bits]
            step = cgutils.get_or_insert_function(builder.module, shape, name)
            crc, word = builder.trunc(crc, narrow), builder.trunc(word, taken)
            return builder.zext(builder.call(step, [crc, word]), wide)

        return types.uint64(types.uint64, types.uint64), generate

    return intrinsic(step)


@helper
def _crc_of_bytes_by_tables(crc: Any, word: Any, count: int) -> Any:
    for _ in range(count):
        crc = crc >> np.uint64(8) ^ _TABLES[0, (crc ^ word) & np.uint64(255)]
        word >>= np.uint64(8)
    return crc


@helper
def _four_by_tables(crc: Any, word: Any) -> Any:
    return _crc_of_bytes_by_tables(crc, word, 4)


@helper
def _one_by_tables(crc: Any, word: Any) -> Any:
    return _crc_of_bytes_by_tables(crc, word, 1)


@helper
def _crc_of_word_by_tables(crc: Any, word: Any) -> Any:
    word ^= crc
    result = np.uint64(0)
    for place in range(8):
        result ^= _TABLES[7 - place, word & np.uint64(255)]
        word >>= np.uint64(8)
    return result


word_step: Final = _crc_of_word_by_tables if INSTRUCTION is None else _crc_of_word
_four_step: Final = _four_by_tables if INSTRUCTION is None else _narrow_step(32)
_byte_step: Final = _one_by_tables if INSTRUCTION is None else _narrow_step(8)


@helper
def _moved(crc: Any) -> Any:
    """A checksum, as it is after another stretch whose own bytes are added separately."""
    result = np.uint64(0)
    for place in range(4):
        result ^= _AFTER_ZEROS[place, crc >> np.uint64(8 * place) & np.uint64(255)]
    return result


@helper
def _crc_of_stretches(crc: Any, buffer: Any, start: int) -> Any:
    second = third = np.uint64(0)
    for position in range(start, start + _STRETCH, 8):
        crc = word_step(crc, load_word(buffer, position))
        second = word_step(second, load_word(buffer, position + _STRETCH))
        third = word_step(third, load_word(buffer, position + 2 * _STRETCH))
    return _moved(_moved(crc) ^ second) ^ third


@kernel(types.uint32(BYTES, types.int64, types.int64))
def crc32c(buffer: Any, start: int, end: int) -> Any:
    crc = _ALL
    position = start
    while position + 3 * _STRETCH <= end:
        crc = _crc_of_stretches(crc, buffer, position)
        position += 3 * _STRETCH
    while position + 32 <= end:
        crc = word_step(crc, load_word(buffer, position))
        crc = word_step(crc, load_word(buffer, position + 8))
        crc = word_step(crc, load_word(buffer, position + 16))
        crc = word_step(crc, load_word(buffer, position + 24))
        position += 32
    while position + 8 <= end:
        crc = word_step(crc, load_word(buffer, position))
        position += 8
    if position + 4 <= end:
        crc = _four_step(crc, load_half_word(buffer, position))
        position += 4
    while position < end:
        crc = _byte_step(crc, np.uint64(buffer[position]))
        position += 1
    return np.uint32(crc ^ _ALL)
