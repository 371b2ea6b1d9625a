"""`tidelog znode get|ls`: what a single node's coordination holds, for people and for scripts.

The tree is read from its files and never changed, so it makes no difference whether the server
runs. If it does, the last write to be seen may be one that it is just making durable.
"""

import json
import sys
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import asdict
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from tidelog.base.coordination import CoordinationError, Trouble
from tidelog.base.errors import BadValue
from tidelog.cli.defaults import DEFAULT_FOLDER
from tidelog.cli.server import read_settings
from tidelog.log.dump_text import printable
from tidelog.world.real.disk import RealDisk
from tidelog.world.znode_files import FOLDER, is_there, load
from tidelog.world.znode_paths import split_path
from tidelog.world.znode_tree import Znode, ZnodeTree

_ATTEMPTS: Final = 5
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
_Json = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]


@app.callback()
def znode() -> None:
    """Look at the nodes in which a single server keeps its topics, configs and ids.

    \b
    For example:
      tidelog znode ls -R
      tidelog znode get /brokers/topics/orders/partitions/0/state

    Works while the server runs and when it does not.
    """


@app.command()
def get(
    path: _NodePath,
    folder: _Folder = None,
    config: _Config = None,
    with_stat: Annotated[
        bool, typer.Option("--stat", "-s", help="Also versions, zxids, times and owner.")
    ] = False,
    as_json: _Json = False,
) -> None:
    """Print the data of a node."""
    node = _find(_open(folder, config), path)
    if as_json:
        _print(json.dumps({"path": path, **_data(node.data), **asdict(node.stat())}, indent=2))
        return
    _print(printable(node.data))
    if with_stat:
        for name, value in asdict(node.stat()).items():
            _print(f"{name} = {f'{value:#x}' if name in _IN_HEXADECIMAL else value}")


@app.command()
def ls(
    path: _NodePath = "/",
    folder: _Folder = None,
    config: _Config = None,
    recursive: Annotated[
        bool, typer.Option("--recursive", "-R", help="All that is below it, as a tree.")
    ] = False,
    as_json: _Json = False,
) -> None:
    """Print the names below a node."""
    tree = _open(folder, config)
    node = _find(tree, path)
    if as_json:
        names = [below for below, _ in tree.walk(path)] if recursive else tree.children(path)
        _print(json.dumps(names, indent=2))
        return
    for line in _branches(path, node) if recursive else tree.children(path):
        _print(printable(line.encode()))


def _open(folder: Path | None, config: Path | None) -> ZnodeTree:
    if folder is not None and config is not None:
        raise BadValue("--dir and --config both name the folder: give one of them")
    settings = read_settings(config, [])
    if settings["zookeeper.connect"] is not None:
        raise BadValue(
            f"{config}: zookeeper.connect is set, so the nodes are in ZooKeeper and not in files"
        )
    where = f"{folder or settings.log_dirs[0]}/{FOLDER}"
    if not is_there(RealDisk(), where):
        raise BadValue(
            f"{where}: there is no tree of znodes; name the data folder of a server with --dir, or "
            "its file with --config"
        )
    return _load_while_in_use(where)


def _load_while_in_use(folder: str) -> ZnodeTree:
    """A server may replace a file between two looks at it; so what seems wrong is looked at
    again."""
    for _ in range(_ATTEMPTS - 1):
        try:
            return load(RealDisk(), folder).tree
        except (BadValue, FileNotFoundError):
            continue
    return load(RealDisk(), folder).tree


def _find(tree: ZnodeTree, path: str) -> Znode:
    try:
        return tree.find(path)
    except CoordinationError as error:
        if error.trouble is Trouble.bad_arguments:
            raise BadValue(
                f"{path}: must begin with /, and have a name between any two of them"
            ) from None
    above, _ = split_path(path)
    while tree.exists(above) is None:
        above, _ = split_path(above)
    names = tree.children(above) or ["nothing"]
    more = ["..."] if len(names) > _NAMES_MAX else []
    there = printable(", ".join(names[:_NAMES_MAX] + more).encode())
    raise BadValue(f"{path}: there is no such node; below {above} there is {there}")


def _data(data: bytes) -> dict[str, Any]:
    try:
        return {"data": data.decode()}
    except UnicodeDecodeError:
        return {"data_base64": b64encode(data).decode()}


def _branches(name: str, node: Znode, indent: str = "") -> Iterator[str]:
    yield f"{name} (ephemeral)" if node.owner else name
    children = sorted((node.children or {}).items())
    for number, (child_name, child) in enumerate(children, start=1):
        is_last = number == len(children)
        first, others = ("└── ", "    ") if is_last else ("├── ", "│   ")
        lines = _branches(child_name, child, indent + others)
        yield f"{indent}{first}{next(lines)}"
        yield from lines


def _print(line: str) -> None:
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    sys.stdout.write(f"{line}\n")
