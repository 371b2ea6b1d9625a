"""What no test of whole brokers may leave in the log: that something failed which may not."""

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def no_bugs(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    yield
    for when in ("setup", "call"):
        for record in caplog.get_records(when):
            is_bug = record.exc_info is not None or record.getMessage().startswith("bug")
            is_ours = record.name.startswith("tidelog") and record.levelno >= logging.ERROR
            assert not (is_bug and is_ours), f"{record.name}: {record.getMessage()}"
