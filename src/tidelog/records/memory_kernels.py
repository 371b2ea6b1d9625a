"""Raw memory inside kernels: the fixed-size numbers of a header, and hints to the cache.

Loads and stores are big-endian and need no alignment. None of them checks a bound: the
caller has. `prefetch` only asks for a cache line, so its address may be anything.
"""

from typing import Any, cast

import numba
from llvmlite import ir
from numba import types
from numba.core import cgutils

from tidelog.records.kernels import OPTIONS, Function, intrinsic

_BYTE = ir.IntType(8)
_INT32 = ir.IntType(32)


def inlined(function: Function) -> Function:
    """As `helper`, for what runs once a batch or a record: a call would copy all there is to
    know of every array it is given."""
    return cast(Function, numba.njit(**OPTIONS, forceinline=True)(function))


def _address(context: Any, builder: Any, array_type: Any, array: Any, position: Any) -> Any:
    data = context.make_array(array_type)(context, builder, array).data
    return builder.gep(builder.bitcast(data, _BYTE.as_pointer()), [position])


def _loader(bits: int) -> Any:
    def load(_context: Any, buffer: Any, _position: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            word = ir.IntType(bits)
            address = _address(context, builder, signature.args[0], *arguments)
            value = builder.load(builder.bitcast(address, word.as_pointer()), align=1, typ=word)
            value = builder.bswap(value)
            return value if bits == 64 else builder.sext(value, ir.IntType(64))

        return types.int64(buffer, types.int64), generate

    return intrinsic(load)


def _storer(bits: int) -> Any:
    def store(_context: Any, buffer: Any, _position: Any, _value: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            word = ir.IntType(bits)
            array, position, value = arguments
            address = _address(context, builder, signature.args[0], array, position)
            value = value if bits == 64 else builder.trunc(value, word)
            builder.store(
                builder.bswap(value), builder.bitcast(address, word.as_pointer()), align=1
            )
            return context.get_dummy_value()

        return types.void(buffer, types.int64, types.int64), generate

    return intrinsic(store)


load_int16 = _loader(16)
load_int32 = _loader(32)
load_int64 = _loader(64)
store_int16 = _storer(16)
store_int32 = _storer(32)
store_int64 = _storer(64)


@intrinsic
def prefetch(_context: Any, array: Any, _position: Any) -> Any:
    """Asks for the cache line `position` bytes into an array, to be written to."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        address = _address(context, builder, signature.args[0], *arguments)
        shape = ir.FunctionType(ir.VoidType(), [_BYTE.as_pointer(), _INT32, _INT32, _INT32])
        name = "llvm.prefetch.p0"
        hint = cgutils.get_or_insert_function(builder.module, shape, name)
        builder.call(hint, [address, _INT32(1), _INT32(3), _INT32(1)])
        return context.get_dummy_value()

    return types.void(array, types.int64), generate
