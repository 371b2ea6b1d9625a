"""What is inside the frames of a journal and of a snapshot of the znode tree.

The first frame of either file is its header:

     0  kind        4   'jrnl' or 'snap'
     4  format      4   1
     8  zxid        8   journal: the first it may hold; snapshot: the last it holds
    16  nodes       8   snapshot: how many it holds; journal: 0

Every other frame of a journal is a lot of transactions, one behind the other, that were made
durable together:

     0  zxid        8
     8  time        8   milliseconds since 1970
    16  session     8   who wrote it
    24  count       4   of operations
    28  operations, each:
         0  kind         1   1 create, 2 create ephemeral, 3 set data, 4 delete
         1  path length  4   of its UTF-8
         5  data length  4
         9  path, data

Every other frame of a snapshot is a lot of nodes, parents before their children:

     0  path length         4
     4  data length         4
     8  created zxid        8
    16  modified zxid       8
    24  created ms          8
    32  modified ms         8
    40  version             8
    48  creations           8   of children, ever
    56  owner               8   session of an ephemeral node, else 0
    64  path, data

All numbers are big-endian.
"""

import struct
from collections.abc import Iterable, Iterator
from struct import Struct
from typing import Final, NamedTuple

from tidelog.base.coordination import Create, Delete, SetData
from tidelog.base.errors import BadValue
from tidelog.world.znode_tree import Change, When, Znode

JOURNAL: Final = b"jrnl"
SNAPSHOT: Final = b"snap"
FORMAT: Final = 1

_HEADER: Final = Struct(">4sIQQ")
_TRANSACTION: Final = Struct(">QqQI")
_OPERATION: Final = Struct(">BII")
_NODE: Final = Struct(">IIQQqqQQQ")

_CREATE: Final = 1
_CREATE_EPHEMERAL: Final = 2
_SET_DATA: Final = 3
_DELETE: Final = 4


_MALFORMED: Final = (struct.error, UnicodeDecodeError)


class Header(NamedTuple):
    kind: bytes
    zxid: int
    nodes: int = 0

    def encode(self) -> bytes:
        return _HEADER.pack(self.kind, FORMAT, self.zxid, self.nodes)


class Transaction(NamedTuple):
    when: When
    changes: list[Change]


def read_header(content: bytes, kind: bytes, name: str) -> Header:
    if len(content) != _HEADER.size:
        raise BadValue(f"{name}: does not begin as such a file must")
    found, version, zxid, nodes = _HEADER.unpack(content)
    if found != kind:
        raise BadValue(f"{name}: is of kind {found!r}, and must be of kind {kind!r}")
    if version != FORMAT:
        raise BadValue(f"{name}: has format {version}; this version of tidelog reads {FORMAT}")
    return Header(kind, zxid, nodes)


def encode_transaction(when: When, changes: Iterable[Change]) -> bytes:
    operations = [_encode_operation(change) for change in changes]
    return _TRANSACTION.pack(*when, len(operations)) + b"".join(operations)


def _encode_operation(change: Change) -> bytes:
    path = change.path.encode()
    match change:
        case Create():
            kind, data = (_CREATE_EPHEMERAL if change.ephemeral else _CREATE), change.data
        case SetData():
            kind, data = _SET_DATA, change.data
        case Delete():
            kind, data = _DELETE, b""
    return _OPERATION.pack(kind, len(path), len(data)) + path + data


def read_transactions(content: bytes, name: str) -> Iterator[Transaction]:
    """What a frame of a journal holds; refused by the file's name if it makes no sense."""
    at = 0
    try:
        while at < len(content):
            zxid, now_ms, session_id, count = _TRANSACTION.unpack_from(content, at)
            at += _TRANSACTION.size
            changes: list[Change] = []
            for _ in range(count):
                change, at = _read_operation(content, at)
                changes.append(change)
            yield Transaction(When(zxid, now_ms, session_id), changes)
    except _MALFORMED as error:
        raise _senseless(name, error) from None


def _read_operation(content: bytes, at: int) -> tuple[Change, int]:
    kind, path_size, data_size = _OPERATION.unpack_from(content, at)
    path, data, at = _read_path_and_data(content, at + _OPERATION.size, path_size, data_size)
    if kind == _SET_DATA:
        return SetData(path=path, data=data), at
    if kind == _DELETE:
        return Delete(path=path), at
    if kind not in (_CREATE, _CREATE_EPHEMERAL):
        raise struct.error(f"an operation of kind {kind}")
    return Create(path=path, data=data, ephemeral=kind == _CREATE_EPHEMERAL), at


def _read_path_and_data(
    content: bytes, at: int, path_size: int, data_size: int
) -> tuple[str, bytes, int]:
    data_at = at + path_size
    end = data_at + data_size
    if end > len(content):
        raise struct.error(f"{end - len(content)} bytes are missing")
    return content[at:data_at].decode(), content[data_at:end], end


def encode_node(path: str, node: Znode) -> bytes:
    path_bytes = path.encode()
    return (
        _NODE.pack(
            len(path_bytes),
            len(node.data),
            node.created_zxid,
            node.modified_zxid,
            node.created_ms,
            node.modified_ms,
            node.version,
            node.creations,
            node.owner,
        )
        + path_bytes
        + node.data
    )


def read_nodes(content: bytes, name: str) -> Iterator[tuple[str, Znode]]:
    """What a frame of a snapshot holds; refused by the file's name if it makes no sense."""
    at = 0
    try:
        while at < len(content):
            path_size, data_size, created_zxid, modified_zxid, created_ms, *rest = (
                _NODE.unpack_from(content, at)
            )
            path, data, at = _read_path_and_data(content, at + _NODE.size, path_size, data_size)
            node = Znode(data, When(created_zxid, created_ms), rest[3])
            node.modified_zxid = modified_zxid
            node.modified_ms, node.version, node.creations, _ = rest
            yield path, node
    except _MALFORMED as error:
        raise _senseless(name, error) from None


def _senseless(name: str, error: Exception) -> BadValue:
    return BadValue(f"{name}: a record with a good checksum makes no sense: {error}")
