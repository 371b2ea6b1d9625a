"""Commands that can be said in two ways: `topics create orders`, or as Kafka's tools have it,
`topics --bootstrap-server HOST:PORT --create --topic orders`.

Kafka's flag for an action becomes the word for it, and the word comes first, wherever it stood.
"""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

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

    refused: Mapping[str, str] = {}
    """Flags of Kafka's tool that are not there, by themselves or of an action, as in `alter
    --config`; and what to do instead."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        for given in args:
            if given.partition("=")[0] == "--zookeeper":
                refuse_zookeeper(given)
        words = action_first(args, self.commands, self.valued())
        refuse_flags(words, {**_REFUSED_BY_ALL, **self.refused})
        return super().parse_args(ctx, words)

    def valued(self) -> set[str]:
        """The options that take a value, in whichever command they stand."""
        options = [
            one
            for command in self.commands.values()
            for one in command.params
            if isinstance(one, TyperOption)
        ]
        flags = {name for one in options if one.is_flag for name in one.opts}
        return {name for one in options for name in one.opts} - flags


class OtherFlags(TyperCommand):
    """A command that knows flags of Kafka's tool as other names for its own."""

    renamed: Mapping[str, str] = {}
    """What stands in for a flag with a value, up to that value."""
    refused: Mapping[str, str] = {}

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        refuse_flags(args, {**_REFUSED_BY_ALL, **self.refused})
        return super().parse_args(ctx, rename_flags(args, self.renamed))


def refuse_flags(arguments: list[str], refused: Mapping[str, str]) -> None:
    """Before anything else is made of them."""
    for given in arguments:
        if given == "--":
            return
        flag = given.partition("=")[0]
        for name in (flag, f"{arguments[0]} {flag}"):
            if name in refused:
                raise BadValue(f"{flag}: {refused[name]}")


def rename_flags(arguments: list[str], renamed: Mapping[str, str]) -> list[str]:
    """`--timeout 5` and `--timeout=5` become `--producer-property=linger.ms=5`, if so renamed."""
    given = iter(arguments)
    found: list[str] = []
    for argument in given:
        if argument == "--":
            return [*found, argument, *given]
        flag, separator, value = argument.partition("=")
        if flag not in renamed:
            found.append(argument)
        elif separator:
            found.append(renamed[flag] + value)
        else:
            following = next(given, None)
            found.append(argument if following is None else renamed[flag] + following)
    return found


_REFUSED_BY_ALL: Final = {
    "--bootstrap-controller": "brokers are asked here: use --bootstrap-server HOST:PORT",
    "--version": "`tidelog --version` tells it",
}


def action_first(
    arguments: list[str], actions: Collection[str], valued: Collection[str] = ()
) -> list[str]:
    """A word that begins is the action. One that follows an option with a value is that value: a
    topic may have the name of an action."""
    if arguments and arguments[0] in actions:
        return arguments
    for place, given in enumerate(arguments):
        if given.startswith("--") and given[2:] in actions:
            return [given[2:], *arguments[:place], *arguments[place + 1 :]]
    is_value = False
    for place, given in enumerate(arguments):
        if given in actions and not is_value:
            return [given, *arguments[:place], *arguments[place + 1 :]]
        is_value = given in valued and not is_value
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


def without_bootstrap(given: dict[str, str], bootstrap: str) -> dict[str, str]:
    """As in Kafka the flag says where the brokers are, and not a file. Where only the file says
    it, that is not passed over: another cluster might be changed."""
    servers = given.get("bootstrap.servers", bootstrap)
    if bootstrap == BOOTSTRAP_SERVER != servers:
        raise BadValue(f"bootstrap.servers={servers}: say --bootstrap-server {servers} instead")
    return {name: value for name, value in given.items() if name != "bootstrap.servers"}


def one_of(value: str, allowed: tuple[str, ...], option: str) -> str:
    if value not in allowed:
        raise BadValue(f"{option} {value}: must be one of {', '.join(allowed)}")
    return value
