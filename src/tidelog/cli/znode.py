"""`tidelog znode get|ls`: what the coordination holds, for people and for scripts.

A single server's tree is read from its files and never changed, so it makes no difference whether
the server runs. If it does, the last write to be seen may be one that it is just making durable.
A cluster's is read from its ZooKeeper.
"""

import json
import sys
from base64 import b64encode
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import asdict
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, Any, Final, Protocol

import typer

from tidelog.base.coordination import CoordinationError, Node, Stat, Trouble
from tidelog.base.errors import BadValue
from tidelog.cli.defaults import DEFAULT_FOLDER
from tidelog.cli.server import read_settings
from tidelog.log.dump_text import printable
from tidelog.world.real.disk import RealDisk
from tidelog.world.znode_files import FOLDER, is_there, load
from tidelog.world.znode_paths import ROOT, join_path, split_path
from tidelog.world.znode_tree import ZnodeTree

_ATTEMPTS: Final = 20
_NAMES_MAX: Final = 10
_IN_HEXADECIMAL: Final = ("created_zxid", "modified_zxid", "ephemeral_owner")

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

_NodePath = Annotated[str, typer.Argument(metavar="PATH", help="Such as /brokers/topics.")]
_Folder = Annotated[
    Path | None,
    typer.Option(
        "--dir", metavar="DIR", help=f"The server's data folder. [default: {DEFAULT_FOLDER}]"
    ),
]
_Config = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="The server.properties that names it."),
]
_ZooKeeper = Annotated[
    str | None,
    typer.Option(
        "--zookeeper", metavar="CONNECT", help="A cluster's ZooKeeper: host:port,host:port/chroot."
    ),
]
_Json = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]


@app.callback()
def znode() -> None:
    """Look at the nodes in which topics, configs and ids are kept, by a server or in ZooKeeper.

    \b
    For example:
      tidelog znode ls -R
      tidelog znode get /brokers/topics/orders/partitions/0/state
      tidelog znode ls /brokers/ids --zookeeper 127.0.0.1:2181

    A single server need not run for it; of a cluster, its ZooKeeper must.
    """


class _Nodes(Protocol):
    """A tree of nodes, wherever it is."""

    def get(self, path: str) -> Node: ...

    def children(self, path: str) -> list[str]: ...

    def exists(self, path: str) -> Stat | None: ...


@app.command()
def get(
    path: _NodePath,
    folder: _Folder = None,
    config: _Config = None,
    zookeeper: _ZooKeeper = None,
    with_stat: Annotated[
        bool, typer.Option("--stat", "-s", help="Also versions, zxids, times and owner.")
    ] = False,
    as_json: _Json = False,
) -> None:
    """Print the data of a node."""
    with _open(folder, config, zookeeper) as nodes:
        node = _find(nodes, path)
    if as_json:
        _print(json.dumps({"path": path, **_data(node.data), **asdict(node.stat)}, indent=2))
        return
    _print(printable(node.data))
    if with_stat:
        for name, value in asdict(node.stat).items():
            _print(f"{name} = {f'{value:#x}' if name in _IN_HEXADECIMAL else value}")


@app.command()
def ls(
    path: _NodePath = "/",
    folder: _Folder = None,
    config: _Config = None,
    zookeeper: _ZooKeeper = None,
    recursive: Annotated[
        bool, typer.Option("--recursive", "-R", help="All that is below it, as a tree.")
    ] = False,
    as_json: _Json = False,
) -> None:
    """Print the names below a node."""
    with _open(folder, config, zookeeper) as nodes:
        _find(nodes, path)
        if as_json:
            names = list(_walk(nodes, path)) if recursive else nodes.children(path)
            _print(json.dumps(names, indent=2))
            return
        for line in _branches(nodes, path, path) if recursive else nodes.children(path):
            _print(printable(line.encode()))


def _open(
    folder: Path | None, config: Path | None, zookeeper: str | None
) -> AbstractContextManager[_Nodes]:
    if sum(given is not None for given in (folder, config, zookeeper)) > 1:
        raise BadValue("--dir, --config and --zookeeper each name the tree: give one of them")
    settings = read_settings(config, [])
    if zookeeper is None and settings["zookeeper.connect"] is not None:
        zookeeper = settings.text("zookeeper.connect")
    if zookeeper is not None:
        from tidelog.world.real.zookeeper_reading import ReadZooKeeper

        return closing(ReadZooKeeper(zookeeper))
    where = f"{folder or settings.log_dirs[0]}/{FOLDER}"
    if not is_there(RealDisk(), where):
        raise BadValue(
            f"{where}: there is no tree of znodes; name the data folder of a server with --dir, "
            "its file with --config, or a cluster's ZooKeeper with --zookeeper"
        )
    return nullcontext(_load_while_in_use(where))


def _load_while_in_use(folder: str) -> ZnodeTree:
    """A server may replace a file between two looks at it; so what seems wrong is looked at
    again."""
    for _ in range(_ATTEMPTS - 1):
        try:
            return load(RealDisk(), folder).tree
        except (BadValue, FileNotFoundError):
            continue
    return load(RealDisk(), folder).tree


def _find(nodes: _Nodes, path: str) -> Node:
    try:
        return nodes.get(path)
    except CoordinationError as error:
        if error.trouble is Trouble.bad_arguments:
            raise BadValue(
                f"{path}: must begin with /, and have a name between any two of them"
            ) from None
        if error.trouble is not Trouble.no_node:
            raise BadValue(str(error)) from None
    above, _ = split_path(path)
    while above != ROOT and nodes.exists(above) is None:
        above, _ = split_path(above)
    names = (nodes.children(above) if nodes.exists(above) else []) or ["nothing"]
    more = ["..."] if len(names) > _NAMES_MAX else []
    there = printable(", ".join(names[:_NAMES_MAX] + more).encode())
    raise BadValue(f"{path}: there is no such node; below {above} there is {there}")


def _data(data: bytes) -> dict[str, Any]:
    try:
        return {"data": data.decode()}
    except UnicodeDecodeError:
        return {"data_base64": b64encode(data).decode()}


def _walk(nodes: _Nodes, path: str) -> Iterator[str]:
    """A node and all below it, parents before their children, names in order."""
    yield path
    for name in _names_below(nodes, path):
        yield from _walk(nodes, join_path(path, name))


def _branches(nodes: _Nodes, path: str, name: str, indent: str = "") -> Iterator[str]:
    stat = nodes.exists(path)
    yield f"{name} (ephemeral)" if stat is not None and stat.ephemeral_owner else name
    children = _names_below(nodes, path)
    for number, child in enumerate(children, start=1):
        is_last = number == len(children)
        first, others = ("└── ", "    ") if is_last else ("├── ", "│   ")
        lines = _branches(nodes, join_path(path, child), child, indent + others)
        yield f"{indent}{first}{next(lines)}"
        yield from lines


def _names_below(nodes: _Nodes, path: str) -> list[str]:
    """None below a node that is gone since its parent was looked at."""
    try:
        return nodes.children(path)
    except CoordinationError as error:
        if error.trouble is Trouble.no_node:
            return []
        raise BadValue(str(error)) from None


def _print(line: str) -> None:
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    sys.stdout.write(f"{line}\n")
