"""Where the code of kernels comes from: a file in the cache, or numba.

numba compiles all kernels into one object file, in a process that ends; others only map that
file (`object_file`), which takes a millisecond and no memory to speak of, where numba with its
compiler takes 150 MB. A file says in full what it was made from: the sources, the
versions, the processor. If any of that is different, or the file is damaged, it is made again.
Where it cannot be mapped, on another kind of processor for one, numba compiles in this process
after all. That is decided here, and said on standard error.
"""

import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from importlib.machinery import PathFinder
from typing import Final

from tidelog.base import ids
from tidelog.records.checksum import crc32c
from tidelog.records.kernel_folder import cache_folder
from tidelog.records.object_file import MACHINE, Image, Unsupported

KEPT_MAX: Final = 8
"""Files of other sources may be in use, but not for ever."""
_LENGTH_BYTES: Final = 8
_CRC_BYTES: Final = 4
_PROCESSOR: Final = (
    "vendor_id",
    "cpu family",
    "model",
    "stepping",
    "flags",
    "Features",
    "CPU",
)
"""How the lines of /proc/cpuinfo begin that tell processors apart."""

_images: Final[list[Image]] = []
"""Code must stay in memory once somebody may call it."""


def find_code(kernels: Mapping[str, str]) -> dict[str, int]:
    """The address of every kernel."""
    try:
        return _mapped(_object_file(), kernels)
    except (OSError, Unsupported) as why:
        print(f"kernels are compiled in this process: {why}", file=sys.stderr)
        return compiled_here()


def kept_code(kernels: Mapping[str, str]) -> dict[str, int] | None:
    """The same, if it is in the cache; nothing is compiled."""
    folder = cache_folder()
    if folder is None or os.uname().machine != MACHINE:
        return None
    try:
        origin = made_from()
        found = read_kept(path_in(folder, origin), origin)
        return None if found is None else _mapped(found, kernels)
    except (OSError, Unsupported):
        return None


def _mapped(data: bytes, kernels: Mapping[str, str]) -> dict[str, int]:
    image = Image(data)
    functions = image.functions()
    if not kernels.keys() <= functions.keys():
        raise Unsupported("not all kernels are in the file")
    _images.append(image)
    return functions


def compiled_here() -> dict[str, int]:
    # Imported here: it loads numba.
    from tidelog.records.native_kernels import addresses

    return addresses()


def made_from() -> bytes:
    """All that the code depends on. Raises `OSError` if that cannot be told."""
    here = os.path.dirname(__file__)
    names = sorted(name for name in os.listdir(here) if name.endswith(".py"))
    parts = [_read(ids.__file__), *(name.encode() + _read(f"{here}/{name}") for name in names)]
    for package in ("numba", "llvmlite"):
        spec = PathFinder.find_spec(package)
        if spec is None or spec.origin is None:
            raise FileNotFoundError(f"{package} is not installed")
        parts.append(_read(f"{os.path.dirname(spec.origin)}/_version.py"))
    with open("/proc/cpuinfo", encoding="utf-8") as lines:
        processors = sorted({line for line in lines if line.startswith(_PROCESSOR)})
    parts.append("".join(processors).encode())
    settings = sorted(item for item in os.environ.items() if item[0].startswith("NUMBA_"))
    parts.append(repr([item for item in settings if item[0] != "NUMBA_CACHE_DIR"]).encode())
    return b"\0".join(parts)


def _object_file() -> bytes:
    if os.uname().machine != MACHINE:
        raise Unsupported(f"the machine is {os.uname().machine}, not {MACHINE}")
    origin = made_from()
    folder = cache_folder()
    if folder is None:
        return _build()
    path = path_in(folder, origin)
    found = read_kept(path, origin)
    if found is None:
        # Imported here: hardly anybody has to wait for it.
        from fcntl import LOCK_EX, flock

        with open(f"{folder}/native.lock", "w") as lock:
            flock(lock, LOCK_EX)
            found = read_kept(path, origin)
            if found is None:
                found = _build()
                keep(path, origin, found)
                _forget_old(folder)
    return found


def path_in(folder: str, origin: bytes) -> str:
    """Each has a file of its own: several checkouts may share a cache."""
    return f"{folder}/native-{crc32c(origin):08x}.kernels"


def _forget_old(folder: str) -> None:
    names = [name for name in os.listdir(folder) if name.startswith("native")]
    paths = [f"{folder}/{name}" for name in names if name.endswith(".kernels")]
    for path in sorted(paths, key=os.path.getmtime)[:-KEPT_MAX]:
        os.unlink(path)


def read_kept(path: str, origin: bytes) -> bytes | None:
    """The object file in `path`, if it is undamaged and made from `origin`."""
    try:
        content = _read(path)
    except OSError:
        return None
    rest = memoryview(content)[_CRC_BYTES:]
    if crc32c(rest) != int.from_bytes(content[:_CRC_BYTES], "big"):
        return None
    length = int.from_bytes(rest[:_LENGTH_BYTES], "big")
    if rest[_LENGTH_BYTES : _LENGTH_BYTES + length] != origin:
        return None
    with suppress(OSError):
        # It was used now: others are forgotten before it.
        os.utime(path)
    return bytes(rest[_LENGTH_BYTES + length :])


def keep(path: str, origin: bytes, code: bytes) -> None:
    rest = len(origin).to_bytes(_LENGTH_BYTES, "big") + origin + code
    unfinished = f"{path}.{os.getpid()}"
    try:
        with open(unfinished, "wb") as file:
            file.write(crc32c(rest).to_bytes(_CRC_BYTES, "big") + rest)
        os.replace(unfinished, path)
    except OSError as why:
        # A full disk: the next process compiles again, this one has its code.
        print(f"kernels cannot be kept: {why}", file=sys.stderr)
        if os.path.exists(unfinished):
            os.unlink(unfinished)


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _build() -> bytes:
    # Imported here: hardly anybody has to wait for it.
    import subprocess

    command = [sys.executable, "-P", "-m", "tidelog.records.native_kernels"]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=False)
    if done.returncode != 0:
        raise Unsupported(f"numba ended with code {done.returncode}")
    return done.stdout
