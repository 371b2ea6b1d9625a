"""`tidelog demo`: a node with other people's clients, the log underneath it, and a pipeline on
Spark over a cluster. `make demo` runs it.

Every number it prints was measured or counted while it ran. Each step is a function in one of
the files beside this one; read them in the order in which they are called here for a first tour.
"""

import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import Annotated, Final

import typer
from confluent_kafka import KafkaException

from tidelog.base.errors import BadValue
from tidelog.cli.demo_ageing import apply_retention, compact_prices
from tidelog.cli.demo_crash import kill_the_node
from tidelog.cli.demo_listening import ask_for_a_time, wake_a_consumer
from tidelog.cli.demo_meeting import let_clients_in
from tidelog.cli.demo_node import Node
from tidelog.cli.demo_reading import dump_a_segment, find_records, show_segments
from tidelog.cli.demo_retry import lose_an_answer
from tidelog.cli.demo_screen import Screen
from tidelog.cli.demo_serving import Play, create_topics, start_the_node, stop_the_node
from tidelog.cli.demo_stage import PRICES, Stage, open_stage
from tidelog.cli.demo_writing import write_batches, write_transactions
from tidelog.cli.spark_session import check_spark
from tidelog.log.checkpoints import CLEAN_SHUTDOWN
from tidelog.log.files import LOG, file_name

LINES_OF_A_FAILURE: Final = 20


def demo(
    folder: Annotated[
        Path | None,
        typer.Option(help="Work in this folder, new or empty, and leave it there.", metavar="DIR"),
    ] = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave the temporary folder there too.")
    ] = False,
    with_spark: Annotated[
        bool | None,
        typer.Option(
            "--spark/--no-spark",
            help="Also the pipeline, which takes minutes [default: where Spark can run].",
        ),
    ] = None,
) -> None:
    """Watch Kafka clients use a node that is killed under them, the log it keeps, and a pipeline.

    The pipeline runs on Spark, over three brokers of which one is killed; it ends with an audit.
    Takes a few minutes, half a minute without Spark, and writes some 100 MB into a temporary
    folder, which it removes afterwards.
    """
    if with_spark:
        check_spark()
    started = perf_counter()
    screen = Screen()
    with workplace(folder, keep) as place:
        screen.title("tidelog demo, part one: a node, and other people's clients")
        screen.say(f"All of it happens in {place}.")
        _show_node(screen, place / "node")
        screen.title("Part two: the log underneath")
        _show_log(screen, place / "data")
        if with_spark is not False:
            _show_pipeline(screen, place / "pipeline")
        screen.say(f"All of it took {perf_counter() - started:.1f} s.")
        _suggest(screen, place, is_kept=folder is not None or keep)


def _show_node(screen: Screen, folder: Path) -> None:
    play = Play(screen=screen, node=Node(folder))
    try:
        start_the_node(play)
        create_topics(play)
        let_clients_in(play)
        ask_for_a_time(play)
        wake_a_consumer(play)
        lose_an_answer(play)
        kill_the_node(play)
        stop_the_node(play)
    except (AssertionError, KafkaException):
        # A bug; and the folder with what the node has to say about it may be gone in a moment.
        screen.quote(*play.node.last_lines(LINES_OF_A_FAILURE))
        raise
    finally:
        play.node.close()


def _show_log(screen: Screen, folder: Path) -> None:
    stage = open_stage(str(folder), screen)
    try:
        write_batches(stage)
        write_transactions(stage)
        show_segments(stage)
        find_records(stage)
        apply_retention(stage)
        compact_prices(stage)
        dump_a_segment(stage)
        _stop(stage)
    finally:
        stage.workers.close()


def _show_pipeline(screen: Screen, folder: Path) -> None:
    """Where Spark can run; everything else works without it."""
    try:
        check_spark()
    except BadValue as error:
        screen.title("Part three, a cluster and a pipeline on Spark, is left out")
        screen.say(f"{error}.")
        return
    from tidelog.cli.demo_story import Story

    screen.title("Part three: a cluster, a pipeline on Spark, a leader that dies, and an audit")
    folder.mkdir(parents=True)
    Story(screen, folder.absolute()).tell()


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
    if not is_kept:
        screen.say("Run it again and keep the files:")
        screen.command(f"{_program()} demo --folder {folder}")
    screen.say("Look into them, or serve the node's again on 127.0.0.1:9092:")
    prices = f"{folder}/data/{PRICES}/{file_name(0, LOG)}"
    screen.command(f"{_program()} dump-log --print-data-log --files {prices}")
    screen.command(f"{_program()} server --set log.dirs={folder}/node/log-dir")
    screen.say("Or start with an empty node, and use it with any Kafka client:")
    screen.command(f"{_program()} server")


def _program() -> str:
    """The command as it was called, to be copied from the screen."""
    called = Path(sys.argv[0])
    if called.name != "tidelog" or shutil.which("tidelog") == str(called):
        return "tidelog"
    return str(called.relative_to(Path.cwd())) if called.is_relative_to(Path.cwd()) else str(called)
