"""`tidelog server`: one broker, in the foreground, until it is told to stop."""

import os
from pathlib import Path
from typing import Annotated

import typer

from tidelog.base.errors import BadValue
from tidelog.base.properties import read_properties
from tidelog.base.settings import Settings
from tidelog.cli.compiled import use_compiled
from tidelog.cli.defaults import DEFAULT_FOLDER

DEFAULTS = {
    "broker.id": "0",
    "listeners": "PLAINTEXT://127.0.0.1:9092",
    "log.dirs": DEFAULT_FOLDER,
}
LOG_LEVELS = ("debug", "info", "warning", "error")


def server(
    config: Annotated[
        Path | None,
        typer.Option("--config", help="A server.properties, with Kafka's names.", dir_okay=False),
    ] = None,
    assignments: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            "--override",
            metavar="NAME=VALUE",
            help="A setting; counts before the file's. As often as needed.",
        ),
    ] = None,
    log_level: Annotated[
        str, typer.Option(help="How much is logged: debug, info, warning or error.")
    ] = "info",
) -> None:
    """Start a broker. Any Kafka client can use it.

    \b
    With no settings it serves on 127.0.0.1:9092 and keeps its data in ./tidelog-data:
      tidelog server
    With some:
      tidelog server --set listeners=PLAINTEXT://:9092 --set log.dirs=/var/lib/tidelog
      tidelog server --config server.properties

    It stops on Ctrl-C or SIGTERM, when everything it accepted is answered and durable. After
    a crash it comes back with all it had acknowledged.
    """
    if log_level.lower() not in LOG_LEVELS:
        raise BadValue(f"--log-level {log_level}: must be one of {', '.join(LOG_LEVELS)}")
    settings = read_settings(config, assignments or [])
    interpreted = use_compiled()
    # Imported here: in compiled form, if there is one.
    from tidelog.server import run

    run(settings, log_level.upper(), interpreted)


def read_settings(config: Path | None, assignments: list[str]) -> Settings:
    """A file's settings and those given one by one; what neither says has its default. Without
    a file a broker needs no settings at all. Folders are said from the root: others are told where
    they are."""
    given = read_properties(config) if config is not None else {}
    for assignment in assignments:
        name, separator, value = assignment.partition("=")
        if not separator or not name.strip():
            raise BadValue(f"--set {assignment}: must be NAME=VALUE")
        given = {**given, name.strip(): value.strip()}
    if "log.dir" in given or "log.dirs" in given:
        defaults = {name: value for name, value in DEFAULTS.items() if name != "log.dirs"}
    else:
        defaults = DEFAULTS
    values = {**defaults, **given}
    folders = {name: values[name] for name in ("log.dir", "log.dirs") if name in values}
    return Settings.of({**values, **{name: _absolute(text) for name, text in folders.items()}})


def _absolute(folders: str) -> str:
    parts = (part.strip() for part in folders.split(","))
    return ",".join(os.path.abspath(part) if part else "" for part in parts)
