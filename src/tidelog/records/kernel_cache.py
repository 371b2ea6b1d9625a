"""Where compiled kernels are kept between runs, one file per kernel.

numba's own cache raises at import when its folder cannot be written or a file in it is
damaged, and does not notice when a helper in another file changes. This one never raises:
a file carries a digest of itself, its name a digest of everything the kernel was made from,
and whatever cannot be read or written costs a compilation, nothing more.
"""

import os
import pickle
import sys
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from types import ModuleType
from typing import Any

import numba
import numpy as np
from numba.core.caching import _Cache
from numba.core.compiler import CompileResult
from numba.core.dispatcher import Dispatcher
from numba.core.serialize import dumps
from numba.extending import _Intrinsic

DIGEST_SIZE = 32


def made_from(function: Any) -> bytes:
    """A digest of what is compiled into a kernel: its code, and all that it names, wherever that
    is written: helpers, constants, tables."""
    digest = sha256()
    seen: set[Any] = set()
    pending = [function]
    while pending:
        code, names = pending[-1].__code__, pending.pop().__globals__
        if code in seen:
            continue
        seen.add(code)
        digest.update(code.co_code + repr((code.co_consts, code.co_names)).encode())
        for value in (names[name] for name in code.co_names if name in names):
            if isinstance(value, Dispatcher):
                pending.append(value.py_func)
            else:
                digest.update(_described(value))
    return digest.digest()


def _described(value: Any) -> bytes:
    if isinstance(value, np.ndarray):
        return value.tobytes()
    if isinstance(value, _Intrinsic):
        return Path(value._defn.__code__.co_filename).read_bytes()
    if isinstance(value, ModuleType):
        is_ours = value.__name__.partition(".")[0] == __name__.partition(".")[0]
        return Path(value.__file__ or "").read_bytes() if is_ours else value.__name__.encode()
    if isinstance(value, type):
        return repr((value, getattr(value, "_fields", ()))).encode()
    return repr(value).encode()


class KernelCache(_Cache):  # type: ignore[misc]  # numba has no type hints
    """What numba asks for the compiled form of one function."""

    def __init__(self, function: Any, folder: str, options: Mapping[str, bool]) -> None:
        self._name = f"{function.__module__}.{function.__qualname__}"
        self._made_from = made_from(function)
        self._folder = Path(folder)
        self._options = dict(options)
        self.loaded = False

    @property
    def cache_path(self) -> str:
        return str(self._folder)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        target_context.refresh()
        try:
            content = self._path(sig, target_context.codegen()).read_bytes()
            payload = content[DIGEST_SIZE:]
            if sha256(payload).digest() != content[:DIGEST_SIZE]:
                return None
            result = CompileResult._rebuild(target_context, *pickle.loads(payload))
        except (OSError, pickle.PickleError):
            return None
        self.loaded = True
        return result

    def save_overload(self, sig: Any, data: Any) -> None:
        if data.lifted or data.library.has_dynamic_globals:
            return  # it holds addresses that mean nothing in another process
        payload = dumps(data._reduce())
        path = self._path(sig, data.codegen)
        unfinished = path.with_suffix(f".{os.getpid()}")
        try:
            unfinished.write_bytes(sha256(payload).digest() + payload)
            unfinished.replace(path)
        except OSError:
            # A full disk: the next process compiles again, this one has its kernel.
            unfinished.unlink(missing_ok=True)

    def _path(self, sig: Any, codegen: Any) -> Path:
        versions = numba.__version__, sys.version_info[:2]
        circumstances = versions, str(sig), codegen.magic_tuple(), self._options
        digest = sha256(repr(circumstances).encode() + self._made_from)
        return self._folder / f"{self._name}.{digest.hexdigest()[:16]}.kernel"

    def enable(self) -> None:
        """Asked for by numba; this cache is never off."""

    def disable(self) -> None:
        """Asked for by numba; this cache is never off."""

    def flush(self) -> None:
        for path in self._folder.glob(f"{self._name}.*.kernel"):
            path.unlink(missing_ok=True)
