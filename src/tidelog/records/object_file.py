"""Compiled code out of an object file, put into memory and made ready to be called.

The little of a linker that the code of kernels needs: every section that belongs in memory is
copied into one mapping, addresses are written where the file says so, and the mapping becomes
read-only and executable. Kernels keep no state and call nothing but a few functions that move
bytes. Whatever else a file asks for is refused (`Unsupported`), never guessed at.

    ELF, 64 bits, little-endian, relocatable, for x86-64; relocations with addends:
    64, PC32, PLT32, PC64
"""

import ctypes
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, PAGESIZE, PROT_EXEC, PROT_READ, mmap
from struct import Struct, error
from typing import Final, NamedTuple

MACHINE: Final = "x86_64"
OUTSIDE: Final = frozenset(("memcpy", "memmove", "memset", "memcmp"))

_HEADER: Final = Struct("<16sHHIQQQIHHHHHH")
_SECTION: Final = Struct("<IIQQQQIIQQ")
_SYMBOL: Final = Struct("<IBBHQQ")
_RELOCATION: Final = Struct("<QIIq")
_START: Final = b"\x7fELF\x02\x01\x01"
_RELOCATABLE: Final = 1
_X86_64: Final = 62

_SYMBOLS: Final = 2
_RELOCATIONS: Final = 4
_NO_BITS: Final = 8
_RELOCATIONS_WITHOUT_ADDENDS: Final = 9
_WRITABLE: Final = 1
_IN_MEMORY: Final = 2
_UNDEFINED: Final = 0
_RESERVED: Final = 0xFF00
_GLOBAL_FUNCTION: Final = 0x12

# Kinds of relocations: how many bytes are written, and whether they count from where they are.
_KINDS: Final = {1: (8, False), 2: (4, True), 4: (4, True), 24: (8, True)}


class Unsupported(Exception):
    """What the file asks for, and this does not do."""


class _Section(NamedTuple):
    name: int
    kind: int
    flags: int
    address: int
    start: int
    size: int
    link: int
    info: int
    alignment: int
    entry_size: int


class _Symbol(NamedTuple):
    name: str
    info: int
    section: int
    value: int


class Image:
    """The code of one object file in this process, for as long as it lives."""

    def __init__(self, data: bytes) -> None:
        try:
            self._sections = _sections(data)
            self._symbols = _symbols(data, self._sections)
            self._places, size = _layout(self._sections)
            self._pages = mmap(-1, size, flags=MAP_PRIVATE | MAP_ANONYMOUS)
            self._base = ctypes.addressof(ctypes.c_char.from_buffer(self._pages))
            self._copy(data)
            self._relocate(data)
        except (error, IndexError, ValueError) as problem:
            raise Unsupported(f"not a sound object file: {problem}") from problem
        _make_executable(self._base, size)

    def functions(self) -> dict[str, int]:
        """The addresses of those that are meant to be called."""
        return {
            symbol.name: self._address(symbol)
            for symbol in self._symbols
            if symbol.info == _GLOBAL_FUNCTION and symbol.section in self._places
        }

    def _copy(self, data: bytes) -> None:
        for index, place in self._places.items():
            section = self._sections[index]
            if section.kind != _NO_BITS:
                content = data[section.start : section.start + section.size]
                self._pages[place : place + section.size] = content

    def _relocate(self, data: bytes) -> None:
        for section in self._sections:
            if section.kind == _RELOCATIONS_WITHOUT_ADDENDS:
                raise Unsupported("relocations without addends")
            if section.kind == _RELOCATIONS and section.info in self._places:
                target = self._sections[section.info]
                listed = data[section.start : section.start + section.size]
                for offset, kind, symbol, addend in _RELOCATION.iter_unpack(listed):
                    if offset + 8 > target.size:
                        raise Unsupported(f"a relocation at {offset}, behind its section")
                    place = self._places[section.info] + offset
                    self._write(place, kind, self._address(self._symbols[symbol]) + addend)

    def _write(self, place: int, kind: int, value: int) -> None:
        if kind not in _KINDS:
            raise Unsupported(f"relocation kind {kind}")
        size, is_relative = _KINDS[kind]
        if is_relative:
            value -= self._base + place
            if not -(1 << 8 * size - 1) <= value < 1 << 8 * size - 1:
                raise Unsupported(f"a distance of {value} in {size} bytes")
        written = (value & (1 << 8 * size) - 1).to_bytes(size, "little")
        self._pages[place : place + size] = written

    def _address(self, symbol: _Symbol) -> int:
        if symbol.section in self._places:
            return self._base + self._places[symbol.section] + symbol.value
        if symbol.section != _UNDEFINED or symbol.name not in OUTSIDE:
            raise Unsupported(f"the symbol {symbol.name!r}, which is not in the file")
        outside = getattr(ctypes.CDLL(None), symbol.name)
        return ctypes.cast(outside, ctypes.c_void_p).value or 0


def _sections(data: bytes) -> list[_Section]:
    start, kind, machine, _, _, _, at, _, _, _, _, size, count, _ = _HEADER.unpack_from(data)
    if not start.startswith(_START) or kind != _RELOCATABLE or size != _SECTION.size:
        raise Unsupported("a file of another form")
    if machine != _X86_64:
        raise Unsupported(f"code for machine {machine}")
    return [_Section._make(_SECTION.unpack_from(data, at + size * n)) for n in range(count)]


def _symbols(data: bytes, sections: list[_Section]) -> list[_Symbol]:
    tables = [section for section in sections if section.kind == _SYMBOLS]
    if len(tables) != 1:
        raise Unsupported(f"{len(tables)} tables of symbols")
    names = sections[tables[0].link]
    listed = data[tables[0].start : tables[0].start + tables[0].size]
    found = []
    for name, info, _, section, value, _ in _SYMBOL.iter_unpack(listed):
        start = names.start + name
        text = data[start : data.index(b"\0", start)].decode()
        found.append(_Symbol(name=text, info=info, section=section, value=value))
    return found


def _layout(sections: list[_Section]) -> tuple[dict[int, int], int]:
    """Where each section that belongs in memory is put, by its number; and how much that takes."""
    places: dict[int, int] = {}
    end = 0
    for index, section in enumerate(sections):
        if section.flags & _IN_MEMORY and index < _RESERVED:
            if section.flags & _WRITABLE and section.size:
                raise Unsupported("memory of its own that is written to")
            alignment = max(1, section.alignment)
            if alignment > PAGESIZE:
                raise Unsupported(f"an alignment of {alignment}")
            places[index] = -(-end // alignment) * alignment
            end = places[index] + section.size
    return places, -(-max(1, end) // PAGESIZE) * PAGESIZE


def _make_executable(base: int, size: int) -> None:
    protect = ctypes.CDLL(None, use_errno=True).mprotect
    protect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    if protect(base, size, PROT_READ | PROT_EXEC) != 0:
        raise Unsupported(f"memory that is executed: error {ctypes.get_errno()}")
