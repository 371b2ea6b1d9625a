"""The coordinators on a simulated broker: the production shards, over the journals it leads.

When a journal begins to be led here its shard is made and, a little later, loaded from it; when
another leads it, or this one in another epoch, the shard sends everyone there and is forgotten.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.base.journal import Journal, Shard
from tidelog.replication.replica import Role
from tidelog.trials.journals import TrialJournal, replay
from tidelog.trials.network import Reply

if TYPE_CHECKING:
    from tidelog.trials.process import Process

LOADING_MS_MAX = 20

Look = Callable[[Any, int], None]
"""Sees an answer, and the epoch of the coordinator that gives it, in the moment it is given."""


class ToCoordinator:
    """What a client asks of the shard of a journal."""

    __slots__ = ("call", "index", "look")

    def __init__(self, index: int, call: Callable[[Any, Reply], None], look: Look) -> None:
        self.index = index
        self.call = call
        self.look = look


class _Held:
    __slots__ = ("epoch", "is_loaded", "shard")

    def __init__(self, shard: Shard, epoch: int) -> None:
        self.shard = shard
        self.epoch = epoch
        self.is_loaded = False


class Coordinating:
    def __init__(self, process: "Process", makers: dict[int, Callable[[Journal], Shard]]) -> None:
        """`makers` has one for each partition that is a journal."""
        self._process = process
        self._makers = makers
        self._held: dict[int, _Held] = {}

    # -- what is led here

    def led_changed(self, index: int) -> None:
        make = self._makers.get(index)
        if make is None:
            return
        replica = self._process.copies[index].replica
        epoch = replica.leader_epoch if replica.role is Role.leader else None
        held = self._held.get(index)
        if held is not None and held.epoch != epoch:
            del self._held[index]
            held.shard.stop()
        if epoch is not None and index not in self._held:
            held = self._held[index] = _Held(make(TrialJournal(self._process, index, epoch)), epoch)
            delay_ms = int(self._process.world.loading_draws.random() * LOADING_MS_MAX)
            self._process.after(delay_ms, partial(self._load, index, held))

    def _load(self, index: int, held: _Held) -> None:
        if self._held.get(index) is not held:
            return
        world = self._process.world
        replay(world.batches, self._process.copies[index].log.records, held.shard)
        held.is_loaded = True
        world.counts.coordinator_changes += 1
        self._process.trace("coordinates", index, "in epoch %d", held.epoch)
        held.shard.start()

    def shard(self, index: int) -> Shard | None:
        held = self._held.get(index)
        return held.shard if held is not None and held.is_loaded else None

    def find(self, index: int) -> Shard:
        held = self._held.get(index)
        if held is None:
            raise KafkaError(ErrorCode.not_coordinator, "it is not led here")
        if not held.is_loaded:
            raise KafkaError(ErrorCode.coordinator_load_in_progress, "it is being loaded")
        return held.shard

    # -- who asks

    def receive(self, request: ToCoordinator, reply: Reply) -> None:
        try:
            shard = self.find(request.index)
        except KafkaError as error:
            reply(error.code)
            return
        answer = partial(_answer, request.look, self._held[request.index].epoch, reply)
        try:
            request.call(shard, answer)
        except KafkaError as error:
            answer(error.code)


def _answer(look: Look, epoch: int, reply: Reply, answer: Any) -> None:
    look(answer, epoch)
    reply(answer)
