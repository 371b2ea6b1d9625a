"""A Spark session for a command: here, on a cluster, or at a Connect server.

What Spark would say in a page of Java is said here in a sentence before it is started: no PySpark,
one of another version, no Java or an old one, no Connect server. Python workers run the Python that
runs the command, which has what they need. What Java says for itself is of no use to whoever runs a
command, and is kept off the terminal: what goes wrong comes back as an error.
"""

import logging
import os
import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Annotated, Any, Final
from urllib.parse import urlsplit

import typer

from tidelog.base.errors import BadValue
from tidelog.cli.free_ports import HOST
from tidelog.spark.worker_python import worker_variables
from tidelog.world.real.java import find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PYSPARK: Final = "4.3."
HERE: Final = "local[*]"
_CONNECT_PORT: Final = 15002
_CONNECT_SECONDS_MAX: Final = 5.0
_STDERR: Final = 2
_LINES_SHOWN: Final = 5
QUIET: Final[Mapping[str, str]] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "8",
    "spark.log.level": "ERROR",
}

Master = Annotated[
    str | None,
    typer.Option(metavar="URL", help=f"Where Spark runs (default: {HERE}, in this process)."),
]
Remote = Annotated[
    str | None, typer.Option(metavar="sc://HOST:PORT", help="A Spark Connect server to use.")
]


def check_place(master: str | None, remote: str | None) -> None:
    """Whether Spark can be used there; only a server that runs elsewhere needs no Java here."""
    if master is not None and remote is not None:
        raise BadValue("--master and --remote: one of them")
    check_spark(needs_java=remote is None)
    if remote is not None:
        check_remote(remote)


def check_remote(remote: str) -> None:
    """Whether anybody listens there: Spark's client would try for minutes, and say nothing."""
    try:
        parts = urlsplit(remote)
        host, port = parts.hostname, parts.port or _CONNECT_PORT
    except ValueError:
        host, port = None, 0
    if host is None or parts.scheme != "sc":
        raise BadValue(f"--remote {remote}: must be sc://HOST:PORT")
    try:
        socket.create_connection((host, port), _CONNECT_SECONDS_MAX).close()
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise BadValue(f"--remote {remote}: no Connect server is there: {why}") from None


def check_spark(*, needs_java: bool = True) -> None:
    """Raises what a person can act on, if Spark cannot be used here."""
    try:
        found = version("pyspark")
    except PackageNotFoundError:
        raise BadValue("this needs PySpark: pip install 'tidelog[spark]'") from None
    if not found.startswith(PYSPARK):
        raise BadValue(
            f"this needs PySpark {PYSPARK}x, and {found} is installed: pip install 'tidelog[spark]'"
        )
    if needs_java:
        find_java("Spark")


def spark_environment(master: str | None) -> dict[str, str]:
    """What Spark needs to be told, where nobody has said otherwise. On a cluster its driver must be
    reached from other machines, so that the address is left to Spark."""
    told = worker_variables()
    if master is None or master.startswith("local"):
        told["SPARK_LOCAL_IP"] = HOST
    return {name: os.environ.get(name, value) for name, value in told.items()}


@contextmanager
def spark_session(
    name: str,
    *,
    master: str | None = None,
    remote: str | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Iterator["SparkSession"]:
    check_place(master, remote)
    os.environ.update(spark_environment(master))
    logging.getLogger("py4j").setLevel(logging.ERROR)
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(name)
    builder = builder.remote(remote) if remote else builder.master(master or HERE)
    for key, value in {**QUIET, **(settings or {})}.items():
        builder = builder.config(key, value)
    with java_apart():
        session = builder.getOrCreate()
    try:
        yield session
    finally:
        session.stop()


@contextmanager
def java_apart() -> Iterator[None]:
    """Processes that are started meanwhile write to a file that nobody sees; if that ends badly,
    its last lines are told."""
    with TemporaryFile() as said:
        sys.stderr.flush()
        before = os.dup(_STDERR)
        os.dup2(said.fileno(), _STDERR)
        try:
            yield
        except Exception as error:
            said.seek(0)
            last = said.read().decode(errors="replace").splitlines()[-_LINES_SHOWN:]
            raise BadValue("\n".join(["Spark did not start:", str(error), *last])) from error
        finally:
            os.dup2(before, _STDERR)
            os.close(before)
