"""The session of the process that had this log dir before: noted while it lives, closed by the
next one. Whoever holds the log dir's `.lock` knows that its predecessor is dead, and need
not wait for the predecessor's session to end by its timeout, guard or no guard.

`.zookeeper_session` is JSON, readable by its owner only: a session's password lets anyone end it.
It names the folder it was written in (its inode), because a copied log dir is no proof that the
broker it was copied from is dead.
"""

import json
import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tidelog.world.real.guard import close_session

FILE: Final = ".zookeeper_session"
_VERSION: Final = 1

_log = logging.getLogger("tidelog.guard")


@dataclass(frozen=True, slots=True, kw_only=True)
class PastSession:
    session_id: int
    password: bytes
    folder_inode: int


def close_previous(folder: str, servers: Sequence[tuple[str, int]], within_s: float = 1.0) -> bool:
    """Closes the session noted in `folder`, whose `.lock` the caller holds. Waits, so not for the
    loop; to be done before `note_session` and before registering. False if no server could
    be asked in time: then that session ends by its timeout."""
    past = _read(folder)
    if past is None:
        return True
    is_over = close_session(servers, past.session_id, past.password, within_s)
    if is_over:
        forget_session(folder)
    else:
        _log.warning("no ZooKeeper server closed the past session 0x%x in time", past.session_id)
    return is_over


def note_session(folder: str, session_id: int, password: bytes) -> None:
    """To be done before registering. A folder that cannot be written has a broker without this
    help, not one that cannot start."""
    noted = {
        "version": _VERSION,
        "session_id": f"0x{session_id & 0xFFFF_FFFF_FFFF_FFFF:x}",
        "password": password.hex(),
    }
    try:
        noted["folder_inode"] = os.stat(folder).st_ino
        _replace(f"{folder}/{FILE}", json.dumps(noted) + "\n")
    except OSError as error:
        _log.warning("cannot note the ZooKeeper session in %s: %s", folder, error)


def forget_session(folder: str) -> None:
    """After a stop in good order, when the session has been closed."""
    try:
        os.unlink(f"{folder}/{FILE}")
    except FileNotFoundError:
        return
    except OSError as error:
        _log.warning("cannot remove the past ZooKeeper session in %s: %s", folder, error)


def _replace(path: str, text: str) -> None:
    """It need not survive the machine: the next broker then waits for the timeout."""
    new = f"{path}.new"
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        os.fchmod(descriptor, 0o600)
        file.write(text)
    os.replace(new, path)


def _read(folder: str) -> PastSession | None:
    path = f"{folder}/{FILE}"
    try:
        with open(path, encoding="utf-8") as file:
            past = _parsed(file.read())
        inode = os.stat(folder).st_ino
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        _log.warning("cannot read the past ZooKeeper session in %s: %s", path, error)
        return None
    if past.folder_inode != inode:
        _log.warning("%s was written in another folder: left alone", path)
        return None
    return past


def _parsed(text: str) -> PastSession:
    noted = json.loads(text)
    if noted["version"] != _VERSION:
        raise ValueError(f"version {noted['version']!r}, expected {_VERSION}")
    unsigned = int(noted["session_id"], 16)
    if not 0 <= unsigned < 1 << 64:
        raise ValueError(f"session id {noted['session_id']}, expected 64 bits")
    return PastSession(
        session_id=unsigned - (1 << 64) if unsigned >> 63 else unsigned,
        password=bytes.fromhex(noted["password"]),
        folder_inode=int(noted["folder_inode"]),
    )
