"""Style that can be tested: sizes, names, docstrings, and what must not be in any file.

Where a rule has an exception, the exception is named here with its reason. All files that
git knows or would take are looked at, so that a file is tidy before it is committed.
"""

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[1]
SOURCE_LINES_MAX: Final = 400
TEST_LINES_MAX: Final = 600
FUNCTION_LINES_MAX: Final = 60
PARAMETERS_MAX: Final = 6
KERNEL_PARAMETERS_MAX: Final = 7
"""Compiled loops are handed arrays, which numba cannot take bundled."""
COMMANDS: Final = frozenset(
    (
        "dump_log",
        "create_command",
        "describe_command",
        "alter_command",
        "list_command",
        "reset_command",
        "delete_offsets_command",
        "describe_producers_command",
        "generate_command",
        "execute_command",
        "verify_command",
        "abort_command",
        "find_hanging_command",
        "produce",
        "consume",
        "elect_leaders",
        "audit",
        "show_letters",
        "redrive_letters",
        "replay_topic",
    )
)
"""A command has a parameter for each of its options."""
WORDS_IN_A_BEHAVIOUR: Final = 3
ABBREVIATIONS: Final = frozenset(
    (
        "hw",
        "lw",
        "leo",
        "lso",
        "osr",
        "cfg",
        "conf",
        "mgr",
        "tmp",
        "idx",
        "msg",
        "cnt",
        "buf",
        "arr",
        "ptr",
        "cb",
        "fn",
        "util",
        "utils",
    )
)
SPEC_ROWS: Final = (
    *(f"S{number}" for number in range(1, 12)),
    *(f"T{number}" for number in range(1, 7)),
    *(f"R{number}" for number in range(1, 7)),
    *(f"I{number}" for number in range(1, 7)),
    *(f"E{number}" for number in range(1, 6)),
    *(f"L{number}" for number in range(1, 7)),
    *("A1", "A2", "A3", "A6", "O1", "O2", "O3"),
    *("P1", "P2", "P3", "P5", "P6", "P8"),
)

Function = ast.FunctionDef | ast.AsyncFunctionDef


@cache
def files() -> list[Path]:
    """Everything that is committed or could be."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    found = [ROOT / name for name in listed.split("\0") if name]
    return [path for path in found if path.is_file()]


def python_files(*folders: str) -> list[Path]:
    found = [path for path in files() if path.suffix == ".py" and name_of(path).startswith(folders)]
    assert found, f"there is Python in {folders}"
    return found


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def functions(path: Path) -> Iterator[Function]:
    for node in ast.walk(tree(path)):
        if isinstance(node, Function):
            yield node


def test_every_file_opens_with_a_docstring() -> None:
    silent = [
        name_of(path)
        for path in python_files("src/", "tests/", "bench/")
        if path.stat().st_size and not ast.get_docstring(tree(path))
    ]
    assert silent == []


@pytest.mark.parametrize(
    ("folders", "lines_max"),
    [(("src/", "bench/"), SOURCE_LINES_MAX), (("tests/",), TEST_LINES_MAX)],
)
def test_no_file_grows_beyond_its_limit(folders: tuple[str, ...], lines_max: int) -> None:
    lengths = {name_of(path): _lines(path) for path in python_files(*folders)}
    assert {name: lines for name, lines in lengths.items() if lines > lines_max} == {}


def _lines(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def test_no_function_grows_beyond_its_limit() -> None:
    lengths = {
        f"{name_of(path)}: {function.name}": (function.end_lineno or 0) - function.lineno + 1
        for path in python_files("src/", "bench/")
        for function in functions(path)
    }
    assert {name: lines for name, lines in lengths.items() if lines > FUNCTION_LINES_MAX} == {}


def test_functions_take_no_more_parameters_than_a_reader_can_hold() -> None:
    crowded = [
        f"{name_of(path)}: {function.name}"
        for path in python_files("src/")
        for function in functions(path)
        if function.name not in COMMANDS and len(_parameters(function)) > _parameters_max(path)
    ]
    assert crowded == []


def _parameters_max(path: Path) -> int:
    return KERNEL_PARAMETERS_MAX if "kernel" in path.name else PARAMETERS_MAX


def _parameters(function: Function) -> list[str]:
    arguments = function.args
    names = [a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    return names[1:] if names[:1] in (["self"], ["cls"]) else names


def test_names_are_words_in_full() -> None:
    short = [
        f"{name_of(path)}:{line}: {name}"
        for path in python_files("src/")
        for line, name in _defined_names(tree(path))
        if ABBREVIATIONS & set(name.lower().split("_"))
    ]
    assert short == []


def _defined_names(module: ast.Module) -> Iterator[tuple[int, str]]:
    """Only what is named here: the names of other people's things are theirs."""
    for node in ast.walk(module):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield node.lineno, name
            case ast.arg(arg=name) | ast.ClassDef(name=name) | ast.FunctionDef(name=name):
                yield node.lineno, name


