"""Becoming the controller: `/controller` for this session, and a higher `/controller_epoch`.

Both are written together, on condition that the epoch is still the one that was read, so two
brokers never hold the same epoch. Who comes second learns who is first. When the answer is lost,
both are read again: the office is ours if the node is this session's and the epoch the one that
was to be written.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from tidelog.base.coordination import (
    Check,
    Coordination,
    CoordinationError,
    Create,
    Delete,
    Node,
    Operation,
    SetData,
    Stat,
    Trouble,
    Written,
)
from tidelog.base.errors import BadValue
from tidelog.base.ports import Clock
from tidelog.cluster import paths
from tidelog.cluster.image import NO_CONTROLLER
from tidelog.cluster.writing import insist
from tidelog.cluster.znodes import (
    decode_controller,
    decode_controller_epoch,
    encode_controller,
    encode_controller_epoch,
)

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Office:
    """What makes this broker the controller."""

    epoch: int
    fence: Check
    """Begins every write: it fails when there is a later controller."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherController:
    broker_id: int


Done = Callable[[Office | OtherController | CoordinationError | BadValue], None]
GotNode = Node | CoordinationError


class Election:
    """One attempt to become controller, repeated while others get in between. It ends with a
    session that expired, never with a connection that was lost."""

    def __init__(self, coordination: Coordination, clock: Clock, broker_id: int) -> None:
        self._coordination = coordination
        self._clock = clock
        self._broker_id = broker_id
        self._wanted_epoch = -1
        """The one of the last write."""
        self._done: Done = lambda _: None

    def start(self, done: Done) -> None:
        self._done = done
        self._read_epoch()

    def _read_epoch(self) -> None:
        insist(partial(self._coordination.get, paths.CONTROLLER_EPOCH), self._got_epoch)

    def _got_epoch(self, node: GotNode) -> None:
        if isinstance(node, Node):
            epoch = self._epoch_of(node)
            if epoch is not None:
                self._take(epoch, node.stat.version)
        elif node.trouble is Trouble.no_node:
            first = Create(path=paths.CONTROLLER_EPOCH, data=encode_controller_epoch(0))
            insist(partial(self._coordination.write, [first]), self._made_epoch)
        else:
            self._done(node)

    def _epoch_of(self, node: Node) -> int | None:
        try:
            return decode_controller_epoch(node.data)
        except BadValue as error:
            self._done(BadValue(f"{paths.CONTROLLER_EPOCH} cannot be read: {error}"))
            return None

    def _made_epoch(self, result: list[Written] | CoordinationError) -> None:
        if isinstance(result, CoordinationError) and result.trouble is not Trouble.node_exists:
            self._done(result)
        else:
            self._read_epoch()

    def _take(self, epoch: int, version: int) -> None:
        self._wanted_epoch = epoch + 1
        data = encode_controller(self._broker_id, self._clock.now_ms())
        operations: list[Operation] = [
            Create(path=paths.CONTROLLER, data=data, ephemeral=True),
            SetData(
                path=paths.CONTROLLER_EPOCH,
                data=encode_controller_epoch(epoch + 1),
                version=version,
            ),
        ]
        self._coordination.write(operations, self._took)

    def _took(self, result: list[Written] | CoordinationError) -> None:
        if not isinstance(result, CoordinationError):
            stat = result[1]
            assert isinstance(stat, Stat)
            self._done(_office(self._wanted_epoch, stat.version))
        elif result.trouble is Trouble.bad_version:
            self._read_epoch()
        elif result.trouble in (Trouble.node_exists, Trouble.connection_loss):
            insist(partial(self._coordination.get, paths.CONTROLLER), self._got_controller)
        else:
            self._done(result)

    def _got_controller(self, node: GotNode) -> None:
        if isinstance(node, CoordinationError):
            if node.trouble is Trouble.no_node:
                self._read_epoch()
            else:
                self._done(node)
        elif node.stat.ephemeral_owner == self._coordination.session_id:
            get = partial(self._coordination.get, paths.CONTROLLER_EPOCH)
            insist(get, partial(self._compare_epoch, node))
        else:
            self._done(OtherController(broker_id=_controller_id(node)))

    def _compare_epoch(self, controller: Node, node: GotNode) -> None:
        """The node is this session's: of the last write, or of an earlier office of which nothing
        is known here."""
        if isinstance(node, CoordinationError):
            self._done(node)
            return
        epoch = self._epoch_of(node)
        if epoch == self._wanted_epoch:
            self._done(_office(epoch, node.stat.version))
        elif epoch is not None:
            self._give_up_and_retry(controller)

    def _give_up_and_retry(self, controller: Node) -> None:
        delete = Delete(path=paths.CONTROLLER, version=controller.stat.version)

        def deleted(result: list[Written] | CoordinationError) -> None:
            if isinstance(result, CoordinationError) and result.trouble is not Trouble.no_node:
                self._done(result)
            else:
                self._read_epoch()

        insist(partial(self._coordination.write, [delete]), deleted)


def _office(epoch: int, version: int) -> Office:
    return Office(epoch=epoch, fence=Check(path=paths.CONTROLLER_EPOCH, version=version))


def _controller_id(node: Node) -> int:
    try:
        return decode_controller(node.data)
    except BadValue as error:
        _log.error("%s cannot be read: %s", paths.CONTROLLER, error)
        return NO_CONTROLLER
