"""`tidelog pipeline`: projects of Spark Declarative Pipelines, made, run and watched (P5)."""

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Final

import typer

from tidelog.base.errors import BadValue
from tidelog.cli.kafka_style import BOOTSTRAP_SERVER, Bootstrap
from tidelog.cli.pipeline_project import Project, find_project, make_project
from tidelog.cli.pipeline_run import connect, run_once, show_lag
from tidelog.cli.printing import complain, say
from tidelog.cli.spark_session import Master, Remote, check_place

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


@app.callback()
def pipeline() -> None:
    """Make and run pipelines: from topics into tables and back, declared, on Spark.

    \b
    For example:
      tidelog pipeline init shop
      tidelog pipeline run shop --every 30s
    """


@app.command()
def init(
    name: Annotated[str, typer.Argument(help="A folder to be made for the project.")],
    topic: Annotated[
        str, typer.Option(metavar="TOPIC", help="Where records come from.")
    ] = "orders",
    bootstrap: Bootstrap = BOOTSTRAP_SERVER,
) -> None:
    """Make a pipeline project that runs as it is.

    It takes the records of a topic into tables (raw, parsed, and a view of totals), publishes
    the parsed ones to another topic, and sends those that do not parse to a dead-letter topic.

    \b
    For example:
      tidelog pipeline init shop
      cd shop && python produce.py && tidelog pipeline run
    """
    folder = Path(name)
    for path in make_project(folder, topic=topic, bootstrap=bootstrap):
        say(str(folder / path.relative_to(folder.absolute())))
    say(f"what to do next: see {folder / 'README.md'}")


@app.command()
def run(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="The project's (default: this one).")
    ] = Path(),
    every: Annotated[
        str | None,
        typer.Option(metavar="30s", help="Run it again and again, until Ctrl-C."),
    ] = None,
    master: Master = None,
    remote: Remote = None,
    full_refresh: Annotated[
        bool, typer.Option("--full-refresh", help="Begin anew: publishes everything again.")
    ] = False,
) -> None:
    """Run a pipeline: take in what has arrived since its last run.

    Shows what it does, and then how far each flow is behind its topic. With --every Spark stays
    warm between runs, so that one takes seconds.

    \b
    For example:
      tidelog pipeline run shop
      tidelog pipeline run shop --every 30s
      tidelog pipeline run shop --master spark://10.0.0.1:7077
    """
    every_s = None if every is None else parse_seconds(every)
    if every_s is not None and full_refresh:
        raise BadValue("--full-refresh and --every: one of them, or all is published each time")
    check_place(master, remote)
    project = find_project(folder)
    with connect(project, master, remote) as server:
        if every_s is None:
            _run(project, server(), full_refresh=full_refresh)
        else:
            _run_for_ever(project, server, every_s)


def _run(project: Project, address: str, *, full_refresh: bool = False) -> None:
    seconds = run_once(project, address, full_refresh=full_refresh)
    say(f"pipeline {project.name}: done in {seconds:.1f} s")
    show_lag(project)


def _run_for_ever(project: Project, server: Callable[[], str], every_s: float) -> None:
    """A run that fails is told, and tried again when the next is due."""
    while True:
        due = time.monotonic() + every_s
        try:
            _run(project, server())
        except BadValue as error:
            complain(error)
        time.sleep(max(0.0, due - time.monotonic()))


def parse_seconds(text: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s|m|h)", text.strip())
    if found is None or not float(found[1]):
        raise BadValue(f"--every {text}: must be a time such as 30s, 5m or 1h")
    return float(found[1]) * _UNITS[found[2]]
