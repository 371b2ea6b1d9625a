"""Processes that end with the one that started them, however that went: also by kill -9."""

import signal
import sys
from collections.abc import Sequence
from typing import Final

_BECOME: Final = (
    # prctl(PR_SET_PDEATHSIG): the kernel sends the signal, and it outlasts the exec.
    "import ctypes, os, sys; ctypes.CDLL(None).prctl(1, int(sys.argv[1])); "
    "os.execvp(sys.argv[2], sys.argv[2:])"
)


def mortal(command: Sequence[str], by: signal.Signals) -> list[str]:
    """The same command, which gets a signal when whoever starts it is gone."""
    return [sys.executable, "-I", "-S", "-c", _BECOME, str(int(by)), *command]