def test_no_error_is_swallowed_without_a_word() -> None:
    silent = [
        f"{name_of(path)}:{node.lineno}"
        for path in python_files("src/", "tests/", "bench/")
        for node in ast.walk(tree(path))
        if isinstance(node, ast.ExceptHandler) and _swallows(node, path)
    ]
    assert silent == []


def _swallows(handler: ast.ExceptHandler, path: Path) -> bool:
    """A test may wait for one particular error and go on; nothing may do so for any."""
    if handler.type is None:
        return True
    is_broad = {"Exception", "BaseException"} & {
        node.id for node in ast.walk(handler.type) if isinstance(node, ast.Name)
    }
    return _is_empty(handler.body) and (bool(is_broad) or not name_of(path).startswith("tests/"))


def _is_empty(body: list[ast.stmt]) -> bool:
    return all(
        isinstance(statement, ast.Pass)
        or (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant))
        for statement in body
    )


def test_every_test_states_a_behaviour_in_its_name() -> None:
    mute = [
        f"{name_of(path)}: {function.name}"
        for path in python_files("tests/")
        for function in functions(path)
        if function.name.startswith("test_")
        and len(function.name.removeprefix("test_").split("_")) < WORDS_IN_A_BEHAVIOUR
    ]
    assert mute == []


def test_names_of_test_files_are_unique() -> None:
    counts = Counter(path.name for path in python_files("tests/") if path.name.startswith("test_"))
    assert [name for name, count in counts.items() if count > 1] == []


@pytest.mark.parametrize(
    ("what", "pattern"),
    [
        ("a note to do something later", rb"\b(TOD[O]|FIXM[E]|XX[X]|HAC[K])\b"),
        ("a path of one machine", rb"(?<![\w.])/(wor[k]|roo[t]|hom[e]/\w+|tmp/helper[s])/"),
        (
            "a registry's host",
            rb"pypi\.or[g]|pythonhosted\.or[g]|repo1?\.maven\.(apache\.)?or[g]|registry\.npmjs\.or[g]"
            rb"|artifactor[y]|jfro[g]|nexus[-./]|pkg\.de[v]|index-ur[l]",
        ),
    ],
    ids=lambda value: value.replace(" ", "_") if isinstance(value, str) else "",
)
def test_no_file_contains_what_helps_nobody_else(what: str, pattern: bytes) -> None:
    found = [
        f"{name_of(path)}: {match[0].decode()}"
        for path in files()
        for match in re.finditer(pattern, path.read_bytes())
    ]
    assert found == [], what


@pytest.mark.parametrize("row", SPEC_ROWS)
def test_every_row_of_the_specification_is_named_by_a_test(row: str) -> None:
    others = [path for path in python_files("tests/") if path != Path(__file__)]
    citing = [
        name_of(path)
        for path in others
        if path.name.startswith("test_")
        and re.search(rf"\b{row}\b", path.read_text(encoding="utf-8"))
    ]
    assert citing, f"no test names {row}"


def test_what_a_broker_imports_is_free_of_numba_numpy_and_pyarrow() -> None:
    """They take 170 MB and are for child processes, Spark and tests only."""
    names = [name for path in python_files("src/") if not _is_compiled(name := _module(path))]
    assert {"tidelog.log.logs", "tidelog.log.cleaner", "tidelog.world.real.disk"} <= set(names)
    script = (
        "import sys, importlib\n"
        f"for name in {names}: importlib.import_module(name)\n"
        "print(*({'numba', 'llvmlite', 'numpy', 'pyarrow'} & set(sys.modules)))"
    )
    command = [sys.executable, "-c", script]
    loaded = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert loaded.split() == []


def _module(path: Path) -> str:
    parts = path.relative_to(ROOT / "src").with_suffix("").parts
    return ".".join(parts).removesuffix(".__init__")


def _is_compiled(module: str) -> bool:
    """Whether a module is for compiling, Spark and tests: any other is a broker's or a child's."""
    if module.startswith(("tidelog.spark", "pyspark_tidelog")):
        return True
    folder, _, name = module.rpartition(".")
    return folder == "tidelog.records" and ("kernel" in name or name.startswith("column"))
