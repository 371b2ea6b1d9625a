"""The modules that carry a broker's data, as machine code instead of bytecode.

`tidelog kernels warm` has mypyc compile them where it finds a C compiler (`compiling`), and keeps
the result in the cache on disk. `tidelog server` takes it from there if it was made from exactly
these sources, by exactly this Python, and is undamaged; otherwise it runs the sources themselves,
which do the same for a quarter more CPU, and its log says why. No other command uses compiled
modules.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from hashlib import sha256
from importlib import import_module
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec, PathFinder
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Final

from tidelog.records.checksum import crc32c
from tidelog.records.kernel_folder import cache_folder

SWITCH: Final = "TIDELOG_COMPILED"
"""An environment variable; with `no` the sources are run."""
MANIFEST: Final = "manifest"
GROUP: Final = "tidelog_broker"
LIBRARY: Final = f"{GROUP}__mypyc"
"""The module that has the code of all the others."""
_IN: Final = {
    "tidelog": (
        "broker fetch_throttle fetcher fetchers followed following in_sync partition partitions "
        "replication_throttles slices slow_appends verification write_gauge"
    ),
    "tidelog.cluster": "metadata",
    "tidelog.handlers": (
        "api connection fetch fetching found gathering local_partitions produce produce_together "
        "producing ranges straight_fetch together waiting wide_fetch wide_produce"
    ),
    "tidelog.log": (
        "aborted chunks epoch_check epoch_notes epochs files flush followed_batches index "
        "joint_append log_files partition_log pending_append producers "
        "replicas retention_clock roll scan segment segment_reader segments truncation "
        "txn_index unverified"
    ),
    "tidelog.peers": "incoming link",
    "tidelog.records": "batch fields joiner rules",
    "tidelog.replication": "isr remote replica",
    "tidelog.serving": "acks counters fetch_sessions low_waiters waiting",
    "tidelog.wire": (
        "fetch fetch_client fetch_in_steps follower_fetch frames header leader_tags one_fetch "
        "produce produce_answer topics values"
    ),
    "tidelog.world.real": "clock connection disk handed loop nearby network",
}
"""Folders, and what is compiled of them."""
MODULES: Final = tuple(
    f"{folder}.{name}" for folder, names in _IN.items() for name in names.split()
)
PACKAGE: Final = Path(__file__).parents[1]
_ABOVE: Final = ("cli", "spark", "trials", "world/sim")
"""Folders that nothing which is compiled imports."""
_HOW: Final = tuple(PACKAGE / "cli" / name for name in ("compiled.py", "compiling.py"))


class Unusable(Exception):
    """Why the sources are run."""


class CompiledModules:
    def __init__(self, files: Mapping[str, str]) -> None:
        self._files = files

    def find_spec(
        self, fullname: str, _path: Sequence[str] | None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        file = self._files.get(fullname)
        return None if file is None else spec_from_file_location(fullname, file)


def use_compiled() -> str | None:
    """Has modules imported in their compiled form from now on; or tells why they are not."""
    try:
        if os.environ.get(SWITCH) == "no":
            raise Unusable(f"{SWITCH}=no")
        imported = [name for name in MODULES if name in sys.modules]
        if imported:
            raise Unusable(f"{imported[0]} is imported already")
        cache = cache_folder()
        if cache is None:
            raise Unusable("there is no folder for a cache")
        folder = folder_in(cache, made_from())
        check(folder)
        _load(folder)
    except (Unusable, OSError) as why:
        return str(why)
    return None


def _load(folder: Path) -> None:
    """All code comes with the library, so what can go wrong on another machine does so here."""
    finder = CompiledModules(files_in(folder))
    sys.meta_path.insert(0, finder)
    try:
        import_module(LIBRARY)
    except ImportError as why:
        sys.meta_path.remove(finder)
        raise Unusable(f"what was compiled cannot be loaded: {why}") from why


def folder_in(cache: str, origin: str) -> Path:
    return Path(cache) / f"broker-{origin}"


def made_from() -> str:
    """A digest of all that the code depends on. Constants of other modules are compiled in, so
    these count too."""
    digest = sha256(f"{sys.version} {_version_of_kio()}".encode())
    for path in [*sources(), *_HOW]:
        digest.update(str(path.relative_to(PACKAGE)).encode() + b"\0")
        digest.update(path.read_bytes() + b"\0")
    return digest.hexdigest()[:32]


def _version_of_kio() -> str:
    """`importlib.metadata` would tell, and takes longer to import than all the rest."""
    found = PathFinder.find_spec("kio")
    if found is None or found.origin is None:
        raise Unusable("kio is not installed")
    names = os.listdir(Path(found.origin).parents[1])
    return " ".join(sorted(name for name in names if name.startswith("kio-")))


def sources() -> list[Path]:
    folders = tuple(PACKAGE / name for name in _ABOVE)
    found: list[Path] = []
    for where, below, names in os.walk(PACKAGE):
        here = Path(where)
        below[:] = [name for name in below if here / name not in folders]
        found += [here / name for name in names if name.endswith(".py")]
    return sorted(found)


def files_in(folder: Path) -> dict[str, str]:
    """Where each module's file is, and that of what they share."""
    suffix = EXTENSION_SUFFIXES[0]
    names = [LIBRARY, *MODULES]
    return {name: str(folder / (name.replace(".", "/") + suffix)) for name in names}


def described(folder: Path) -> str:
    """A line for each file: its checksum, its size, its name."""
    lines = []
    for path in files_in(folder).values():
        content = Path(path).read_bytes()
        name = Path(path).relative_to(folder).as_posix()
        lines.append(f"{crc32c(content):08x} {len(content)} {name}\n")
    return "".join(lines)


def check(folder: Path) -> None:
    try:
        expected = (folder / MANIFEST).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise Unusable("nothing was compiled from these sources (tidelog kernels warm)") from None
    try:
        is_sound = described(folder) == expected
    except FileNotFoundError:
        is_sound = False
    if not is_sound:
        raise Unusable(f"what was compiled is damaged: delete {folder}, then tidelog kernels warm")
