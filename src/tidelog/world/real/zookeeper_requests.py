# mypy: disable-error-code="import-untyped"
"""Requests to ZooKeeper and their answers, in kazoo's terms on one side and the port's on the
other: bytes, stats, and what went wrong and where.

Every write is a `multi`, also of one operation: a check can be nothing else, and of a `multi`
that fails ZooKeeper says which operation it was.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, TypeVar

from kazoo import exceptions as errors
from kazoo.protocol import serialization as wire
from kazoo.security import OPEN_ACL_UNSAFE

from tidelog.base.coordination import (
    Check,
    CoordinationError,
    Create,
    Delete,
    Done,
    Node,
    Operation,
    SetData,
    Stat,
    Trouble,
    Watch,
    WatchKind,
    Written,
)
from tidelog.world.znode_paths import ROOT, check_path

Answer = TypeVar("Answer")

REQUEST_BYTES_MAX: Final = 1_040_000
"""ZooKeeper takes a little more than 1 MB; for anything larger it closes the connection."""
_OPERATION_BYTES: Final = 80
_SET_WATCHES_TYPE: Final = 101
_EPHEMERAL, _SEQUENCE = 1, 2

_TROUBLES: Final[dict[type[Exception], Trouble]] = {
    errors.NoNodeError: Trouble.no_node,
    errors.NodeExistsError: Trouble.node_exists,
    errors.BadVersionError: Trouble.bad_version,
    errors.NotEmptyError: Trouble.not_empty,
    errors.NoChildrenForEphemeralsError: Trouble.no_children_for_ephemerals,
    errors.BadArgumentsError: Trouble.bad_arguments,
    errors.InvalidACLError: Trouble.bad_arguments,
    errors.SessionExpiredError: Trouble.session_expired,
    errors.ConnectionClosedError: Trouble.session_expired,
}

WATCH_KINDS: Final = {
    1: WatchKind.created,
    2: WatchKind.deleted,
    3: WatchKind.changed,
    4: WatchKind.children,
}


class Asked(Generic[Answer]):
    """Something that was asked for: what to send, and whom to tell."""

    __slots__ = (
        "_arrived",
        "_done",
        "_read",
        "_wire",
        "connection",
        "is_answered",
        "path",
        "refused",
        "type",
        "watch",
    )

    def __init__(self, path: str, done: Done[Answer], wire_request: Any) -> None:
        self.path = path
        self.type: int = wire_request.type
        self.connection = 0
        self.is_answered = False
        self.watch: Watch | None = None
        self.refused: CoordinationError | None = None
        """It cannot be, and is not sent; its answer still waits for those before it."""
        self._wire = wire_request
        self._read: Callable[[Any], Answer] = _same
        self._done = done
        self._arrived: Callable[[Asked[Any], Any], None] = _nobody

    @property
    def is_of_children(self) -> bool:
        return self.type == int(wire.GetChildren.type)

    def reading(self, read: Callable[[Any], Answer]) -> "Asked[Answer]":
        """How kazoo's answer becomes the port's."""
        self._read = read
        return self

    def reporting(self, arrived: Callable[["Asked[Any]", Any], None]) -> "Asked[Answer]":
        """To whom the answer goes, in kazoo's thread."""
        self._arrived = arrived
        return self

    def tell(self, answer: Answer | CoordinationError) -> None:
        self.is_answered = True
        self._done(answer)

    def fail(self, trouble: Trouble) -> None:
        self.tell(self.refused or CoordinationError(trouble, self.path))

    # What kazoo calls, in its thread.

    def serialize(self) -> bytes:
        return bytes(self._wire.serialize())

    def deserialize(self, data: bytes, offset: int) -> Any:
        return self._wire.deserialize(data, offset)

    def set(self, answer: Any) -> None:
        try:
            self._arrived(self, self._read(answer))
        except CoordinationError as error:
            self._arrived(self, error)

    def set_exception(self, error: Exception) -> None:
        self._arrived(self, CoordinationError(trouble_of(error), self.path))


