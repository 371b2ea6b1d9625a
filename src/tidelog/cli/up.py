"""`tidelog up`: ZooKeeper and a few brokers on this machine, in the foreground."""

import signal
from pathlib import Path
from types import FrameType
from typing import Annotated, NoReturn

import typer

from tidelog.base.errors import BadValue
from tidelog.cli.local_cluster import LocalCluster

DEFAULT_FOLDER = "./tidelog-cluster"
SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Told(Exception):
    """A signal to stop has come."""


def up(
    brokers: Annotated[int, typer.Option(help="How many brokers.", min=1, max=32)] = 3,
    port: Annotated[
        int,
        typer.Option(help="Of the first broker; the others have the next ones.", min=1, max=65_000),
    ] = 9092,
    data: Annotated[
        Path, typer.Option(help="The folder for the data and logs of all of them.", file_okay=False)
    ] = Path(DEFAULT_FOLDER),
    zookeeper_port: Annotated[
        int, typer.Option(help="Where ZooKeeper listens.", min=1, max=65_535)
    ] = 2181,
    assignments: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="A setting for every broker. As often as needed.",
        ),
    ] = None,
) -> None:
    """Start a cluster: ZooKeeper and three brokers, each a process of its own.

    \b
    It needs Java 17 or newer, and PySpark, which has the ZooKeeper server in it:
      pip install 'tidelog[spark]'
      tidelog up
    Then, in another terminal:
      tidelog topics create orders --partitions 6 --replication-factor 3
      tidelog produce orders 'a first record'
      tidelog topics describe orders
    Kill a broker and see its partitions move: kill -9 with one of the process ids it prints.

    Everything stops on Ctrl-C or SIGTERM, and at once if that comes twice; the data stays. Until
    then ZooKeeper stays even if all brokers have died, for those that are started again by hand.
    A single node, `tidelog server`, needs neither Java nor ZooKeeper.
    """
    given = dict(_split(assignment) for assignment in assignments or [])
    cluster = LocalCluster(data, brokers, port, zookeeper_port, given)
    try:
        _run(cluster)
    finally:
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        cluster.kill()


def _run(cluster: LocalCluster) -> None:
    """Until it is told to stop. Told again, it leaves what still runs to be killed."""
    try:
        for number in SIGNALS:
            signal.signal(number, _stop)
        for line in cluster.starting():
            typer.echo(line)
        typer.echo(f"bootstrap servers: {cluster.bootstrap}")
        for line in cluster.watching():
            typer.echo(line, err=True)
    except Told:
        try:
            has_lost_all = cluster.has_lost_all
            for line in cluster.stopping():
                typer.echo(line)
        except Told:
            raise BadValue("told to stop twice: what was left is killed") from None
        if has_lost_all:
            raise BadValue("all brokers had ended before it was told to stop") from None


def _split(assignment: str) -> tuple[str, str]:
    name, separator, value = assignment.partition("=")
    if not separator or not name.strip():
        raise BadValue(f"--set {assignment}: must be NAME=VALUE")
    return name.strip(), value.strip()


def _stop(_number: int, _frame: FrameType | None) -> NoReturn:
    raise Told
