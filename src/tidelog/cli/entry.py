"""Where the program `tidelog` begins.

Two things come before anything is imported. Ctrl-C ends the process without a word, as long as no
command runs that would have something to put in order: Python would print where it was. And kio
registers its types with hypothesis wherever that is installed, which is of use to nobody here and
takes as long as the rest of a start.

A standard stream may be closed, as some supervisors do. It becomes one to nowhere, lest a file or a
connection gets its number, and what is meant for a terminal is written there.
"""

import os
import signal
import sys


def open_streams() -> None:
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(number, True)
    os.close(number)
    sys.stdin = sys.stdin or os.fdopen(0, encoding="utf-8", closefd=False)
    sys.stdout = sys.stdout or os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", encoding="utf-8", closefd=False)


def main() -> None:
    open_streams()
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.modules.setdefault("hypothesis", None)  # type: ignore[arg-type]
    from tidelog.cli.main import app

    app()
