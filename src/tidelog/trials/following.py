"""What a simulated broker does as follower: one fetcher for each broker that it follows.

A fetcher has one request under way, for all partitions that it follows there (D6); answers of a
connection that broke never arrive, and what comes from an earlier leader epoch the machine drops.
"""

from functools import partial
from typing import TYPE_CHECKING, Any

from tidelog.replication.replica import Role
from tidelog.replication.verdicts import Verdict
from tidelog.trials.exchange import Answer, Ask, take
from tidelog.trials.network import Channel

if TYPE_CHECKING:
    from tidelog.trials.process import Process

BACK_OFF_MS = 30


class Fetcher:
    def __init__(self, process: "Process", leader: int) -> None:
        self._process = process
        self._leader = leader
        self._channel = Channel(process.world.network, process, leader)
        self._is_busy = False

    def go_on(self) -> None:
        """Asks for all that is followed there, unless it is asking already."""
        if self._is_busy:
            return
        process, epoch = self._process, self._process.metadata.broker_epoch
        asks = [
            (index, Ask(copy.replica, epoch, copy.topic_id))
            for index, copy in process.copies.items()
            if copy.replica.leader_id == self._leader and copy.replica.role is Role.follower
        ]
        if asks:
            self._is_busy = True
            self._channel.call(asks, partial(self._answered, asks))

    def _answered(self, asks: list[tuple[int, Ask]], answers: list[Answer] | None) -> None:
        backs_off = answers is None
        for (index, ask), answer in zip(asks, answers or (), strict=False):
            backs_off |= self._take(index, ask, answer) is Verdict.back_off
        if backs_off:
            self._process.after(BACK_OFF_MS, self._end_pause)
        else:
            self._end_pause()

    def _end_pause(self) -> None:
        self._is_busy = False
        self.go_on()

    def _take(self, index: int, ask: Ask, answer: Answer) -> Verdict:
        process = self._process
        copy = process.copies.get(index)
        if copy is None or copy.topic_id != ask.topic_id:
            return Verdict.drop
        end = copy.log.log_end_offset
        verdict = take(copy, ask, answer)
        if verdict is Verdict.append:
            if answer.records and process.world.tracing is not None:
                process.trace("copies", index, _text(answer.records, end))
            process.matched(index)
        elif verdict in (Verdict.truncate, Verdict.restart):
            process.trace("cuts", index, "its log from %d to %d", end, copy.log.log_end_offset)
            process.was_cut(index, end)
        return verdict


def _text(records: list[Any], offset: int) -> str:
    return " ".join(f"e{epoch}:m{value}" for epoch, value in records) + f" at {offset}"
