"""Scripted replicas under the eyes of the explorer's oracle: what goes wrong has a name.

A `Watched` is a `Machines` whose elections and ISR changes also stand in a state node, as the
oracle sees it, and whose every step it looks at.
"""

from collections.abc import Sequence

from support.machines import Machines, name_of, number, numbers
from tidelog.cluster.znodes import State
from tidelog.replication.replica import Role
from tidelog.replication.verdicts import Verdict
from tidelog.trials.exchange import Answer, Ask
from tidelog.trials.model_log import ModelLog
from tidelog.trials.oracle import Oracle


class Watched(Machines):
    def __init__(self, replicas: str = "ABC", min_isr: int = 1) -> None:
        self.oracle = self._oracle(min_isr)
        super().__init__(replicas, min_isr)

    def _oracle(self, min_isr: int) -> Oracle:
        return Oracle(0, min_isr, self)

    def live_epoch(self, broker_id: int) -> int | None:
        return self.live.get(broker_id)

    def _start(self, broker_id: int, log: ModelLog, high_watermark: int) -> None:
        super()._start(broker_id, log, high_watermark)
        self.oracle.started(broker_id, self.copies[broker_id])

    def lead(self, name: str, isr: str, told: str | None = None) -> None:
        before = self.epoch, self.partition_epoch
        self.epoch, self.partition_epoch = before[0] + 1, before[1] + 1
        self._write_state(number(name), numbers(isr))
        self.epoch, self.partition_epoch = before
        super().lead(name, isr, told)

    def tell(self, whom: str, leader: str, isr: str) -> None:
        super().tell(whom, leader, isr)
        if whom == leader:
            self.oracle.leads(number(whom))
        else:
            self.oracle.touched(number(whom))

    def write(self, name: str, *values: int) -> None:
        super().write(name, *values)
        self.oracle.touched(number(name))

    def serve(self, leader: str, ask: Ask, count_max: int = 100) -> Answer:
        before = self.replica(leader).isr
        answer = super().serve(leader, ask, count_max)
        if self.replica(leader).role is Role.leader:
            if self.replica(leader).isr is not before:
                self.oracle.proposed(number(leader), self.live.get)
            self.oracle.touched(number(leader))
        return answer

    def take(self, name: str, ask: Ask, answer: Answer) -> Verdict:
        verdict = super().take(name, ask, answer)
        if verdict in (Verdict.truncate, Verdict.restart):
            self.oracle.cut(number(name), self[name].log.log_end_offset)
        elif verdict is Verdict.append:
            self.oracle.matched(number(name))
        else:
            self.oracle.touched(number(name))
        return verdict

    def restart(self, name: str, high_watermark: int | None = None, lost: int = 0) -> None:
        self.oracle.power_losses += lost > 0
        super().restart(name, high_watermark, lost)

    def acknowledge(self, leader: str, value: int) -> None:
        """The producer is told, if the high watermark has passed its record."""
        copy = self[leader]
        offset = copy.log.offset_of[value]
        assert offset < copy.replica.high_watermark, f"m{value} is not committed"
        self.oracle.acked(offset, value, self.oracle.known_end, copy.replica.leader_epoch)

    def write_isr(self, name: str) -> Sequence[int]:
        isr = self.proposal(name)
        self.partition_epoch += 1
        self._write_state(number(name), tuple(isr))
        self.replica(name).isr_written(isr, self.partition_epoch)
        self.oracle.touched(number(name))
        return isr

    def _write_state(self, leader: int, isr: tuple[int, ...]) -> None:
        state = State(
            leader=leader,
            leader_epoch=self.epoch,
            isr=isr,
            controller_epoch=1,
            broker_epochs={member: self.live[member] for member in isr if member in self.live},
        )
        self.oracle.state_written(state, self.partition_epoch)


__all__ = ["Watched", "name_of", "number"]
