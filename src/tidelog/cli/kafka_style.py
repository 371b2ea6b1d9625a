"""Commands that can be said in two ways: `topics create orders`, or as Kafka's tools have it,
`topics --bootstrap-server HOST:PORT --create --topic orders`.

Kafka's flag for an action becomes the word for it, and the word comes first, wherever it stood.
"""

from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup

from tidelog.base.errors import BadValue
from tidelog.base.properties import parse_properties

BOOTSTRAP_SERVER: Final = "127.0.0.1:9092"

Bootstrap = Annotated[
    str,
    typer.Option(
        "--bootstrap-server",
        "-b",
        metavar="HOST:PORT",
        envvar="TIDELOG_BOOTSTRAP_SERVER",
        help="A broker to begin with, or several with commas between them.",
    ),
]


class ActionFirst(TyperGroup):
    """A group of commands whose names are also understood as flags."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        for given in args:
            if given.partition("=")[0] == "--zookeeper":
                refuse_zookeeper(given)
        return super().parse_args(ctx, action_first(args, self.commands))


def action_first(arguments: list[str], actions: Collection[str]) -> list[str]:
    flags = {f"--{action}": action for action in actions}
    words = {action: action for action in actions}
    for names in (flags, words):
        for place, given in enumerate(arguments):
            if given in names:
                return [names[given], *arguments[:place], *arguments[place + 1 :]]
    return arguments


def refuse_zookeeper(given: str | None) -> str | None:
    """For instructions from before 2021, and as the callback of an option."""
    if given is not None:
        raise BadValue(
            "--zookeeper: commands talk to brokers: use --bootstrap-server HOST:PORT "
            f"(default: {BOOTSTRAP_SERVER})"
        )
    return given


Zookeeper = Annotated[
    str | None, typer.Option("--zookeeper", hidden=True, callback=refuse_zookeeper)
]


def split_assignment(text: str, option: str) -> tuple[str, str]:
    """`NAME=VALUE`, as it comes from an option."""
    name, separator, value = text.partition("=")
    if not separator or not name.strip():
        raise BadValue(f"{option} {text}: must be NAME=VALUE")
    return name.strip(), value


def split_assignments(texts: list[str] | None, option: str) -> dict[str, str]:
    return dict(split_assignment(text, option) for text in texts or ())


def client_properties(file: Path | None, texts: list[str] | None, option: str) -> dict[str, str]:
    """Settings of a client: those of a file, and over them those of the command line."""
    given = {}
    if file is not None:
        try:
            given = parse_properties(file.read_text())
        except (OSError, UnicodeDecodeError) as error:
            raise BadValue(f"{file}: cannot be read: {error}") from None
    return given | split_assignments(texts, option)


def one_of(value: str, allowed: tuple[str, ...], option: str) -> str:
    if value not in allowed:
        raise BadValue(f"{option} {value}: must be one of {', '.join(allowed)}")
    return value
