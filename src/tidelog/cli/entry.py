"""Where the program `tidelog` begins.

Two things come before anything is imported. Ctrl-C ends the process without a word, as long as no
command runs that would have something to put in order: Python would print where it was. And kio
registers its types with hypothesis wherever that is installed, which is of use to nobody here and
takes as long as the rest of a start.
"""

import signal
import sys


def main() -> None:
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.modules.setdefault("hypothesis", None)  # type: ignore[arg-type]
    from tidelog.cli.main import app

    app()
