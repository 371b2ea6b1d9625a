"""Compiled loops: how they are declared, and what they all need.

`@kernel(signature)` compiles a function for exactly those types when its module is
imported, or loads it from the cache on disk; it runs without the interpreter lock. `@helper`
marks a function that kernels call and that is compiled into them. Nothing checks bounds at
run time, so a kernel checks every length it reads before it uses it; and none allocates, so
that arrays need no counting of references (four times the speed). Never imported by the
broker process.
"""

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Any, TypeVar, cast

import numba
import numba.extending
from numba import types

from tidelog.records.kernel_cache import KernelCache
from tidelog.records.kernel_folder import cache_folder

Function = TypeVar("Function", bound=Callable[..., Any])

BYTES = types.Array(types.uint8, 1, "C", readonly=True)
"""Any buffer, writable or not, as np.frombuffer(data, np.uint8) gives it."""
BYTES_OUT = types.Array(types.uint8, 1, "C")
INT32S_OUT = types.Array(types.int32, 1, "C")
INT64S = types.Array(types.int64, 1, "C", readonly=True)
INT64S_OUT = types.Array(types.int64, 1, "C")
TABLE = types.Array(types.int64, 2, "C")


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """How a kernel came to be in this process."""

    name: str
    seconds: float
    from_cache: bool


OPTIONS = {"nogil": True, "fastmath": False, "boundscheck": False, "_nrt": False}
FOLDER = cache_folder()
"""None: no folder can be written, every process compiles for itself."""
compiled: list[Compiled] = []


def kernel(signature: Any) -> Callable[[Function], Function]:
    def declare(function: Function) -> Function:
        started = perf_counter()
        dispatcher = _declare(function)
        cache = KernelCache(function, FOLDER, OPTIONS) if FOLDER else None
        if cache:
            dispatcher._cache = cache
        dispatcher.compile(signature)
        dispatcher.disable_compile()
        compiled.append(
            Compiled(
                name=f"{function.__module__}.{function.__qualname__}",
                seconds=perf_counter() - started,
                from_cache=cache is not None and cache.loaded,
            )
        )
        return cast(Function, dispatcher)

    return declare


def helper(function: Function) -> Function:
    return cast(Function, _declare(function))


def intrinsic(function: Callable[..., Any]) -> Callable[..., Any]:
    """Marks a function that writes LLVM instructions for the kernel that calls it."""
    return cast(Callable[..., Any], numba.extending.intrinsic(function))


def _declare(function: Callable[..., Any]) -> Any:
    return numba.njit(**OPTIONS)(function)
