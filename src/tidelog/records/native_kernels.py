"""The kernels of `native` with a plain C interface: as an object file, or in this process.

`python -m tidelog.records.native_kernels` writes the object file to standard output. Each
kernel gets a function `int64 name(int64 *words)` around it that takes its arguments out of
the words as `native` has put them there, and leaves the status that numba gives in the first.
"""

import os
import sys
from importlib import import_module
from typing import Any, Final

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.compiler_lock import global_compiler_lock
from numba.core.registry import cpu_target

from tidelog.records.native import KERNELS

_WORD: Final = ir.IntType(64)
_context: Final = cpu_target.target_context


class _Words:
    """Takes arguments out of the words that a function is called with."""

    def __init__(self, builder: Any, words: Any) -> None:
        self._builder = builder
        self._words = words
        self._at = 1

    def word(self) -> Any:
        address = self._builder.gep(self._words, [ir.IntType(32)(self._at)])
        self._at += 1
        return self._builder.load(address, typ=_WORD)

    def value(self, kind: Any) -> Any:
        if isinstance(kind, types.BaseTuple):
            values = [self.value(each) for each in kind.types]
            return _context.make_tuple(self._builder, kind, values)
        if isinstance(kind, types.Array):
            return self._array(kind)
        if kind == types.boolean:
            return self._builder.icmp_signed("!=", self.word(), _WORD(0))
        assert kind == types.int64, kind
        return self.word()

    def _array(self, kind: Any) -> Any:
        builder = self._builder
        array = _context.make_array(kind)(_context, builder)
        array.data = builder.inttoptr(self.word(), array.data.type)
        shape = [self.word() for _ in range(kind.ndim)]
        step = _WORD(_context.get_abi_sizeof(_context.get_data_type(kind.dtype)))
        array.itemsize = step
        array.nitems = _WORD(1)
        strides: list[Any] = []
        for count in reversed(shape):
            strides.insert(0, step)
            step = builder.mul(step, count)
            array.nitems = builder.mul(array.nitems, count)
        array.shape = cgutils.pack_array(builder, shape)
        array.strides = cgutils.pack_array(builder, strides)
        array.meminfo = cgutils.get_null_value(array.meminfo.type)
        array.parent = cgutils.get_null_value(array.parent.type)
        return array._getvalue()


def _add_entry(module: Any, name: str, described: Any) -> None:
    shape = _context.call_conv.get_function_type(described.restype, described.argtypes)
    kernel = ir.Function(module, shape, described.llvm_func_name)
    entry = ir.Function(module, ir.FunctionType(_WORD, [_WORD.as_pointer()]), name)
    builder = ir.IRBuilder(entry.append_basic_block())
    words = _Words(builder, entry.args[0])
    arguments = [words.value(kind) for kind in described.argtypes]
    status, result = _context.call_conv.call_function(
        builder, kernel, described.restype, described.argtypes, arguments
    )
    builder.store(builder.sext(status.code, _WORD), entry.args[0])
    builder.ret(result if described.restype == types.int64 else _WORD(0))


def _library() -> Any:
    """All kernels and the functions around them, optimised together."""
    library = _context.codegen().create_library("native")
    module = _context.create_module("native")
    for name, written_in in KERNELS.items():
        kernel = getattr(import_module(f"tidelog.records.{written_in}"), name)
        (compiled,) = kernel.overloads.values()
        _add_entry(module, name, compiled.fndesc)
        library.add_linking_library(compiled.library)
    library.add_ir_module(module)
    with global_compiler_lock:
        library.finalize()
    return library


def addresses() -> dict[str, int]:
    """Where the functions are in this process; numba keeps them for as long as it runs."""
    library = _library()
    _kept.append(library)
    return {name: library.get_pointer_to_function(name) for name in KERNELS}


_kept: Final[list[Any]] = []


def object_file() -> bytes:
    code: bytes = _context.codegen()._tm.emit_object(_library()._final_module)
    return code


if __name__ == "__main__":
    with os.fdopen(sys.stdout.fileno(), "wb", closefd=False) as output:
        output.write(object_file())
