"""Three replicas of one partition with model logs, moved by hand: one exchange at a time.

Brokers are called A, B, C. A `Machines` does what a controller, a network and disks would do
around the machines, and only what a test says.
"""

from collections.abc import Sequence

from tidelog.replication.isr import Committed, PendingExpand, PendingShrink
from tidelog.replication.replica import NOBODY, Replica, Role
from tidelog.replication.verdicts import Verdict
from tidelog.trials.exchange import Answer, Ask, Copy, serve, take
from tidelog.trials.model_log import ModelLog

NAMES = "ABC"


def number(name: str) -> int:
    return NAMES.index(name) + 1


def name_of(broker_id: int) -> str:
    return "nobody" if broker_id == NOBODY else NAMES[broker_id - 1]


def numbers(names: str) -> tuple[int, ...]:
    return tuple(number(name) for name in names)


def records(text: str) -> list[tuple[int, int]]:
    """`e1:m1 e2:m5` as records."""
    pairs = [word.split(":") for word in text.split()]
    return [(int(epoch[1:]), int(value[1:])) for epoch, value in pairs]


class Machines:
    def __init__(self, replicas: str = NAMES, min_isr: int = 1) -> None:
        self.replicas = numbers(replicas)
        self.min_isr = min_isr
        self.now_ms = 0
        self.epoch = 0
        self.partition_epoch = 0
        self.live: dict[int, int] = {}
        self.copies: dict[int, Copy] = {}
        self._registrations = 0
        for broker_id in self.replicas:
            self._start(broker_id, ModelLog(), 0)

    def __getitem__(self, name: str) -> Copy:
        return self.copies[number(name)]

    def replica(self, name: str) -> Replica:
        return self[name].replica

    def hold(self, name: str, text: str, high_watermark: int = 0) -> None:
        """The replica has these records from the beginning."""
        self._start(number(name), ModelLog(records(text)), high_watermark)

    def _start(self, broker_id: int, log: ModelLog, high_watermark: int) -> None:
        self._registrations += 1
        self.live[broker_id] = self._registrations
        replica = Replica(broker_id, log, high_watermark, self.live.get)
        replica.min_isr = self.min_isr
        self.copies[broker_id] = Copy(log, replica)

    # -- what happens

    def lead(self, name: str, isr: str, told: str | None = None) -> None:
        """Elects a leader in a new epoch; only `told` (all, if not given) hear of it."""
        self.epoch += 1
        self.partition_epoch += 1
        for each in NAMES[: len(self.replicas)] if told is None else told:
            self.tell(each, name, isr)

    def tell(self, whom: str, leader: str, isr: str) -> None:
        replica, epochs = self.replica(whom), (self.epoch, self.partition_epoch)
        if whom == leader:
            replica.become_leader(epochs, self.replicas, numbers(isr), self.now_ms)
        else:
            replica.become_follower(number(leader), epochs)

    def write(self, name: str, *values: int) -> None:
        copy = self[name]
        copy.log.append([(copy.replica.leader_epoch, value) for value in values])
        copy.replica.advance()

    def ask(self, name: str) -> Ask:
        return Ask(self.replica(name), self.live[number(name)])

    def serve(self, leader: str, ask: Ask, count_max: int = 100) -> Answer:
        return serve(self[leader], ask, count_max, self.now_ms)

    def take(self, name: str, ask: Ask, answer: Answer) -> Verdict:
        return take(self[name], ask, answer)

    def fetch(self, name: str, count_max: int = 100) -> Verdict:
        """One whole round between a follower and whom it follows."""
        ask = self.ask(name)
        leader = name_of(self.replica(name).leader_id)
        return self.take(name, ask, self.serve(leader, ask, count_max))

    def settle(self, name: str) -> None:
        """Rounds until nothing more happens."""
        for _ in range(20):
            before = (list(self[name].log.records), self.replica(name).high_watermark)
            self.fetch(name)
            if before == (self[name].log.records, self.replica(name).high_watermark):
                return
        raise AssertionError(f"{name} never settles")

    def restart(self, name: str, high_watermark: int | None = None, lost: int = 0) -> None:
        """The process comes back with what its log kept and the high watermark it had saved."""
        copy = self[name]
        copy.log.truncate_suffix(copy.log.log_end_offset - lost)
        saved = copy.replica.high_watermark if high_watermark is None else high_watermark
        log = ModelLog(copy.log.records, copy.log.log_start_offset)
        self._start(number(name), log, saved)

    def expire(self, name: str) -> None:
        self.replica(name).expire(self.now_ms)

    def proposal(self, name: str) -> Sequence[int]:
        """The set that the leader wants."""
        replica = self.replica(name)
        match replica.isr:
            case PendingExpand():
                return replica.isr.maximal
            case PendingShrink(isr=before, removed=removed):
                return tuple(member for member in before if member not in removed)
            case Committed():
                raise AssertionError("nothing is proposed")

    def write_isr(self, name: str) -> Sequence[int]:
        """What the leader proposes stands in the coordinator, and it knows."""
        isr = self.proposal(name)
        self.partition_epoch += 1
        self.replica(name).isr_written(isr, self.partition_epoch)
        return isr

    # -- what is seen

    def text(self, name: str) -> str:
        return " ".join(f"e{epoch}:m{value}" for epoch, value in self[name].log.records)

    def values(self, name: str) -> list[int]:
        return [value for _, value in self[name].log.records]

    def line(self, name: str) -> str:
        replica, log = self.replica(name), self[name].log
        role = {Role.leader: "leads", Role.nobody: "idle"}.get(
            replica.role, f"follows {name_of(replica.leader_id)}"
        )
        parts = [f"{name} {role}", f"epoch {replica.leader_epoch}"]
        parts.append(f"LEO {log.log_end_offset} HW {replica.high_watermark}")
        parts.append(f"[{self.text(name)}]")
        parts.append(f"epochs {log.epochs.entries}")
        if replica.role is Role.leader:
            parts.append(isr_text(replica))
        return ", ".join(parts)


def isr_text(replica: Replica) -> str:
    names = " ".join(name_of(member) for member in replica.isr.isr)
    match replica.isr:
        case PendingExpand(added=added):
            return f"ISR {names} + {name_of(added)}?"
        case PendingShrink(removed=removed):
            return f"ISR {names} - {' '.join(name_of(member) for member in removed)}?"
        case _:
            return f"ISR {names}"
