"""The folder in which compiled kernels are kept between runs.

What lies in it is run as code, so it must be ours and nobody else may write to it.
"""

import os
import stat


def candidate_folders() -> list[str]:
    """Where kernels may be kept, best first."""
    named = os.environ.get("NUMBA_CACHE_DIR")
    user = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    folders = [named] if named else []
    if os.path.isabs(user):  # a user without a home gets "~" back
        folders.append(f"{user}/tidelog/numba")
    temporary = os.environ.get("TMPDIR") or "/tmp"
    return [*folders, f"{temporary}/tidelog-numba-{os.getuid()}"]


def cache_folder() -> str | None:
    """The first folder that can be written and that nobody else can write."""
    return next((folder for folder in candidate_folders() if _is_usable(folder)), None)


def _is_usable(folder: str) -> bool:
    trial = f"{folder}/{os.getpid()}.trial"
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        with open(trial, "wb"):
            os.unlink(trial)
        found = os.stat(folder)
    except OSError:
        return False
    return found.st_uid == os.getuid() and not found.st_mode & stat.S_IWOTH
