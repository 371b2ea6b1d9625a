"""What the README shows is what happens: its commands and examples print what it says they do.

Those for a node run against one of our own, on another port than the README's.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from support.servers import TidelogServer

ROOT: Final = Path(__file__).parents[1]
README: Final = (ROOT / "README.md").read_text(encoding="utf-8")
HELLO: Final = (ROOT / "examples" / "hello.py").read_text(encoding="utf-8")
ADDRESS: Final = "127.0.0.1:9092"
BIN: Final = ".venv/bin/"
FOLDER: Final = "tidelog-data"
OTHERS: Final = ("kcat",)
"""Programs that are not ours, and not everywhere."""
PROGRAMS: Final = re.findall(r"```python\n(.*?)```\n\n```\n(.*?)```", README, re.DOTALL)
(SESSION,) = re.findall(r"```console\n(.*?)```", README, re.DOTALL)
COMMANDS: Final = re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", SESSION, re.MULTILINE)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TidelogServer]:
    server = TidelogServer(tmp_path_factory.mktemp("readme"), {})
    try:
        server.start()
        yield server
    finally:
        server.close()


def printed(command: list[str], folder: Path, **environment: str) -> str:
    return subprocess.run(
        command,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        cwd=folder,
        timeout=60,
        env=os.environ | environment,
    ).stdout


def test_readme_session_prints_what_the_readme_shows(node: TidelogServer, tmp_path: Path) -> None:
    assert len(COMMANDS) > 3
    (tmp_path / FOLDER).symlink_to(node.log_dir)
    for command, shown in COMMANDS:
        program = command.split()[0]
        if program in OTHERS and shutil.which(program) is None:
            continue
        here = command.replace(ADDRESS, node.address).replace(
            BIN, f"{Path(sys.executable).parent}/"
        )
        found = printed(["sh", "-c", here], tmp_path, TIDELOG_BOOTSTRAP_SERVER=node.address)
        assert found == shown, command


def test_readme_example_of_a_client_is_the_file_it_names() -> None:
    assert HELLO.endswith('"""\n\n' + PROGRAMS[0][0])


def test_readme_example_of_a_client_prints_what_the_readme_shows(
    node: TidelogServer, tmp_path: Path
) -> None:
    code, shown = PROGRAMS[0]
    assert ADDRESS in code
    here = code.replace(ADDRESS, node.address)
    assert printed([sys.executable, "-c", here], tmp_path) == shown


def test_readme_example_of_a_log_prints_what_the_readme_shows(tmp_path: Path) -> None:
    code, shown = PROGRAMS[1]
    here = code.replace("/tmp/tidelog-readme", str(tmp_path / "log"))
    found = printed([sys.executable, "-c", here], tmp_path)
    assert _without_times(found) == _without_times(shown)


def _without_times(text: str) -> str:
    return re.sub(r"'timestamp': \d+", "", text)
