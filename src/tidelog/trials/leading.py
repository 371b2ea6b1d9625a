"""What a simulated broker does as leader: takes records, serves fetches, changes its ISR.

Around the production machine this is the least that a broker does: records wait for the high
watermark, fetches for records, and what the machine proposes is written with the production
`IsrWriter`.
"""

from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from tidelog.base.errors import ErrorCode
from tidelog.base.ids import TopicIdPartition
from tidelog.cluster.image import PartitionInfo
from tidelog.cluster.isr_change import expanded, shrunk
from tidelog.cluster.isr_writes import Gone, IsrWriter, Outcome, Wrote
from tidelog.replication.isr import Committed, PendingExpand
from tidelog.replication.replica import Role
from tidelog.trials.exchange import Answer, Ask, Copy, serve
from tidelog.trials.network import Reply
from tidelog.trials.oracle import LATEST, Oracle

if TYPE_CHECKING:
    from tidelog.trials.process import Process

TOPIC = "t"


class Produce:
    __slots__ = ("acks", "index", "value")

    def __init__(self, index: int, value: int, acks: int) -> None:
        self.index = index
        self.value = value
        self.acks = acks


class Produced:
    __slots__ = ("error", "leader_epoch", "offset", "oracle")

    def __init__(self, error: int, offset: int = -1, leader_epoch: int = LATEST) -> None:
        self.error = error
        self.offset = offset
        self.leader_epoch = leader_epoch
        self.oracle: Oracle | None = None
        """Who looks at the partition in which it is."""


class Waiting:
    """An acknowledgement that waits for the high watermark."""

    __slots__ = ("copy", "leader_epoch", "offset", "reply")

    def __init__(self, offset: int, copy: Copy, reply: Reply) -> None:
        self.offset = offset
        self.copy = copy
        self.leader_epoch = copy.replica.leader_epoch
        self.reply = reply

    def committed(self, error: int) -> None:
        produced = Produced(error, self.offset, self.leader_epoch)
        produced.oracle = self.copy.oracle
        self.reply(produced)


class Parked:
    """A fetch that waits for records."""

    __slots__ = ("answers", "asks", "is_done", "reply")

    def __init__(self, asks: Sequence[tuple[int, Ask]], answers: list[Answer], reply: Reply):
        self.asks = asks
        self.answers = answers
        self.reply = reply
        self.is_done = False


