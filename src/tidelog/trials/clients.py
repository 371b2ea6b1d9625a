"""Writers and readers with known histories: every value is written by one of them, once.

A writer with acks=all tries the same value again until it is acknowledged or refused for good,
as an idempotent producer does; one with acks=1 never tries again. Readers follow the high
watermark, at leaders and at followers, and go back now and then to read again.
"""

from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final

from tidelog.base.errors import ErrorCode
from tidelog.trials.hosts import HostLoop
from tidelog.trials.leading import Produce, Produced
from tidelog.trials.network import Channel, Reply
from tidelog.trials.process import Read

if TYPE_CHECKING:
    from tidelog.trials.world import World

CLIENTS: Final = 100
"""The number of the host on which all clients run."""
VALUES_EACH: Final = 100_000
RETRY_MS: Final = 50


class ClientHost:
    def __init__(self, world: "World") -> None:
        self.number = CLIENTS
        self.loop = HostLoop(world.loop)

    def receive(self, request: Any, reply: Reply) -> bool:
        raise AssertionError(f"a client is asked for {request}: {reply}")


class Client:
    """One thing at a time: asks a broker, thinks, goes on."""

    def __init__(self, world: "World", index: int) -> None:
        self.world = world
        self.index = index
        self.is_stopped = False
        self._channels: dict[int, Channel] = {}
        self._random = world.client_draws.random

    def later(self, delay_ms: int, then: Any) -> None:
        self.world.loop.after(delay_ms, then)

    def think_ms(self) -> int:
        return 1 + int(self._random() * self.world.options.think_ms_max)

    def went_back(self, index: int, end: int) -> None:
        """Offsets of a partition are given again, from `end` on."""

    def ask(self, broker_id: int, request: Any, done: Any) -> None:
        channel = self._channels.get(broker_id)
        if channel is None:
            channel = Channel(self.world.network, self.world.client_host, broker_id)
            self._channels[broker_id] = channel
        channel.call(request, done)


class Writer(Client):
    def __init__(self, world: "World", number: int, index: int, acks: int) -> None:
        super().__init__(world, index)
        self._acks = acks
        self._value = VALUES_EACH * number
        self._known_end = 0
        self._may_be_there = False

    def start(self) -> None:
        if self.is_stopped:
            return
        self._value += 1
        self._may_be_there = False
        self._oracle = self.world.oracles[self.index]
        self._known_end = self._oracle.known_end
        self.world.counts.operations += 1
        self._attempt()

    def _attempt(self) -> None:
        if self.is_stopped:
            return
        leader = self.world.guess_leader(self.index)
        if leader < 0:
            self.later(RETRY_MS, self._attempt)
        else:
            request = Produce(self.index, self._value, self._acks)
            self.ask(leader, request, self._answered)

    def _answered(self, answer: Produced | None) -> None:
        if answer is not None and not answer.error:
            self._succeeded(answer)
        elif answer is not None and answer.error == ErrorCode.not_enough_replicas:
            self._refused()
        else:
            self._may_be_there = True
            if self._acks == 1:
                self.world.abandoned.add(self._value)
                self._go_on()
            else:
                self.later(RETRY_MS, self._attempt)

    def _succeeded(self, answer: Produced) -> None:
        world, offset = self.world, answer.offset
        if self._acks != 1:
            world.counts.acknowledged += 1
            if world.tracing is not None:
                world.tracing(f"m{self._value} of partition {self.index} is acknowledged: {offset}")
            oracle = answer.oracle
            assert oracle is not None
            known_end = self._known_end if oracle is self._oracle else 0
            if oracle.is_deleted:
                world.abandoned.add(self._value)
            else:
                oracle.acked(offset, self._value, known_end, answer.leader_epoch)
        self._go_on()

    def went_back(self, index: int, end: int) -> None:
        if index == self.index:
            self._known_end = min(self._known_end, end)

    def _refused(self) -> None:
        """For good, unless an earlier attempt may have been taken."""
        if self._may_be_there:
            self.later(RETRY_MS, self._attempt)
        else:
            self.world.refused.add(self._value)
            self._go_on()

    def _go_on(self) -> None:
        self.later(self.think_ms(), self.start)


class Reader(Client):
    message: ClassVar[type[Any]] = Read
    """What it asks with: of a partition, from an offset."""

    def __init__(self, world: "World", index: int) -> None:
        super().__init__(world, index)
        self._position = 0
        self._looked_at_by = world.oracles[index]

    def start(self) -> None:
        if self.is_stopped:
            return
        self.world.counts.operations += 1
        self.world.counts.reads += 1
        broker_id = self.world.guess_replica(self.index)
        done = partial(self._answered, self._position)
        self.ask(broker_id, self.message(self.index, self._position), done)

    def _answered(self, position: int, answer: Any) -> None:
        oracle, records = answer or (self._looked_at_by, None)
        if oracle is not self._looked_at_by:
            # Another topic of the same name begins at its beginning.
            self._looked_at_by, self._position = oracle, 0
        elif isinstance(records, int):
            self._position = records
        elif records:
            oracle.read(position, records)
            for _, value in records:
                if value in self.world.refused:
                    self.world.read_refused(self.index, value)
            self._position = position + len(records)
        elif self._random() < 0.1:
            self._position = int(self._random() * (self._position + 1))
        self.later(self.think_ms(), self.start)
