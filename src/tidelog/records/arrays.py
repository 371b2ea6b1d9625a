"""Memory that kernels work in, without numpy: numbers, tables, and large pieces of zeros.

All of them are buffers that index like lists. Large ones are mapped, so that what nobody has
touched takes no memory.
"""

from array import array
from mmap import MADV_DONTNEED, MADV_HUGEPAGE, MAP_ANONYMOUS, MAP_PRIVATE, mmap
from typing import Any, Final, TypeAlias

Int64s: TypeAlias = "array[int]"
Table: TypeAlias = "memoryview[Any]"
"""Numbers in rows."""

_HUGE_PAGE: Final = 2 << 20


def numbers(*values: int) -> Int64s:
    return array("q", values)


def zeros(count: int) -> Int64s:
    return array("q", bytes(8 * count))


def table_of(rows: int, *columns: int) -> Table:
    """Numbers that are all -1."""
    size = 8 * rows
    for count in columns:
        size *= count
    return memoryview(bytearray(b"\xff") * size).cast("q", (rows, *columns))


def rows_of(rows: int, columns: int) -> Table:
    """Numbers that take memory once they are written."""
    return mapped(8 * rows * columns).cast("q", (rows, columns))


def mapped(size: int) -> "memoryview[int]":
    """So many bytes of zeros, at least one; none takes memory before it is touched."""
    pages = mmap(-1, max(1, size), flags=MAP_PRIVATE | MAP_ANONYMOUS)
    if size >= 2 * _HUGE_PAGE:
        pages.madvise(MADV_HUGEPAGE)
    return memoryview(pages)


def forget(view: "memoryview[int]", start: int, end: int) -> None:
    """Gives back the memory of that range of bytes, which then reads as zeros: whole pages of it,
    from the one that `start` begins."""
    pages = view.obj
    assert isinstance(pages, mmap)
    pages.madvise(MADV_DONTNEED, start, end - start)
