"""Lets a test look inside a process; Python loads it at a start.

Whoever connects to the Unix socket that `TIDELOG_TEST_INSIDE` names, an abstract one, is told there
as JSON how the garbage collector stands and how large the buffers of the sockets are. Without that
variable a process is left as it is, and so are its children.
"""

import gc
import json
import os
import socket
import stat
import threading
from typing import Any, Final

INSIDE: Final = "TIDELOG_TEST_INSIDE"

_collections: list[tuple[int, bool]] = []
"""The generation of each, and whether it came by itself; only a process that lets its collector
run makes this long."""


def _note(phase: str, info: dict[str, int]) -> None:
    if phase == "start":
        _collections.append((info["generation"], gc.isenabled()))


def _sockets() -> list[dict[str, Any]]:
    found = []
    for number in map(int, os.listdir("/proc/self/fd")):
        try:
            is_socket = stat.S_ISSOCK(os.fstat(number).st_mode)
            copy = socket.socket(fileno=os.dup(number)) if is_socket else None
        except OSError:
            continue  # It was closed meanwhile: the folder itself was listed, say.
        if copy is not None:
            with copy:
                if copy.family == socket.AF_INET and copy.type == socket.SOCK_STREAM:
                    found.append(_of(copy))
    return found


def _of(one: socket.socket) -> dict[str, Any]:
    level = socket.SOL_SOCKET
    return {
        "is_listening": bool(one.getsockopt(level, socket.SO_ACCEPTCONN)),
        "send": one.getsockopt(level, socket.SO_SNDBUF),
        "receive": one.getsockopt(level, socket.SO_RCVBUF),
    }


def _tell(listening: socket.socket) -> None:
    while True:
        asking, _ = listening.accept()
        with asking:
            seen = {
                "is_enabled": gc.isenabled(),
                "frozen": gc.get_freeze_count(),
                "collections": _collections,
                "sockets": _sockets(),
            }
            asking.sendall(json.dumps(seen).encode())


def look_inside(name: str) -> Any:
    """For a test: what the process tells that was given this name."""
    with socket.socket(socket.AF_UNIX) as asking:
        asking.connect(f"\0{name}")
        return json.loads(asking.makefile("rb").read())


_name = os.environ.pop(INSIDE, None)
if _name is not None:
    gc.callbacks.append(_note)
    _listening = socket.socket(socket.AF_UNIX)
    _listening.bind(f"\0{_name}")
    _listening.listen()
    threading.Thread(target=_tell, args=(_listening,), daemon=True).start()
