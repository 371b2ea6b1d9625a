"""`tidelog zookeeper`: a ZooKeeper server for a cluster on this machine, in the foreground."""

import signal
from pathlib import Path
from types import FrameType
from typing import Annotated, NoReturn

import typer

from tidelog.base.errors import BadValue
from tidelog.world.real.zookeeper_server import PORT, Place, ZooKeeperServer

DEFAULT_FOLDER = "./tidelog-zookeeper"


class Told(Exception):
    """A signal to stop has come."""


def zookeeper(
    port: Annotated[int, typer.Option(help="Where brokers connect.", min=1, max=65_535)] = PORT,
    data: Annotated[
        Path, typer.Option(help="The folder for its data and its log.", file_okay=False)
    ] = Path(DEFAULT_FOLDER),
    config: Annotated[
        Path | None,
        typer.Option(help="A zoo.cfg, to be used as it is.", exists=True, dir_okay=False),
    ] = None,
) -> None:
    """Start a ZooKeeper server, which brokers of a cluster coordinate through.

    \b
    It comes with PySpark, and needs Java 17 or newer:
      pip install 'tidelog[spark]'
      tidelog zookeeper
    Then as many brokers as are wanted, each with its own id, port and folder:
      tidelog server --set zookeeper.connect=127.0.0.1:2181 --set broker.id=1 \\
        --set listeners=PLAINTEXT://127.0.0.1:9092 --set log.dirs=data-1

    It listens on this machine only, and stops on Ctrl-C or SIGTERM; its data stays. A single
    node, `tidelog server`, needs no ZooKeeper. For one that others reach, or an ensemble, write
    a zoo.cfg, or run any ZooKeeper 3.5 or newer.
    """
    server = ZooKeeperServer(Place(folder=data, port=port), config)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _stop)
    try:
        server.start()
        server.wait_until_serving()
        typer.echo(f"ZooKeeper serves on {server.address}, its log is {server.output}")
        status = server.wait()
    except Told:
        server.stop()
        return
    finally:
        server.kill()
    raise BadValue(f"ZooKeeper ended by itself, with status {status}: see {server.output}")


def _stop(_number: int, _frame: FrameType | None) -> NoReturn:
    raise Told
