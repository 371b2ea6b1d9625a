"""`tidelog demo`: a log's life in ten short steps, on the real disk. `make demo` runs it.

Every number it prints was measured or counted while it ran. Each step is a function of the
stage in one of the files beside this one; read them in the order in which they are called
here for a first tour of the log engine.
"""

import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import Annotated

import typer

from tidelog.base.errors import BadValue
from tidelog.cli.demo_ageing import apply_retention, compact_prices
from tidelog.cli.demo_crash import kill_a_writer
from tidelog.cli.demo_reading import dump_a_segment, find_records, show_segments
from tidelog.cli.demo_screen import Screen
from tidelog.cli.demo_stage import PRICES, Stage, open_stage
from tidelog.cli.demo_writing import repeat_a_batch, write_batches, write_transactions
from tidelog.log.checkpoints import CLEAN_SHUTDOWN
from tidelog.log.files import LOG, file_name


def demo(
    folder: Annotated[
        Path | None,
        typer.Option(help="Work in this folder, new or empty, and leave it there.", metavar="DIR"),
    ] = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave the temporary folder there too.")
    ] = False,
) -> None:
    """Watch a log being written, killed, aged and compacted.

    Takes a few seconds, needs no server, and writes some 20 MB into a temporary folder, which it
    removes afterwards.
    """
    started = perf_counter()
    screen = Screen()
    with workplace(folder, keep) as place:
        screen.title(f"tidelog demo: the life of a log, in {place}")
        _run(screen, place)
        screen.say(f"All of it took {perf_counter() - started:.1f} s.")
        _suggest(screen, place, is_kept=folder is not None or keep)


def _run(screen: Screen, place: Path) -> None:
    stage = open_stage(str(place / "data"), screen)
    try:
        write_batches(stage)
        repeat_a_batch(stage)
        write_transactions(stage)
        show_segments(stage)
        find_records(stage)
        kill_a_writer(stage, str(place / "killed"))
        apply_retention(stage)
        compact_prices(stage)
        dump_a_segment(stage)
        _stop(stage)
    finally:
        stage.workers.close()


@contextmanager
def workplace(folder: Path | None, keep: bool) -> Iterator[Path]:
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise BadValue(f"{folder} is not empty: name a folder that is, or that is not there")
        yield folder
        return
    temporary = Path(tempfile.mkdtemp(prefix="tidelog-demo-"))
    try:
        yield temporary
    finally:
        if not keep:
            shutil.rmtree(temporary)


def _stop(stage: Stage) -> None:
    """A clean stop, so that the next start is a quick one."""
    stage.screen.step("Stop: everything is made durable")
    stage.logs.close()
    names = stage.disk.list(stage.log_dir.path)
    assert CLEAN_SHUTDOWN in names, "a clean stop leaves its marker"
    others = ", ".join(name for name in names if name != CLEAN_SHUTDOWN)
    stage.screen.say(
        f"{CLEAN_SHUTDOWN} was written last: the next start trusts the files and only looks for "
        f"the end of each log. Also in the log dir: {others}."
    )


def _suggest(screen: Screen, place: Path, *, is_kept: bool) -> None:
    screen.title("What to try next")
    folder = place if is_kept else Path("seen")
    if is_kept:
        screen.say("Look into the files:")
    else:
        screen.say("Run it again, keep the files, and look into them:")
        screen.command(f"{_program()} demo --folder {folder}")
    screen.command(f"ls -A {folder}/data/*")
    prices = f"{folder}/data/{PRICES}/{file_name(0, LOG)}"
    screen.command(f"{_program()} dump-log --print-data-log --files {prices}")


def _program() -> str:
    """The command as it was called, to be copied from the screen."""
    called = Path(sys.argv[0])
    if called.name != "tidelog" or shutil.which("tidelog") == str(called):
        return "tidelog"
    return str(called.relative_to(Path.cwd())) if called.is_relative_to(Path.cwd()) else str(called)
