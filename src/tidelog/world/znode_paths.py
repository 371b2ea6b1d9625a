"""Which paths a znode may have: ZooKeeper's rules, so that what works embedded works there too."""

import re
from typing import Final

from tidelog.base.coordination import CoordinationError, Trouble

ROOT: Final = "/"

_FORBIDDEN: Final = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff]")


def check_path(path: str, *, sequence: bool = False) -> None:
    """Raises what a path that cannot be would get from ZooKeeper. Where a sequence number will be
    put behind it, the last name may be empty."""
    if path == ROOT:
        return
    above, *names = (path + "0" if sequence else path).split("/")
    is_wrong = above or not names or any(name in ("", ".", "..") for name in names)
    if is_wrong or _FORBIDDEN.search(path):
        raise CoordinationError(Trouble.bad_arguments, path)


def split_path(path: str) -> tuple[str, str]:
    """The path of the parent, and the name in it."""
    parent, _, name = path.rpartition("/")
    return parent or ROOT, name


def join_path(parent: str, name: str) -> str:
    return f"{parent}/{name}" if parent != ROOT else f"/{name}"
