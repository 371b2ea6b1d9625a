"""How Spark's own Python processes are started: with a Python that has this package, or there is no
such source, and with Unix domain sockets between them and its JVM.

Spark takes the first `python3` in the path unless it is told another, and TCP; what it is told
counts from the moment its JVM starts. So whoever makes a session calls `use_this_python` before.
"""

import os
import sys
from pathlib import Path
from typing import Final

from tidelog.base.errors import BadValue

PYTHON: Final = "PYSPARK_PYTHON"
UNIX_SOCKETS: Final = "PYSPARK_UDS_MODE"


def worker_variables() -> dict[str, str]:
    """The environment that Spark's JVM is to be started with, where nothing else is set."""
    return {PYTHON: worker_python(), UNIX_SOCKETS: "true"}


def worker_python() -> str:
    """The one that runs this, by the script that makes it start sooner there, if it is installed
    beside it."""
    script = Path(sys.executable).with_name("spark-python")
    return str(script) if script.exists() else sys.executable


def use_this_python() -> None:
    """To be called before the session is made. A variable that is set already stays."""
    missing = {name: told for name, told in worker_variables().items() if name not in os.environ}
    if not missing:
        return
    from pyspark import SparkContext

    # A session that was stopped leaves its JVM behind, which keeps what it was started with.
    if SparkContext._gateway is not None:
        raise BadValue(
            "use_this_python() comes too late: Spark runs already; call it before the session is "
            f"made, or set {' and '.join(missing)} for the whole program"
        )
    os.environ.update(missing)
