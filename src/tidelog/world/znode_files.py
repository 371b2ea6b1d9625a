"""The files of a znode tree: one snapshot, and one journal of what was written since.

`snapshot` holds a whole tree up to a zxid and is replaced by rename. `journal-<zxid>` is named
by the first zxid it may hold, in hexadecimal: that behind its snapshot's. A new journal is made,
empty, before the snapshot it belongs to takes its name; the old one is removed afterwards. So
a snapshot without its journal, or a journal with content and without its snapshot, is damage
and is refused. Journals that are neither are what a crash left, and count for nothing.

`load` reads a folder and changes nothing in it; so it may be used while a server writes there.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from tidelog.base.coordination import CoordinationError
from tidelog.base.errors import BadValue
from tidelog.base.ports import Disk, File
from tidelog.log.files import read_whole, write_whole
from tidelog.world.znode_frames import frame, read_frames
from tidelog.world.znode_records import (
    JOURNAL,
    SNAPSHOT,
    Header,
    encode_node,
    read_header,
    read_nodes,
    read_transactions,
)
from tidelog.world.znode_tree import Change, When, ZnodeTree

FOLDER: Final = "znodes"
"""Inside the first log dir."""

_SNAPSHOT_NAME: Final = "snapshot"
_JOURNAL_NAME: Final = re.compile(r"journal-([0-9a-f]{16})")
_NODES_PER_FRAME: Final = 200
_RESTORE: Final = "restore the folder from a backup"


class Loaded(NamedTuple):
    tree: ZnodeTree
    zxid_max: int
    """No zxid above it was ever used, as far as the files can tell."""
    unfinished_bytes: int
    """At the end of the journal: a write that nobody was told had been done."""


class OpenJournal(NamedTuple):
    file: File
    size: int


def load(disk: Disk, folder: str) -> Loaded:
    """The tree as its files say; an empty one if there are none. Damage is refused by name."""
    names = disk.list(folder) if disk.stat(folder) is not None else []
    journals = _journals(names)
    tree = ZnodeTree()
    unfinished_bytes = 0
    if _SNAPSHOT_NAME in names:
        _read_snapshot(disk, f"{folder}/{_SNAPSHOT_NAME}", tree)
        strays = {zxid: name for zxid, name in journals.items() if zxid > tree.zxid + 1}
        own = journal_name(tree.zxid + 1)
        if own not in names:
            raise BadValue(f"{folder}: {own} is missing: {_RESTORE}")
        unfinished_bytes = _replay(disk, f"{folder}/{own}", tree)
    else:
        strays = journals
    for name in strays.values():
        _refuse_content(disk, f"{folder}/{name}")
    return Loaded(tree, max([tree.zxid, *journals]), unfinished_bytes)


def is_there(disk: Disk, folder: str) -> bool:
    """Whether a tree was ever begun in a folder."""
    return disk.stat(f"{folder}/{_SNAPSHOT_NAME}") is not None


def journal_name(first_zxid: int) -> str:
    return f"journal-{first_zxid:016x}"


def create_journal(disk: Disk, folder: str, first_zxid: int) -> OpenJournal:
    """Made durable, with its name."""
    file = disk.open(f"{folder}/{journal_name(first_zxid)}", "create")
    header = frame(Header(JOURNAL, first_zxid).encode(), 0)
    file.truncate(0)
    file.pwrite(header, 0)
    file.sync()
    disk.sync_folder(folder)
    return OpenJournal(file, len(header))


def encode_snapshot(tree: ZnodeTree) -> Iterator[bytes]:
    """The parts of a snapshot, one behind the other. The tree must not change meanwhile."""
    part = frame(Header(SNAPSHOT, tree.zxid, tree.count).encode(), 0)
    position = len(part)
    yield part
    nodes: list[bytes] = []
    for path, node in tree.walk():
        nodes.append(encode_node(path, node))
        if len(nodes) == _NODES_PER_FRAME:
            part = frame(b"".join(nodes), position)
            position += len(part)
            nodes.clear()
            yield part
    if nodes:
        yield frame(b"".join(nodes), position)


def start_anew(disk: Disk, folder: str, zxid: int, parts: Iterable[bytes]) -> OpenJournal:
    """Writes a snapshot up to a zxid and opens the journal that follows it. Every step is durable
    before the next, so a crash leaves the old pair of files or the new one."""
    journal = create_journal(disk, folder, zxid + 1)
    write_whole(disk, f"{folder}/{_SNAPSHOT_NAME}", b"".join(parts))
    for first_zxid, name in _journals(disk.list(folder)).items():
        if first_zxid <= zxid:
            disk.remove(f"{folder}/{name}")
    return journal


def _journals(names: list[str]) -> dict[int, str]:
    """By the first zxid."""
    matches = [match for name in names if (match := _JOURNAL_NAME.fullmatch(name))]
    return {int(match[1], 16): match[0] for match in matches}


def _read_snapshot(disk: Disk, path: str, tree: ZnodeTree) -> None:
    data = read_whole(disk, path)
    contents, end = read_frames(data, path)
    header = _read_header(contents, SNAPSHOT, path)
    nodes = [node for content in contents[1:] for node in read_nodes(content, path)]
    if end != len(data) or len(nodes) != header.nodes:
        raise BadValue(
            f"{path}: is damaged at byte {end}, after {len(nodes)} of {header.nodes} nodes: "
            f"{_RESTORE}"
        )
    for node_path, node in nodes:
        tree.add(node_path, node)
    tree.zxid = header.zxid


def _replay(disk: Disk, path: str, tree: ZnodeTree) -> int:
    """Does again what a journal holds; how many bytes at its end are an unfinished write."""
    data = read_whole(disk, path)
    contents, end = read_frames(data, path)
    if _read_header(contents, JOURNAL, path).zxid != tree.zxid + 1:
        raise BadValue(f"{path}: its name is not that of its content: {_RESTORE}")
    for content in contents[1:]:
        for when, changes in read_transactions(content, path):
            _do_again(tree, when, changes, path)
    return len(data) - end


def _do_again(tree: ZnodeTree, when: When, changes: list[Change], path: str) -> None:
    if when.zxid <= tree.zxid:
        raise BadValue(f"{path}: zxid {when.zxid:#x} stands behind {tree.zxid:#x}: {_RESTORE}")
    try:
        tree.write(changes, when)
    except CoordinationError as error:
        raise BadValue(f"{path}: zxid {when.zxid:#x} cannot be done again: {error}") from None


def _read_header(contents: list[bytes], kind: bytes, path: str) -> Header:
    return read_header(contents[0] if contents else b"", kind, path)


def _refuse_content(disk: Disk, path: str) -> None:
    """A crash leaves a journal without its snapshot only while there is nothing in it."""
    contents, _ = read_frames(read_whole(disk, path), path)
    if len(contents) > 1:
        raise BadValue(f"{path}: the snapshot it goes with is missing: {_RESTORE}")
