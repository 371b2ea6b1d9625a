"""Compiled kernels on disk: found again, and never a reason to fail."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tidelog.cli.kernels import app
from tidelog.records.kernel_cache import made_from
from tidelog.records.kernel_folder import cache_folder, candidate_folders
from tidelog.records.kernels import compiled, helper

USE = """
import numpy as np
from numba import types
from tidelog.records import kernels
@kernels.kernel(types.int64(kernels.INT64S))
def add_up(numbers):
    total = 0
    for number in numbers:
        total += number
    return total
print(add_up(np.arange(10)), kernels.compiled[-1].from_cache, kernels.FOLDER)
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "use.py"
    path.write_text(USE)
    return path


def run(script: Path, **environment: str) -> list[str]:
    command = [sys.executable, "-W", "error", str(script)]
    changed = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    done = subprocess.run(
        command, env=changed | environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_a_kernel_is_compiled_once_and_then_found(script: Path, tmp_path: Path) -> None:
    folder = str(tmp_path / "cache")
    assert run(script, NUMBA_CACHE_DIR=folder) == ["45", "False", folder]
    assert run(script, NUMBA_CACHE_DIR=folder) == ["45", "True", folder]
    (kept,) = os.listdir(folder)
    assert kept.startswith("__main__.add_up.")


@pytest.mark.parametrize("damage", ["empty", "cut", "flip", "noise", "folder"])
def test_a_damaged_file_is_compiled_again(
    kept_kernel: tuple[str, bytes], script: Path, tmp_path: Path, damage: str
) -> None:
    name, content = kept_kernel
    middle = len(content) // 2
    flipped = content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]
    wrong = {"empty": b"", "cut": content[:1000], "flip": flipped, "noise": os.urandom(5000)}
    kept = tmp_path / name
    if damage == "folder":
        kept.mkdir()
    else:
        kept.write_bytes(wrong[damage])
    assert run(script, NUMBA_CACHE_DIR=str(tmp_path))[:2] == ["45", "False"]
    assert kept.is_dir() or kept.stat().st_size > 5000, "it is kept again"


@pytest.fixture(scope="module")
def kept_kernel(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, bytes]:
    folder = tmp_path_factory.mktemp("kernels")
    (folder / "use.py").write_text(USE)
    run(folder / "use.py", NUMBA_CACHE_DIR=str(folder))
    (kept,) = folder.glob("*.kernel")
    return kept.name, kept.read_bytes()


def test_without_a_folder_that_can_be_written_kernels_are_compiled_anyway(script: Path) -> None:
    nowhere = dict.fromkeys(("NUMBA_CACHE_DIR", "XDG_CACHE_HOME"), "/proc/none")
    assert run(script, TMPDIR="/proc/none", **nowhere) == ["45", "False", "None"]


def test_the_folder_is_the_named_one_then_the_users_then_a_temporary_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", "/proc/none")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    named, user, temporary = candidate_folders()
    assert (named, user) == ("/proc/none", f"{tmp_path}/tidelog/numba")
    assert Path(temporary).name == f"tidelog-numba-{os.getuid()}"
    assert cache_folder() == user
    assert Path(user).stat().st_mode & 0o777 == 0o700


def test_a_folder_that_others_can_write_is_not_trusted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(shared))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == f"{tmp_path}/tidelog/numba"


def test_a_kernel_is_made_from_its_helpers_and_constants_too() -> None:
    def digest_with(inner_constant: int, limit: int) -> bytes:
        names: dict[str, Any] = {"helper": helper}
        source = f"""
LIMIT = {limit}
@helper
def inner(value):
    return value + {inner_constant}
def outer(value):
    return inner(value) + LIMIT
"""
        exec(source, names)
        return made_from(names["outer"])

    assert digest_with(1, 5) == digest_with(1, 5)
    assert len({digest_with(1, 5), digest_with(2, 5), digest_with(1, 6)}) == 3


def test_warm_names_every_kernel_and_where_it_is_kept() -> None:
    done = CliRunner().invoke(app, ["warm"])
    assert done.exit_code == 0
    for kernel in compiled:
        assert kernel.name in done.output
    assert {
        "tidelog.records.decode_kernel.fill",
        "tidelog.records.encode_kernel.write_records",
    } <= {kernel.name for kernel in compiled}
    assert f"{len(compiled)} kernels in" in done.output


def test_what_the_broker_imports_does_not_load_numba_numpy_or_arrow() -> None:
    modules = "batch, compression, control, inspection, murmur2, reference"
    program = f"""
import sys
from tidelog.records import {modules}
print(sorted({{"numba", "numpy", "pyarrow"}} & set(sys.modules)))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"
