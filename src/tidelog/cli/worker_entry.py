"""Where a worker's process begins: `python -m tidelog.cli.worker_entry`.

As for the program itself (`entry`), hypothesis is kept out before anything is imported: it would
take more memory than all the rest.
"""

import sys


def main() -> None:
    sys.modules.setdefault("hypothesis", None)  # type: ignore[arg-type]
    from tidelog.worker import main

    main()


if __name__ == "__main__":
    main()
