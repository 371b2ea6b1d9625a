"""Which Python Spark's own processes run: one that has this package, or there is no such source.

Spark takes the first `python3` in the path unless it is told another, and what it is told counts
from the moment its JVM starts. So whoever makes a session calls `use_this_python` before.
"""

import os
import sys
from pathlib import Path
from typing import Final

from tidelog.base.errors import BadValue

VARIABLE: Final = "PYSPARK_PYTHON"


def worker_python() -> str:
    """The one that runs this, by the script that makes it start sooner there, if it is installed
    beside it."""
    script = Path(sys.executable).with_name("spark-python")
    return str(script) if script.exists() else sys.executable


def use_this_python() -> None:
    """To be called before the session is made. Where the variable is set already, it stays."""
    if VARIABLE in os.environ:
        return
    from pyspark import SparkContext

    # A session that was stopped leaves its JVM behind, which keeps what it was started with.
    if SparkContext._gateway is not None:
        raise BadValue(
            "use_this_python() comes too late: Spark runs already; call it before the session is "
            f"made, or set {VARIABLE} for the whole program"
        )
    os.environ[VARIABLE] = worker_python()
