"""CRC-32C, from the compiled part of its package alone.

The package around it loads a command line and a reader of package metadata, which take
3 MB in every process and are of no use to any.
"""

from collections.abc import Callable
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from typing import Any, Final


def _compiled_part() -> Any:
    package = PathFinder.find_spec("crc32c")
    assert package is not None, "the package crc32c is not installed"
    part = PathFinder.find_spec("_crc32c", package.submodule_search_locations)
    assert part is not None, "the package crc32c has no compiled part"
    assert part.loader is not None, part
    module = module_from_spec(part)
    part.loader.exec_module(module)
    return module


crc32c: Final[Callable[..., int]] = _compiled_part().crc32c
"""The checksum of a buffer, going on from that of what was before it if that is given too."""
