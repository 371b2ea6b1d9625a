"""Kernels as a process without numba calls them: by address, with plain memory.

A `Kernel` takes numbers, buffers, tuples of those, and lists of words that are ready, as its
declaration in `..._kernels.py` says, and answers with a number. It runs without the interpreter
lock. What is handed to the code is one array of 64-bit words: a number is a word, a buffer its
address and its shape, a tuple what is in it. Where the code comes from is `native_code`'s business.
"""

import ctypes
from collections.abc import Mapping
from typing import Any, Final

from tidelog.records.native_code import find_code, kept_code

KERNELS: Final[Mapping[str, str]] = {
    "choose_slots": "routing_kernels",
    "clean_batches": "clean_kernels",
    "close_indexer": "batch_kernels",
    "copy_kept": "clean_kernels",
    "count_keyless": "inspect_kernels",
    "fill": "decode_kernel",
    "fill_headers": "decode_kernel",
    "find_rows": "join_kernels",
    "find_time": "inspect_kernels",
    "join_batches": "join_kernels",
    "judge_records": "clean_kernels",
    "map_batches": "map_kernels",
    "map_records": "map_kernels",
    "move_keys": "key_kernels",
    "move_producers": "producer_kernels",
    "note_one_batch": "batch_kernels",
    "order_rows": "routing_kernels",
    "scan_batches": "scan_kernels",
    "survey": "decode_kernel",
    "walk_good": "walk_kernels",
    "write_records": "encode_kernel",
}
"""The module that each is written in."""

_SIMPLE: Final = 0
_NOTHING: Final = (0, 0, 0)
_BEFORE: Final = len(_NOTHING)
"""Words before those of the other arguments: the status, and the first buffer."""
_Entry = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)


class _Buffer(ctypes.Structure):
    """Py_buffer."""

    _fields_ = (
        ("address", ctypes.c_void_p),
        ("owner", ctypes.py_object),
        ("size", ctypes.c_ssize_t),
        ("item_size", ctypes.c_ssize_t),
        ("is_readonly", ctypes.c_int),
        ("dimensions", ctypes.c_int),
        ("format", ctypes.c_char_p),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("suboffsets", ctypes.c_void_p),
        ("internal", ctypes.c_void_p),
    )


_take_buffer = ctypes.pythonapi.PyObject_GetBuffer
_take_buffer.argtypes = (ctypes.py_object, ctypes.POINTER(_Buffer), ctypes.c_int)
_give_back = ctypes.pythonapi.PyBuffer_Release
_give_back.argtypes = (ctypes.POINTER(_Buffer),)
_give_back.restype = None


def address_of(buffer: Any) -> int:
    """Where its bytes are, for as long as somebody holds it and it is not resized."""
    found = _Buffer()
    _take_buffer(buffer, ctypes.byref(found), _SIMPLE)
    address = found.address or 0
    _give_back(ctypes.byref(found))
    return address


def words_of(arguments: tuple[Any, ...]) -> list[int]:
    words: list[int] = []
    for argument in arguments:
        if isinstance(argument, int):
            words.append(argument)
        elif isinstance(argument, list):
            words += argument
        elif isinstance(argument, tuple):
            words += words_of(argument)
        else:
            words.append(address_of(argument))
            words += memoryview(argument).shape or ()
    return words


class Code:
    """The code of all kernels, once it has been found."""

    entries: Mapping[str, int] | None = None

    def find(self) -> Mapping[str, int]:
        if self.entries is None:
            self.entries = find_code(KERNELS)
        return self.entries

    def is_at_hand(self) -> bool:
        """Whether it is in the cache on disk, so that nobody has to wait for numba."""
        if self.entries is None:
            self.entries = kept_code(KERNELS)
        return self.entries is not None


code: Final = Code()


class Call:
    """A kernel with all of its arguments but the first, a buffer of bytes: finding out where they
    are takes longer than running over a short buffer."""

    def __init__(self, name: str, arguments: tuple[Any, ...]) -> None:
        words = words_of(arguments)
        self._name = name
        self._held = arguments
        self._memory = (ctypes.c_int64 * (len(words) + _BEFORE))(*_NOTHING, *words)
        self._address = ctypes.addressof(self._memory)
        self._entry = _Entry(code.find()[name])

    def __call__(self, buffer: Any) -> int:
        memory = self._memory
        memory[1] = address_of(buffer)
        memory[2] = len(buffer)
        result: int = self._entry(self._address)
        assert memory[0] == 0, f"{self._name} ended with status {memory[0]}"
        return result

    def on_all_memory(self) -> int:
        """With a first buffer that begins at address 0: positions in it are addresses."""
        result: int = self._entry(self._address)
        assert self._memory[0] == 0, f"{self._name} ended with status {self._memory[0]}"
        return result


class Kernel:
    def __init__(self, name: str) -> None:
        assert name in KERNELS, name
        self._name = name

    def __call__(self, *arguments: Any) -> int:
        words = words_of(arguments)
        memory = (ctypes.c_int64 * (len(words) + 1))(0, *words)
        result: int = _Entry(code.find()[self._name])(ctypes.addressof(memory))
        assert memory[0] == 0, f"{self._name} ended with status {memory[0]}"
        return result

    def prepared(self, *arguments: Any) -> Call:
        return Call(self._name, arguments)


choose_slots: Final = Kernel("choose_slots")
clean_batches: Final = Kernel("clean_batches")
close_indexer: Final = Kernel("close_indexer")
copy_kept: Final = Kernel("copy_kept")
count_keyless: Final = Kernel("count_keyless")
fill: Final = Kernel("fill")
fill_headers: Final = Kernel("fill_headers")
find_rows: Final = Kernel("find_rows")
find_time: Final = Kernel("find_time")
join_batches: Final = Kernel("join_batches")
judge_records: Final = Kernel("judge_records")
map_batches: Final = Kernel("map_batches")
map_records: Final = Kernel("map_records")
move_keys: Final = Kernel("move_keys")
move_producers: Final = Kernel("move_producers")
note_one_batch: Final = Kernel("note_one_batch")
order_rows: Final = Kernel("order_rows")
scan_batches: Final = Kernel("scan_batches")
survey: Final = Kernel("survey")
walk_good: Final = Kernel("walk_good")
write_records: Final = Kernel("write_records")
