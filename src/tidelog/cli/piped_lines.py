"""Lines of a pipe or a file, for whoever has something else to do while none comes."""

from collections.abc import Iterator
from io import BufferedIOBase, UnsupportedOperation
from select import select
from typing import Final

_WAIT_SECONDS: Final = 0.1
_READ_BYTES: Final = 1 << 16


def piped_lines(stream: BufferedIOBase) -> Iterator[bytes | None]:
    """Each without its newline; None whenever a tenth of a second has passed without more."""
    begun: list[bytes] = []
    while True:
        if not _has_more(stream):
            yield None
            continue
        data = stream.read1(_READ_BYTES)
        if not data:
            break
        first, *others = data.split(b"\n")
        begun.append(first)
        if others:
            yield b"".join(begun)
            yield from others[:-1]
            begun = others[-1:]
    if last := b"".join(begun):
        yield last


def _has_more(stream: BufferedIOBase) -> bool:
    """Or has ended. What has no descriptor never keeps anybody waiting."""
    try:
        return bool(select([stream], [], [], _WAIT_SECONDS)[0])
    except UnsupportedOperation:
        return True
