"""What tests of several folders share: one server process for those that leave it as it is, and
examples that may take their time: two cores run more than one test at once.
"""

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from support.servers import Server, new_server

settings.register_profile("tidelog", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tidelog")


@pytest.fixture(scope="session")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Runs to the end of all tests. Topics stay, so each test names its own."""
    server = new_server(tmp_path_factory.mktemp("shared"), {})
    try:
        server.start()
        yield server
    finally:
        server.close()
