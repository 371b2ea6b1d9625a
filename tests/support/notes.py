"""What a client program notes of its doings for the test that started it: lines of JSON.

Each is written at once, so also a program that was killed has noted all that it did.
"""

import json
import os
from pathlib import Path
from typing import Any


class Notes:
    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def add(self, what: str, **values: Any) -> None:
        os.write(self._file, json.dumps({"what": what, **values}).encode() + b"\n")


def count_notes(path: Path, what: str) -> int:
    """How often something was noted."""
    return path.read_bytes().count(json.dumps({"what": what}).encode()[:-1])