class SetWatches:
    """Leaves watches again, on a new connection. What happened meanwhile is told at once, before
    the answer to this."""

    type = _SET_WATCHES_TYPE

    def __init__(self, last_zxid: int, lists: Sequence[Sequence[str]]) -> None:
        """The lists: of nodes that were there, of nodes that were not, of nodes with children."""
        self._last_zxid = last_zxid
        self._lists = lists

    def serialize(self) -> bytes:
        parts = [wire.long_struct.pack(self._last_zxid)]
        for paths in self._lists:
            parts.append(wire.int_struct.pack(len(paths)))
            parts += map(wire.write_string, paths)
        return b"".join(parts)

    def deserialize(self, _data: bytes, _offset: int) -> None:
        """There is nothing in it."""


def trouble_of(error: Exception) -> Trouble:
    """Whatever else ZooKeeper or kazoo may say, nobody knows what was done."""
    return _TROUBLES.get(type(error), Trouble.connection_loss)


def ask_data(path: str, is_watched: bool) -> Any:
    return wire.GetData(path, is_watched)


def ask_children(path: str, is_watched: bool) -> Any:
    return wire.GetChildren(path, is_watched)


def ask_existence(path: str, is_watched: bool) -> Any:
    return wire.Exists(path, is_watched)


def read_node(answer: tuple[bytes | None, Any]) -> Node:
    data, stat = answer
    return Node(data or b"", read_stat(stat))


def read_existence(stat: Any) -> Stat | None:
    return None if stat is None else read_stat(stat)


def read_stat(stat: Any) -> Stat:
    return Stat(
        created_zxid=stat.czxid,
        modified_zxid=stat.mzxid,
        version=stat.version,
        children_version=stat.cversion,
        ephemeral_owner=stat.ephemeralOwner,
        created_ms=stat.ctime,
        modified_ms=stat.mtime,
        children_count=stat.numChildren,
    )


class Writing:
    """The operations of a write, below a root, and what their results mean."""

    def __init__(self, operations: Sequence[Operation], root: str) -> None:
        self._operations = tuple(operations)
        self._root = root

    def request(self) -> Any:
        return wire.Transaction([self._operation(each) for each in self._operations])

    def check(self) -> None:
        """Raises what ZooKeeper could not even be asked."""
        size = 0
        for operation in self._operations:
            if isinstance(operation, Create):
                check_path(operation.path, sequence=operation.sequence)
            else:
                check_path(operation.path)
            if isinstance(operation, Delete) and operation.path == ROOT:
                raise CoordinationError(Trouble.bad_arguments, ROOT)
            size += _OPERATION_BYTES + len(self._root) + len(operation.path.encode())
            size += len(operation.data) if isinstance(operation, Create | SetData) else 0
            if size > REQUEST_BYTES_MAX:
                raise CoordinationError(Trouble.bad_arguments, operation.path)

    def read(self, results: Sequence[Any]) -> list[Written]:
        """Around the one that failed, ZooKeeper says of the others that they were rolled back."""
        for operation, result in zip(self._operations, results, strict=True):
            if isinstance(result, Exception) and not isinstance(
                result, errors.RolledBackError | errors.RuntimeInconsistency
            ):
                raise CoordinationError(trouble_of(result), operation.path)
        return [self._written(result) for result in results]

    def _operation(self, operation: Operation) -> Any:
        path = below(self._root, operation.path)
        match operation:
            case Create(data=data, ephemeral=ephemeral, sequence=sequence):
                flags = _EPHEMERAL * ephemeral + _SEQUENCE * sequence
                return wire.Create(path, data, OPEN_ACL_UNSAFE, flags)
            case SetData(data=data, version=version):
                return wire.SetData(path, data, version)
            case Delete(version=version):
                return wire.Delete(path, version)
            case Check(version=version):
                return wire.CheckVersion(path, version)

    def _written(self, result: Any) -> Written:
        if isinstance(result, str):
            return result[len(self._root) :]
        return None if result is True else read_stat(result)


def below(root: str, path: str) -> str:
    """A path as ZooKeeper knows it; `root` is empty, or a path."""
    if root == "":
        return path
    return root if path == ROOT else root + path


def above(root: str, path: str) -> str:
    """A path of ZooKeeper's as it is known here."""
    return path[len(root) :] or ROOT


def _same(answer: Any) -> Any:
    return answer


def _nobody(_asked: Asked[Any], _answer: Any) -> None:
    raise AssertionError("a request is told where to report before it is sent")
