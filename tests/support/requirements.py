"""What a test needs and a machine may lack. `.ci/run` installs all of it, and then nothing may be
left out: TIDELOG_REQUIRE_CLIENTS says so."""

import os
from typing import NoReturn

import pytest


def all_is_required() -> bool:
    return bool(os.environ.get("TIDELOG_REQUIRE_CLIENTS"))


def leave_out(reason: str) -> NoReturn:
    """Skips the test that runs; where nothing may be left out, it fails."""
    if all_is_required():
        pytest.fail(reason)
    pytest.skip(reason)
