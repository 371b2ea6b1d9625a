"""The Java that runs what is not Python here: Spark, and the ZooKeeper server out of its jars."""

import os
import re
import shutil
import subprocess
from typing import Final

from tidelog.base.errors import BadValue

_FIRST: Final = 17


def find_java(purpose: str) -> str:
    """Where it is. Raises a sentence if there is none, or only one that is too old."""
    needed = f"this needs Java {_FIRST} or newer, for {purpose}"
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=os.path.join(home, "bin") if home else None)
    if java is None:
        raise BadValue(f"{needed}: install it, or set JAVA_HOME")
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    # Java 8 calls itself 1.8. Of one that says nothing of the kind, whoever runs it finds out.
    found = re.search(r'version "(?:1\.)?(\d+)', said.stderr)
    if found is not None and int(found[1]) < _FIRST:
        raise BadValue(f"{needed}, and {java} is Java {found[1]}: install it, or set JAVA_HOME")
    return java
