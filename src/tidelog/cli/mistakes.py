"""Errors that people can do something about, said in one line: what, and what to do."""

import errno
import re
import sys
from collections.abc import Mapping
from typing import Final

_ADVICE: Final[Mapping[int, str]] = {
    errno.ENOENT: "check the name",
    errno.ENOTDIR: "check the name: a part of it is a file",
    errno.EEXIST: "choose another name, or remove it",
    errno.EISDIR: "name a file, not a folder",
    errno.ENOTEMPTY: "choose another folder, or empty it",
    errno.EACCES: "change its permissions, or run as its owner",
    errno.EPERM: "change its permissions, or run as its owner",
    errno.EROFS: "choose a folder that can be written",
    errno.ENOSPC: "free some space, or choose a folder on another disk",
    errno.EDQUOT: "free some space, or choose a folder on another disk",
    errno.EMFILE: "raise the limit of open files (`ulimit -n`)",
    errno.EIO: "the disk may be failing: see the kernel's messages (`dmesg`)",
}
_BYTE: Final = re.compile("[\udc80-\udcff]")
"""What Python makes of a byte of an argument, or of a line, that is no text."""
_FULL: Final = (errno.ENOSPC, errno.EDQUOT)


def explain(error: Exception) -> str | None:
    """One line for a person, or None for an error that is a bug of ours."""
    # Importing these takes longer than to print a usage message, and what was never imported
    # was never raised.
    errors = sys.modules.get("tidelog.base.errors")
    if errors is not None and isinstance(error, errors.BadValue | errors.KafkaError):
        return str(error)
    client_errors = sys.modules.get("tidelog.client.errors")
    if client_errors is not None and isinstance(error, client_errors.Unreachable):
        return str(error)
    if isinstance(error, OSError):
        return _explain_system_error(error)
    if isinstance(error, UnicodeEncodeError) and _BYTE.search(error.object):
        return f"{ascii(error.object)[1:-1]}: must be text in UTF-8"
    return None


def _explain_system_error(error: OSError) -> str | None:
    """Without a file's name nobody could act on it, unless the disk is full: what is printed may
    go into a file too. Or unless nothing is there: only of the current folder that has no name."""
    where = error.filename
    if where is None and error.errno == errno.ENOENT:
        return "the current folder is not there any more: change to another one"
    if where is None:
        if error.errno not in _FULL:
            return None
        where = "what was to be written"
    advice = _ADVICE.get(error.errno or 0)
    return f"{where}: {error.strerror}" + (f"; {advice}" if advice else "")
