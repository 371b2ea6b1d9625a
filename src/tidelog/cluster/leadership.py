"""Becoming the controller: `/controller` for this session, and a higher `/controller_epoch`.

Both are written together, on condition that the epoch is still the one that was read, so two
brokers never hold the same epoch. Who comes second learns who is first.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass

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
from tidelog.cluster.znodes import (
    decode_controller,
    decode_controller_epoch,
    encode_controller,
    encode_controller_epoch,
)

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Controller:
    """This broker, as controller."""

    epoch: int
    fence: Check
    """Begins every write: it fails when there is a later controller."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherController:
    broker_id: int


Done = Callable[[Controller | OtherController | CoordinationError | BadValue], None]


class Election:
    """One attempt to become controller, repeated while others get in between."""

    def __init__(self, coordination: Coordination, clock: Clock, broker_id: int) -> None:
        self._coordination = coordination
        self._clock = clock
        self._broker_id = broker_id
        self._done: Done = lambda _: None

    def start(self, done: Done) -> None:
        self._done = done
        self._read_epoch()

    def _read_epoch(self) -> None:
        self._coordination.get(paths.CONTROLLER_EPOCH, self._got_epoch)

    def _got_epoch(self, node: Node | CoordinationError) -> None:
        if isinstance(node, Node):
            try:
                self._take(decode_controller_epoch(node.data), node.stat.version)
            except BadValue as error:
                self._done(BadValue(f"{paths.CONTROLLER_EPOCH} cannot be read: {error}"))
        elif node.trouble is Trouble.no_node:
            first = Create(path=paths.CONTROLLER_EPOCH, data=encode_controller_epoch(0))
            self._coordination.write([first], self._made_epoch)
        else:
            self._done(node)

    def _made_epoch(self, result: list[Written] | CoordinationError) -> None:
        if isinstance(result, CoordinationError) and result.trouble is not Trouble.node_exists:
            self._done(result)
        else:
            self._read_epoch()

    def _take(self, epoch: int, version: int) -> None:
        data = encode_controller(self._broker_id, self._clock.now_ms())
        operations: list[Operation] = [
            Create(path=paths.CONTROLLER, data=data, ephemeral=True),
            SetData(
                path=paths.CONTROLLER_EPOCH,
                data=encode_controller_epoch(epoch + 1),
                version=version,
            ),
        ]

        def took(result: list[Written] | CoordinationError) -> None:
            if not isinstance(result, CoordinationError):
                stat = result[1]
                assert isinstance(stat, Stat)
                self._done(_controller(epoch + 1, stat.version))
            elif result.trouble is Trouble.bad_version:
                self._read_epoch()
            elif result.trouble is Trouble.node_exists:
                self._coordination.get(paths.CONTROLLER, self._got_controller)
            else:
                self._done(result)

        self._coordination.write(operations, took)

    def _got_controller(self, node: Node | CoordinationError) -> None:
        if isinstance(node, CoordinationError):
            if node.trouble is Trouble.no_node:
                self._read_epoch()
            else:
                self._done(node)
        elif node.stat.ephemeral_owner == self._coordination.session_id:
            self._give_up_and_retry(node)
        else:
            self._done(OtherController(broker_id=_controller_id(node)))

    def _give_up_and_retry(self, node: Node) -> None:
        """The node is of an earlier attempt of this session, whose epoch is not known here."""
        delete = Delete(path=paths.CONTROLLER, version=node.stat.version)

        def deleted(result: list[Written] | CoordinationError) -> None:
            if isinstance(result, CoordinationError) and result.trouble is not Trouble.no_node:
                self._done(result)
            else:
                self._read_epoch()

        self._coordination.write([delete], deleted)


def _controller(epoch: int, version: int) -> Controller:
    return Controller(epoch=epoch, fence=Check(path=paths.CONTROLLER_EPOCH, version=version))


def _controller_id(node: Node) -> int:
    try:
        return decode_controller(node.data)
    except BadValue as error:
        _log.error("%s cannot be read: %s", paths.CONTROLLER, error)
        return NO_CONTROLLER
