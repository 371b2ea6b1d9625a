"""What tests of several folders share: one server process for those that leave it as it is."""

from collections.abc import Iterator

import pytest

from support.servers import Server, new_server


@pytest.fixture(scope="session")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Runs to the end of all tests. Topics stay, so each test names its own."""
    server = new_server(tmp_path_factory.mktemp("shared"), {})
    try:
        server.start()
        yield server
    finally:
        server.close()
