"""Where the program `tidelog` begins.

One thing comes before anything is imported: kio registers its types with hypothesis wherever
that is installed, which is of use to nobody here and takes as long as the rest of a start.
"""

import sys


def main() -> None:
    sys.modules.setdefault("hypothesis", None)  # type: ignore[arg-type]
    from tidelog.cli.main import app

    app()
