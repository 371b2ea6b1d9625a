"""What tests of several folders share: one server process for those that leave it as it is, an
order in which all workers are done at the same time, and examples that may take their time: two
cores run more than one test at once.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from hypothesis import HealthCheck, settings

from support.servers import Server, new_server

settings.register_profile("tidelog", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tidelog")

LONG: Final = (("cluster",), ("spark",), ("cli", "clients", "world", "trials"))
"""Folders whose tests take long, for each of three workers. One cluster is enough for the first and
one Spark session for the second; both wait more than they work."""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Each worker is given a part of all tests as they come, and whoever is done takes from the end
    of another's. So each part begins with what takes long and ends with short tests."""
    workers: int = getattr(config, "workerinput", {}).get("workercount", 1)
    if workers == 1:
        return
    parts: list[list[pytest.Item]] = [[] for _ in range(workers)]
    others: list[pytest.Item] = []
    for item in items:
        folder = item.path.relative_to(Path(__file__).parent).parts[0]
        found = next((number for number, names in enumerate(LONG) if folder in names), None)
        (others if found is None else parts[found % workers]).append(item)
    left = len(items)
    for number, part in enumerate(parts):
        size = left // (workers - number)
        missing = max(0, size - len(part))
        part += others[:missing]
        del others[:missing]
        left -= size
    items[:] = [item for part in parts for item in part] + others


@pytest.fixture(scope="session")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Runs to the end of all tests. Topics stay, so each test names its own."""
    server = new_server(tmp_path_factory.mktemp("shared"), {})
    try:
        server.start()
        yield server
    finally:
        server.close()
