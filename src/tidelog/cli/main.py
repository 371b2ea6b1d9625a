"""`tidelog`, the command line: which commands there are, and what a mistake looks like.

A command's module is imported when the command is used, so that `--help` and a mistyped name
answer at once, whatever the others need. Mistakes that people make (a wrong value, a file that
is not there, a full disk) end with one line on the standard error and status 1; a traceback
always means a bug of ours.
"""

import os
import signal
import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Annotated, Any, Final

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_group

from tidelog.cli.mistakes import explain

COMMANDS: Final[Mapping[str, tuple[str, str]]] = {
    "server": ("tidelog.cli.server:server", "Start a broker."),
    "up": ("tidelog.cli.up:up", "Start a cluster: ZooKeeper and three brokers."),
    "zookeeper": ("tidelog.cli.zookeeper:zookeeper", "Start a ZooKeeper server for a cluster."),
    "topics": ("tidelog.cli.topics:app", "Make, list, describe and delete topics."),
    "configs": ("tidelog.cli.configs:app", "Show and change the settings of topics and brokers."),
    "reassign": ("tidelog.cli.reassign:app", "Move replicas between brokers."),
    "elect-leaders": ("tidelog.cli.elect_leaders:elect_leaders", "Give partitions new leaders."),
    "groups": ("tidelog.cli.groups:app", "List, describe, reset and delete consumer groups."),
    "transactions": (
        "tidelog.cli.transactions:app",
        "Look at transactions, and abort those that hang.",
    ),
    "produce": ("tidelog.cli.produce:produce", "Write lines to a topic, as records."),
    "consume": ("tidelog.cli.consume:consume", "Print the records of a topic."),
    "demo": ("tidelog.cli.demo:demo", "Watch Kafka clients use a node that is killed under them."),
    "dump-log": ("tidelog.cli.dump_log:dump_log", "Print what is in the files of a log."),
    "pipeline": ("tidelog.cli.pipeline:app", "Make and run pipelines on Spark."),
    "dlq": ("tidelog.cli.dlq:app", "Look at dead letters, and write them back."),
    "replay": ("tidelog.cli.replay:replay_topic", "Copy part of a topic to another, by Spark."),
    "audit": ("tidelog.cli.audit:audit", "Compare the replicas of a topic, as a Spark job."),
    "trials": ("tidelog.cli.trials:app", "Explore the cluster when everything goes wrong."),
    "znode": ("tidelog.cli.znode:app", "Look at the nodes a server keeps its metadata in."),
    "kernels": ("tidelog.cli.kernels:app", "Compile the loops over records ahead of their use."),
}
"""Name, where it is defined, and what `tidelog --help` says about it."""


class Later(TyperCommand):
    """A command that is known by name, and imported when somebody calls it. Where its module has
    a `Style`, that is the class of the command, and says how arguments are read."""

    def __init__(self, name: str, where: str, summary: str) -> None:
        super().__init__(name, help=summary)
        self._where = where

    def make_context(self, *arguments: Any, **extra: Any) -> Any:
        return self.load().make_context(*arguments, **extra)

    def load(self) -> Any:
        module_name, _, attribute = self._where.partition(":")
        module = import_module(module_name)
        found = getattr(module, attribute)
        around = typer.Typer(rich_markup_mode=None)
        if isinstance(found, typer.Typer):
            around.add_typer(found, name=self.name)
        else:
            around.command(self.name, cls=getattr(module, "Style", None))(found)
        return get_group(around).commands[str(self.name)]


class Commands(TyperGroup):
    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for name, (where, summary) in COMMANDS.items():
            self.add_command(Later(name, where, summary))

    def invoke(self, context: Any) -> Any:
        """Only here is Ctrl-C an exception, if it was made to end the process at its entry: a
        command may have something to put in order. Whoever typed it knows that; the status is what
        shells give for SIGINT."""
        ends_at_once = signal.getsignal(signal.SIGINT) is signal.SIG_DFL
        try:
            if ends_at_once:
                signal.signal(signal.SIGINT, signal.default_int_handler)
            return self._invoke(context)
        except KeyboardInterrupt as interrupt:
            raise typer.Exit(130) from interrupt
        finally:
            if ends_at_once:
                signal.signal(signal.SIGINT, signal.SIG_DFL)

    def _invoke(self, context: Any) -> Any:
        try:
            found = super().invoke(context)
            sys.stdout.flush()
            return found
        except BrokenPipeError:
            raise  # Whoever reads has seen enough, as in `| head`; typer ends without a word.
        except Exception as error:
            if isinstance(error.__cause__, KeyboardInterrupt):
                # So it looks where Python was making a class, as it does while modules are loaded.
                raise error.__cause__ from None
            explanation = explain(error)
            if explanation is None:
                raise
            _end_output()
            typer.echo(f"tidelog: {explanation}", err=True)
            raise typer.Exit(1) from error


def _end_output() -> None:
    """What was printed comes before what is said of it. Where it cannot be written it goes nowhere,
    or Python would try again at its end, and say so."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


app = typer.Typer(
    cls=Commands,
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    # Plain help appears in half the time that the one with boxes takes.
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"tidelog {version('tidelog')}")
        raise typer.Exit


@app.callback()
def tidelog(
    _version: Annotated[
        bool,
        typer.Option(
            "--version", is_eager=True, callback=_print_version, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """A replicated commit log that speaks Kafka's protocol, with its data pipeline on Spark.

    Its files are Kafka's own, byte for byte: what tidelog writes Kafka reads, and the other way
    round.

    \b
    A first thing to try, a few seconds long:
      tidelog demo
    Then look into the files it made:
      tidelog demo --folder seen
      tidelog dump-log --print-data-log --files seen/data/prices-0/00000000000000000000.log
    A broker, and records through it:
      tidelog server
      tidelog produce orders 'a first record'
      tidelog consume orders --from-beginning
    A cluster of three:
      tidelog up

    `tidelog COMMAND --help` explains each command.
    """


if __name__ == "__main__":
    app()
