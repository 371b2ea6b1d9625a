"""The pages a newcomer reads first are true: what they name exists, what they say to type works.

Links must lead somewhere; so must every piece of text in backticks that looks like a path of
this repository, either from its root or, as in `log/segment.py`, from the package's folder.
"""

import re
import shlex
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[1]
PACKAGE: Final = ROOT / "src" / "tidelog"
README: Final = ROOT / "README.md"
ARCHITECTURE: Final = ROOT / "docs" / "ARCHITECTURE.md"
PAGES: Final = sorted(
    {README, ARCHITECTURE, *ROOT.glob("docs/**/*.md"), *ROOT.glob("bench/**/*.md")}
)
MADE_BY_COMMANDS: Final = (".venv/",)
FIRST_COMMANDS: Final = ("make demo", "make test")
TOP_LINES: Final = 25

_LINK: Final = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_QUOTED: Final = re.compile(r"`([^`\n]+)`")
_PATH: Final = re.compile(r"[\w.-]+(/[\w.-]+)*/?")
_BLOCK: Final = re.compile(r"^```[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
_ENDINGS: Final = (".py", ".md", ".toml")


def text_of(page: Path) -> str:
    assert page.exists(), f"{page.relative_to(ROOT)} is still to be written"
    return page.read_text(encoding="utf-8")


def page_name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    targets = [target.partition("#")[0] for target in _LINK.findall(text_of(page))]
    inside = [target for target in targets if target and "://" not in target]
    assert [target for target in inside if not (page.parent / target).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_every_path_that_a_page_names_exists(page: Path) -> None:
    prose = _BLOCK.sub("", text_of(page))
    named = [text for text in _QUOTED.findall(prose) if looks_like_our_path(text)]
    assert [name for name in named if not exists(name, page)] == []


def looks_like_our_path(text: str) -> bool:
    if not _PATH.fullmatch(text) or text.startswith(MADE_BY_COMMANDS):
        return False
    if "/" not in text:
        return text.endswith(_ENDINGS)
    first = text.partition("/")[0]
    return text.endswith(_ENDINGS) or (ROOT / first).is_dir() or (PACKAGE / first).is_dir()


def exists(name: str, page: Path) -> bool:
    """From the root, the package or the page's folder; a bare file name, anywhere in these."""
    if "/" not in name:
        folders = (ROOT / "src", ROOT / "tests", ROOT / "bench", ROOT / "docs")
        return (ROOT / name).exists() or any(any(f.rglob(name)) for f in folders)
    return any((folder / name).exists() for folder in (ROOT, PACKAGE, page.parent))


@pytest.mark.parametrize(
    ("text", "is_path"),
    [
        ("src/tidelog/log/segment.py", True),
        ("log/segment.py", True),
        ("log/no_such_file.py", True),
        ("pyproject.toml", True),
        ("tests/contracts", True),
        ("make demo", False),
        (".venv/bin/tidelog", False),
        ("<topic>-<partition>/", False),
        ("read/write", False),
        ("log.segment.bytes", False),
        (".cleaned", False),
    ],
)
def test_paths_are_told_from_other_quoted_text(text: str, is_path: bool) -> None:
    assert looks_like_our_path(text) is is_path


def test_a_page_that_names_a_missing_file_would_be_noticed() -> None:
    assert exists("log/segment.py", ARCHITECTURE)
    assert exists("test_architecture.py", ARCHITECTURE)
    assert not exists("log/no_such_file.py", ARCHITECTURE)
    assert not exists("no_such_file.py", ARCHITECTURE)


def test_the_drawn_layout_is_that_of_the_package() -> None:
    blocks = [block for block in _BLOCK.findall(text_of(ARCHITECTURE)) if "src/tidelog/\n" in block]
    assert len(blocks) == 1, "docs/ARCHITECTURE.md draws src/tidelog/ once"
    drawn = set(re.findall(r"^ {2,}([\w.]+/|[\w]+\.py)", blocks[0], re.MULTILINE))
    there = {f"{path.parent.name}/" for path in PACKAGE.glob("*/__init__.py")}
    there |= {path.name for path in PACKAGE.glob("*.py") if path.name != "__init__.py"}
    assert drawn == there


def test_the_readme_begins_with_its_two_commands() -> None:
    top = text_of(README).splitlines()[:TOP_LINES]
    found = [command for command in FIRST_COMMANDS if any(command in line for line in top)]
    assert found == list(FIRST_COMMANDS), f"in the first {TOP_LINES} lines"


@pytest.mark.parametrize("page", [README, ARCHITECTURE], ids=page_name)
def test_every_make_target_that_a_page_names_is_in_the_makefile(page: Path) -> None:
    text = text_of(page)
    named = set(re.findall(r"`make ([a-z]+)`", text))
    for block in _BLOCK.findall(text):
        named |= set(re.findall(r"^\s*(?:\$ )?make ([a-z]+)", block, re.MULTILINE))
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z]+):", makefile, re.MULTILINE))
    assert named, "a page for newcomers names at least one"
    assert named <= targets


def test_the_build_runs_the_commands_of_the_readme() -> None:
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    commands = [" ".join(shlex.split(line, comments=True)) for line in script.splitlines()]
    assert [command for command in FIRST_COMMANDS if command in commands] == list(FIRST_COMMANDS)
