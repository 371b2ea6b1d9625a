"""Producer ids, unique in the cluster: a broker takes blocks of a thousand and gives them out.

A block is taken by a conditional write, so no two brokers take the same; what is left of one
when the broker stops is never used.
"""

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final

from tidelog.base.coordination import (
    Coordination,
    CoordinationError,
    Node,
    SetData,
    Trouble,
    Written,
)
from tidelog.base.errors import BadValue, ErrorCode, KafkaError
from tidelog.base.ports import Loop
from tidelog.cluster import paths
from tidelog.cluster.writing import refusal
from tidelog.cluster.znodes import decode_producer_id_block, encode_producer_id_block

BLOCK_SIZE: Final = 1000
_PRODUCER_ID_MAX: Final = (1 << 63) - 1

Done = Callable[[int | KafkaError], None]


class ProducerIds:
    def __init__(self, coordination: Coordination, loop: Loop, broker_id: int) -> None:
        self._coordination = coordination
        self._loop = loop
        self._broker_id = broker_id
        self._left = iter(range(0))
        self._waiting: deque[Done] = deque()
        self._is_taking = False

    def next(self, done: Done) -> None:
        """Answers in the order of the questions, and never inside the question."""
        producer_id = None if self._waiting else next(self._left, None)
        if producer_id is not None:
            self._loop.call_soon(partial(done, producer_id))
            return
        self._waiting.append(done)
        if not self._is_taking:
            self._take_block()

    def _take_block(self) -> None:
        self._is_taking = True
        self._coordination.get(paths.PRODUCER_ID_BLOCK, self._got_block)

    def _got_block(self, node: Node | CoordinationError) -> None:
        if isinstance(node, CoordinationError):
            self._fail(refusal(node))
            return
        try:
            block = _following(node.data)
        except BadValue as error:
            self._fail(
                KafkaError(
                    ErrorCode.unknown_server_error,
                    f"{paths.PRODUCER_ID_BLOCK} has no next producer id: {error}",
                )
            )
            return
        data = encode_producer_id_block(self._broker_id, block)
        write = SetData(path=paths.PRODUCER_ID_BLOCK, data=data, version=node.stat.version)

        def took(result: list[Written] | CoordinationError) -> None:
            if not isinstance(result, CoordinationError):
                self._give_out(block)
            elif result.trouble is Trouble.bad_version:
                self._take_block()
            else:
                self._fail(refusal(result))

        self._coordination.write([write], took)

    def _give_out(self, block: range) -> None:
        """Whoever asks again from its callback is served after those that wait."""
        self._left = iter(block)
        while self._waiting:
            producer_id = next(self._left, None)
            if producer_id is None:
                self._take_block()
                return
            self._waiting.popleft()(producer_id)
        self._is_taking = False

    def _fail(self, error: KafkaError) -> None:
        self._is_taking = False
        waiting, self._waiting = self._waiting, deque()
        for done in waiting:
            done(error)


def _following(data: bytes) -> range:
    """The block after the one that was taken last; the first if none was."""
    start = decode_producer_id_block(data).stop if data else 0
    if start > _PRODUCER_ID_MAX - BLOCK_SIZE:
        raise BadValue("all of them are used up")
    return range(start, start + BLOCK_SIZE)
