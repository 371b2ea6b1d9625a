"""A plugin of pytest that runs tests on the broker's compiled modules instead of its sources:

    PYTHONPATH=tests .venv/bin/pytest -p support.compiled_modules tests/broker

Tests that put something else in the place of code are left out: compiled code calls what it was
compiled with.
"""

import pytest

from tidelog.cli.compiled import use_compiled

_why = use_compiled()
if _why is not None:
    raise pytest.UsageError(f"there are no compiled modules to test: {_why}")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    left_out = [item for item in items if _changes_code(item)]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]


def _changes_code(item: pytest.Item) -> bool:
    assert isinstance(item, pytest.Function)
    return "monkeypatch" in item.fixturenames or "mutant" in item.name
