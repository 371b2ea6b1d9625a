"""`tidelog demo`: a log's life in nine short steps, on the real disk. `make demo` runs it.

Every number it prints was measured or counted while it ran. Each step is a function of the
stage in one of the files beside this one; read them in the order in which they are called
here for a first tour of the log engine.
"""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import Annotated

import typer
from rich.console import Console

from tidelog.base.errors import BadValue
from tidelog.cli.demo_ageing import apply_retention, compact_prices
from tidelog.cli.demo_crash import kill_a_writer
from tidelog.cli.demo_reading import dump_a_segment, find_records, show_segments
from tidelog.cli.demo_screen import Screen
from tidelog.cli.demo_stage import open_stage
from tidelog.cli.demo_writing import repeat_a_batch, write_batches, write_transactions
from tidelog.log.checkpoints import CLEAN_SHUTDOWN


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

    Takes a few seconds, needs no server, and writes about 2 MB into a temporary folder, which
    it removes afterwards.
    """
    started = perf_counter()
    screen = Screen(Console(highlight=False, markup=False, emoji=False))
    with _workplace(folder, keep) as place:
        screen.title(f"tidelog demo: the life of a log, in {place}")
        _run(screen, place)
        _say_goodbye(screen, place, is_kept=folder is not None or keep)
    screen.say(f"That took {perf_counter() - started:.1f} s.")


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
        stage.logs.close()
    finally:
        stage.workers.close()


@contextmanager
def _workplace(folder: Path | None, keep: bool) -> Iterator[Path]:
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


def _say_goodbye(screen: Screen, place: Path, *, is_kept: bool) -> None:
    marker = place / "data" / CLEAN_SHUTDOWN
    assert marker.exists(), "a clean stop leaves its marker"
    screen.step("Stop: everything is durable")
    screen.say(f"{CLEAN_SHUTDOWN} is written last: the next start need not check anything.")
    screen.title("\nWhat to try next")
    if is_kept:
        logs = sorted((place / "data").glob("*/*.log"))
        screen.say("Look into any of the files:")
        screen.quote([f"tidelog dump-log --print-data-log --files {logs[0]}"])
    else:
        screen.say("Run it again, keep the files, and look into them:")
        screen.quote(
            [
                "tidelog demo --folder seen",
                "ls -A seen/data seen/data/*",
                "tidelog dump-log --print-data-log --files "
                "seen/data/prices-0/00000000000000000000.log",
            ]
        )