class Leading:
    def __init__(self, process: "Process", writer: IsrWriter) -> None:
        self._process = process
        self._writer = writer
        self._options = process.world.options
        self.infos: dict[int, PartitionInfo] = {}
        """The state of each partition, as far as this broker knows it."""
        self._waiting: dict[int, deque[Waiting]] = {}
        self._parked: dict[int, list[Parked]] = {}

    # -- records

    def produce(self, request: Produce, reply: Reply) -> None:
        process = self._process
        copy = process.copies.get(request.index)
        if copy is None or copy.replica.role is not Role.leader:
            reply(Produced(ErrorCode.not_leader_or_follower))
            return
        replica, log = copy.replica, copy.log
        if request.acks != 1 and len(replica.isr.isr) < replica.min_isr:
            reply(Produced(ErrorCode.not_enough_replicas))
            return
        offset = log.offset_of.get(request.value)
        if offset is None:
            offset = self.append(request.index, request.value)
        if request.acks == 1:
            reply(Produced(0, offset))
            return
        self.wait(request.index, offset, reply)

    def append(self, index: int, value: int) -> int:
        """Appends as leader; gives the offset."""
        process = self._process
        copy = process.copies[index]
        offset = copy.log.log_end_offset
        copy.log.append([(copy.replica.leader_epoch, value)])
        copy.replica.advance()
        process.trace("appends", index, "m%d at %d", value, offset)
        process.touched(index)
        self.wake(index)
        return offset

    def wait(self, index: int, offset: int, reply: Reply) -> None:
        """Replies once the high watermark is beyond an offset, or will not be."""
        waiting = Waiting(offset, self._process.copies[index], reply)
        self._waiting.setdefault(index, deque()).append(waiting)
        self.moved(index)

    def moved(self, index: int) -> None:
        """The high watermark may have moved, or the leader may lead no more: answers what waited
        for it."""
        waiting = self._waiting.get(index)
        if not waiting:
            return
        replica = self._process.copies[index].replica
        if replica.role is not Role.leader or waiting[0].leader_epoch != replica.leader_epoch:
            self._waiting[index] = deque()
            for each in waiting:
                each.reply(Produced(ErrorCode.not_leader_or_follower))
            return
        reached = [each for each in waiting if each.offset < replica.high_watermark]
        if reached:
            self._waiting[index] = deque(
                each for each in waiting if each.offset >= replica.high_watermark
            )
            is_enough = len(replica.isr.isr) >= replica.min_isr
            error = 0 if is_enough else ErrorCode.not_enough_replicas_after_append
            for each in reached:
                each.committed(error)

    # -- fetches

    def fetch(self, asks: Sequence[tuple[int, Ask]], reply: Reply) -> None:
        answers = [self._serve(index, ask) for index, ask in asks]
        for answer in answers:
            if answer.records or answer.error or answer.diverging:
                reply(answers)
                return
        parked = Parked(asks, answers, reply)
        for index, _ in asks:
            self._parked.setdefault(index, []).append(parked)
        self._process.after(self._options.fetch_wait_ms, partial(self._answer, parked))

    def _serve(self, index: int, ask: Ask) -> Answer:
        process = self._process
        copy = process.copies.get(index)
        if copy is None:
            return Answer(ErrorCode.not_leader_or_follower)
        if copy.topic_id != ask.topic_id:
            return Answer(ErrorCode.unknown_topic_id)
        replica = copy.replica
        before = replica.isr
        answer = serve(copy, ask, self._options.fetch_records_max, process.world.loop.now_ms)
        if replica.role is Role.leader:
            after = replica.isr
            if after is not before:
                process.proposed(index)
            process.touched(index)
            if self._waiting.get(index):
                self.moved(index)
            process.log_starts.fetched(index)
            if not isinstance(after, Committed):
                self.propose(index)
        return answer

    def wake(self, index: int) -> None:
        for parked in self._parked.pop(index, ()):
            self._answer(parked)

    def _answer(self, parked: Parked) -> None:
        if parked.is_done:
            return
        parked.is_done = True
        for at, (index, ask) in enumerate(parked.asks):
            waiting = self._parked.get(index)
            if waiting and parked in waiting:
                waiting.remove(parked)
            copy, answer = self._process.copies.get(index), parked.answers[at]
            if copy is None or not _still_leads(copy, ask):
                answer.error = ErrorCode.not_leader_or_follower
            else:
                answer.high_watermark = copy.replica.high_watermark
                answer.log_start_offset = copy.log.log_start_offset
                count = self._options.fetch_records_max
                answer.records = copy.log.read(ask.position[0], count)
        parked.reply(parked.answers)

    def changed(self, index: int) -> None:
        """Somebody else may lead: who waits here is told."""
        self.moved(index)
        if self._process.copies[index].replica.role is not Role.leader:
            self._process.log_starts.led_elsewhere(index)
        self.wake(index)
        self._process.coordinating.led_changed(index)

    def forget(self, index: int) -> None:
        """There is no replica here any more."""
        self.infos.pop(index, None)

    # -- the in-sync set

    def expire(self) -> None:
        now_ms = self._process.loop.clock.monotonic_ms()
        for index, copy in self._process.copies.items():
            if copy.replica.role is Role.leader:
                copy.replica.expire(now_ms)
                self._reconsider(index)

    def propose(self, index: int) -> None:
        """Writes what the machine proposes, one thing at a time."""
        copy = self._process.copies[index]
        replica = copy.replica
        isr, before = replica.isr, self.infos.get(index)
        if isinstance(isr, Committed) or before is None:
            return
        name = TopicIdPartition(copy.topic_id, TOPIC, index)
        if self._writer.is_writing(name):
            return
        if before.leader_epoch != replica.leader_epoch:
            return
        min_isr = self._options.min_isr
        if isinstance(isr, PendingExpand):
            after = expanded(before, isr.added, isr.added_epoch, min_isr)
        else:
            after = shrunk(before, isr.removed, min_isr)
        self._process.trace("proposes", index, "ISR %s ELR %s", after.isr, after.elr)
        done = partial(self._written, index, copy, replica.leader_epoch)
        self._writer.write(name, before, after, done)

    def _written(self, index: int, copy: Copy, leader_epoch: int, outcome: Outcome) -> None:
        if self._process.copies.get(index) is not copy:
            return
        replica = copy.replica
        self._process.trace("hears", index, "%s of its ISR", type(outcome).__name__)
        if replica.role is Role.leader and replica.leader_epoch == leader_epoch:
            if isinstance(outcome, Gone):
                replica.resign()
                self.changed(index)
                return
            self.adopt(index, outcome.state)
            if isinstance(outcome, Wrote):
                self._process.metadata.isr_changed(TOPIC, index)
        self._reconsider(index)

    def _reconsider(self, index: int) -> None:
        """Followers may have asked while another change was being written."""
        replica = self._process.copies[index].replica
        before = replica.isr
        replica.reconsider(self._process.loop.clock.monotonic_ms())
        if replica.isr is not before:
            self._process.proposed(index)
        self.propose(index)

    def adopt(self, index: int, state: PartitionInfo) -> None:
        """What stands in the coordinator, in this leader's epoch."""
        known = self.infos.get(index)
        if known is not None and state.state_version < known.state_version:
            return
        replica = self._process.copies[index].replica
        self.infos[index] = state
        replica.elr = tuple(state.elr)
        replica.isr_written(state.isr, state.state_version)
        self._process.touched(index)
        self.moved(index)

    def read(self, index: int, offset: int) -> Any:
        """What a consumer gets, and who looks at it: records below the high watermark, of leader
        or follower; if it asks for what was deleted, where the log starts."""
        copy = self._process.copies.get(index)
        if copy is None or copy.replica.role is Role.nobody:
            return None
        if offset < copy.log.log_start_offset:
            return copy.oracle, copy.log.log_start_offset
        return copy.oracle, copy.log.between(offset, copy.replica.high_watermark)


def _still_leads(copy: Copy, ask: Ask) -> bool:
    replica = copy.replica
    is_same = copy.topic_id == ask.topic_id and replica.leader_epoch == ask.leader_epoch
    return is_same and replica.role is Role.leader
