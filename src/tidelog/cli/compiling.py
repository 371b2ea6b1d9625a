"""Has mypyc compile the modules that carry a broker's data (`compiled` says which).

mypyc is a part of mypy; it and setuptools come with `pip install 'tidelog[compiled]'`. They work on
a copy of the sources, in a process of their own: `python -m tidelog.cli.compiling FOLDER`.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from tidelog.cli.compiled import (
    GROUP,
    MANIFEST,
    MODULES,
    PACKAGE,
    Unusable,
    check,
    described,
    folder_in,
    made_from,
    sources,
)

KEPT_MAX: Final = 3
"""Other versions of the sources may be in use, but not for ever."""
_OPTIONS: Final = ("--ignore-missing-imports", "--follow-imports=silent", "--no-color-output")
_OUTPUT: Final = "out"
LINES_MAX: Final = 4


def compile_broker(cache: str) -> str:
    """Compiles the modules into the cache if they are not there; what is to be said about it."""
    origin = made_from()
    target = folder_in(cache, origin)
    if is_sound(target):
        return "the broker is compiled already"
    if missing := what_is_missing():
        return f"the broker runs as bytecode: {missing}"
    with TemporaryDirectory(dir=cache, prefix="compiling-") as work:
        _copy_sources(Path(work))
        if made_from() != origin:
            return "the broker runs as bytecode: its sources were just changed, try again"
        command = [sys.executable, "-P", "-m", "tidelog.cli.compiling", work]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            said = (done.stdout + done.stderr).splitlines()
            errors = [line for line in said if "error" in line.lower()] or said
            return "\n  ".join(
                ["the broker runs as bytecode: mypyc or cc failed", *errors[:LINES_MAX]]
            )
        keep(Path(work) / _OUTPUT, target)
    return "compiled the broker"


def is_sound(folder: Path) -> bool:
    try:
        check(folder)
    except Unusable:
        return False
    return True


def what_is_missing() -> str | None:
    if shutil.which(os.environ.get("CC", "cc").partition(" ")[0]) is None:
        return "there is no C compiler"
    if find_spec("mypyc") is None or find_spec("setuptools") is None:
        return "mypyc is not installed (pip install 'tidelog[compiled]')"
    return None


def _copy_sources(work: Path) -> None:
    for source in sources():
        target = work / "tidelog" / source.relative_to(PACKAGE)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)


def keep(made: Path, target: Path) -> None:
    """Whole or not at all. One that is there already is damaged, or was made meanwhile and is in
    use."""
    (made / MANIFEST).write_text(described(made), encoding="utf-8")
    if is_sound(target):
        return
    if target.exists():
        target.rename(made.parent / "replaced")
    made.rename(target)
    others = sorted(target.parent.glob("broker-*"), key=lambda path: path.stat().st_mtime)
    for old in others[:-KEPT_MAX]:
        shutil.rmtree(old)


def build(work: Path) -> None:
    from mypyc.build import mypycify
    from setuptools import Distribution
    from setuptools.command.build_ext import build_ext

    class InParallel(build_ext):  # type: ignore[misc]  # setuptools has no type hints
        """All cores compile, also the many files of one extension."""

        def build_extensions(self) -> None:
            compile_some: Callable[..., list[str]] = self.compiler.compile

            def compile_all(files: list[str], **how: Any) -> list[str]:
                with ThreadPoolExecutor(os.cpu_count()) as pool:
                    made = list(pool.map(lambda file: compile_some([file], **how), files))
                return [name for names in made for name in names]

            self.compiler.compile = compile_all
            super().build_extensions()

    os.chdir(work)
    files = [f"{name.replace('.', '/')}.py" for name in MODULES]
    extensions = mypycify(
        [*_OPTIONS, *files],
        opt_level="2",
        debug_level="0",
        multi_file=True,
        target_dir="c",
        group_name=GROUP,
    )
    for extension in extensions:
        # Calls within the library need not go through a table.
        extension.extra_compile_args.append("-fvisibility=hidden")
    command = InParallel(Distribution({"name": "tidelog", "ext_modules": extensions}))
    command.build_lib, command.build_temp = _OUTPUT, "objects"
    command.ensure_finalized()
    command.run()


if __name__ == "__main__":
    build(Path(sys.argv[1]))
