"""Making partitions what they should be, whatever it was that changed.

Events only mark partitions; a run looks at all that are marked, writes what is to be different,
takes over what was written and has it told. A write that failed because somebody was quicker,
or whose answer was lost, leads to reading the partition and looking at it again. What somebody
wishes for a partition (another leader, other replicas) is planned the same way, at its turn.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Final

from tidelog.base.coordination import Coordination, CoordinationError, Written
from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.base.ports import Clock, Loop
from tidelog.cluster.dispatch import Dispatch
from tidelog.cluster.elections import Known, Situation, wanted_state
from tidelog.cluster.image import NO_LEADER, NO_STATE, PartitionInfo
from tidelog.cluster.node_room import NodeRoom
from tidelog.cluster.realm import PartitionName, Realm
from tidelog.cluster.reassignment import is_reassigned, next_step
from tidelog.cluster.recovering import Recovering
from tidelog.cluster.rereading import Rereading
from tidelog.cluster.state_writing import Outcome, Planned, StateWriter

_log = logging.getLogger(__name__)

RETRY_MS: Final = 1000
MOVES_MAX: Final = 50
"""How many partitions of one topic change their replicas in one write: their states have room in
it beside the largest node of a topic."""

Plan = Callable[[PartitionInfo, Situation, Known], PartitionInfo | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    plan: Plan
    """How the partition shall be; None if it is so. Raises KafkaError if that cannot be."""
    done: Callable[[KafkaError | None], None]


class Reconciler:
    def __init__(
        self,
        realm: Realm,
        dispatch: Dispatch,
        coordination: Coordination,
        loop: Loop,
        clock: Clock,
    ) -> None:
        self._realm = realm
        self._dispatch = dispatch
        self._coordination = coordination
        self._loop = loop
        self._clock = clock
        self._writer = StateWriter(coordination, realm.fence, self._is_current)
        self._recovering = Recovering(realm, dispatch, loop, clock, self.mark)
        self.reported = self._recovering.reported
        self.rereading = Rereading(coordination, realm, dispatch, self.mark)
        self._marked: dict[PartitionName, None] = {}
        self._wishes: dict[PartitionName, deque[Wish]] = {}
        self._planning: dict[PartitionName, Wish] = {}
        """Those that are being written."""
        self._room = NodeRoom({})
        self._offline: set[PartitionName] = set()
        """Those that nobody leads, which was said."""
        self._waiting: list[Callable[[], None]] = []
        self._is_running = False

    # -- what there is to do

    def mark(self, names: Iterable[PartitionName]) -> None:
        self._marked.update(dict.fromkeys(names))
        self._run_soon()

    def mark_all(self) -> None:
        for name, topic in self._realm.image.topics.items():
            self.mark((name, index) for index in range(len(topic.partitions)))

    def wish(self, name: PartitionName, wish: Wish) -> None:
        if self._realm.is_over:
            wish.done(_deposed())
            return
        self._wishes.setdefault(name, deque()).append(wish)
        self.mark([name])

    def when_settled(self, done: Callable[[], None]) -> None:
        """Once nothing is marked and nothing is being written."""
        self._waiting.append(done)
        self._run_soon()

    def close(self) -> None:
        """Nothing more is written; what was wished for is another controller's to grant."""
        wishes, self._wishes = self._wishes, {}
        for waiting in wishes.values():
            for wish in waiting:
                wish.done(_deposed())
        self._release()

    # -- a run

    def _run_soon(self) -> None:
        if not self._is_running and not self._realm.is_over:
            self._is_running = True
            self._loop.call_soon(self._run)

    def _run(self) -> None:
        if self._realm.is_over:
            return
        marked, self._marked = sorted(self._marked), {}
        planned = self._planned(marked)
        if planned:
            self._writer.write(planned, self._realm.image.topics, self._wrote)
        else:
            self._end_run()

    def _end_run(self) -> None:
        self._is_running = False
        if self._marked:
            self._run_soon()
        else:
            self._dispatch.settled()
            self._release()

    def _release(self) -> None:
        waiting, self._waiting = self._waiting, []
        for done in waiting:
            done()

    # -- planning

    def _planned(self, names: list[PartitionName]) -> list[Planned]:
        situation = self._realm.situation()
        self._planning.clear()
        self._room = NodeRoom(self._realm.image.topics)
        planned: list[Planned] = []
        moving: dict[str, int] = {}
        for name in names:
            before = self._realm.partition(name)
            if before is None:
                self._offline.discard(name)
                self._refuse_wishes(name)
                continue
            self._tell_if_offline(name, before, situation)
            after = self._wanted(name, before, situation)
            if after is None:
                continue
            change = Planned(name=name, before=before, after=after)
            if change.moves_replicas:
                moving[name[0]] = moving.get(name[0], 0) + 1
                if moving[name[0]] > MOVES_MAX:
                    self._marked[name] = None
                    continue
            planned.append(change)
        return planned

    def _tell_if_offline(
        self, name: PartitionName, partition: PartitionInfo, situation: Situation
    ) -> None:
        """Once, in the words that operators of Kafka look for."""
        if partition.leader != NO_LEADER or partition.state_version == NO_STATE:
            self._offline.discard(name)
        elif name not in self._offline:
            self._offline.add(name)
            _log.error(
                "NoReplicaOnlineException: partition=%s-%d has no leader: isr=%s live=%s",
                *name,
                list(partition.isr),
                sorted(situation.live),
            )

    def _wanted(
        self, name: PartitionName, partition: PartitionInfo, situation: Situation
    ) -> PartitionInfo | None:
        """A leader that has died or restarted goes before anything that was wished for: what is
        written for a wish begins an epoch, which it would lead."""
        known = self._realm.known(name)
        rules = self._realm.rules(self._realm.image.topics[name[0]])
        decision = wanted_state(partition, situation, rules, known)
        if decision.state is not None:
            return decision.state
        wished = self._wished(name, partition, situation, known)
        if wished is not None:
            return wished
        if decision.ask:
            self._recovering.ask(name, partition.leader_epoch, decision.ask)
        if is_reassigned(partition):
            return next_step(partition, situation, rules.min_isr, known)
        return None

    def _wished(
        self, name: PartitionName, partition: PartitionInfo, situation: Situation, known: Known
    ) -> PartitionInfo | None:
        """What the first wish that is not granted yet wants."""
        while name in self._wishes:
            wish = self._wishes[name][0]
            try:
                wanted = wish.plan(partition, situation, known)
                if wanted is not None:
                    self._room.take(name, partition, wanted)
            except KafkaError as error:
                self._grant(name, error)
                continue
            if wanted is not None:
                self._planning[name] = wish
                return wanted
            self._confirm(name)
        return None

    def _confirm(self, name: PartitionName) -> None:
        """Grants a wish for which nothing has to be written, if this is still the controller: the
        image of one that was deposed may be old."""
        wish = self._take_wish(name)

        def confirmed(result: list[Written] | CoordinationError) -> None:
            if not isinstance(result, CoordinationError):
                wish.done(None)
                return
            self._realm.end_by([result])
            lost = KafkaError(ErrorCode.request_timed_out, str(result))
            wish.done(_deposed() if self._realm.is_over else lost)

        self._coordination.write([self._realm.fence], confirmed)

    def _grant(self, name: PartitionName, error: KafkaError | None) -> None:
        self._take_wish(name).done(error)

    def _take_wish(self, name: PartitionName) -> Wish:
        wishes = self._wishes[name]
        wish = wishes.popleft()
        if not wishes:
            del self._wishes[name]
        return wish

    def _refuse_wishes(self, name: PartitionName) -> None:
        while name in self._wishes:
            error = KafkaError(
                ErrorCode.unknown_topic_or_partition, f"there is no partition {name[0]}-{name[1]}"
            )
            self._grant(name, error)

    # -- afterwards

    def _wrote(self, outcome: Outcome) -> None:
        if self._realm.is_over:
            return
        self._take_over(outcome)
        if outcome.end is not None:
            self._realm.end_by([outcome.end])
            return
        if outcome.failed:
            self._retry_later([change.name for change in outcome.failed])
        unsure = {change.name: change for change in outcome.unsure}
        self.rereading.read(unsure, partial(self._reread, unsure))

    def _reread(self, unsure: dict[PartitionName, Planned], read: list[PartitionName]) -> None:
        """Partitions whose write was lost are looked at again, changed or not; those that could
        not be read, after a while."""
        if not self._realm.is_over:
            for name in read:
                if self._stands(unsure[name]):
                    self._look_again(unsure[name])
            self._marked.update(dict.fromkeys(read))
            unread = sorted(unsure.keys() - set(read))
            if unread:
                self._retry_later(unread)
            self._end_run()

    def _stands(self, change: Planned) -> bool:
        """Whether it was done although nobody was told: what was wished for is granted then, and
        not refused as no longer needed."""
        now = self._realm.partition(change.name)
        return now is not None and _begun_by(now) == _begun_by(change.after)

    def _is_current(self, change: Planned) -> bool:
        return self._realm.partition(change.name) is change.before

    def _take_over(self, outcome: Outcome) -> None:
        by_topic: dict[str, list[Planned]] = {}
        for change in outcome.done:
            if self._is_current(change):
                by_topic.setdefault(change.name[0], []).append(change)
            else:
                outcome.unsure.append(change)
        for name, changes in by_topic.items():
            version = self._realm.image.topics[name].version
            outcomes = {change.name[1]: change.outcome for change in changes}
            version = max(version, outcome.topic_versions.get(name, version))
            self._realm.put_partitions(name, outcomes, version)
            self._dispatch.topic_changed(name, [(c.name[1], c.before) for c in changes])
        for change in outcome.done:
            if change.after.leader != NO_LEADER:
                self._offline.discard(change.name)
            self._look_again(change)

    def _look_again(self, change: Planned) -> None:
        """Where more is to be done: another wish, recovery, a reassignment's next step."""
        name = change.name
        if self._planning.pop(name, None) is not None:
            self._grant(name, None)
        if change.after.leader == NO_LEADER or is_reassigned(change.after) or name in self._wishes:
            self._marked[name] = None

    def _retry_later(self, names: list[PartitionName]) -> None:
        at_ms = self._clock.monotonic_ms() + RETRY_MS
        self._loop.call_at(at_ms, partial(self.mark, names))


def _begun_by(partition: PartitionInfo) -> tuple[object, ...]:
    """What a controller wrote, and nobody changes within the epoch that began with it."""
    holders = (partition.replicas, partition.adding_replicas, partition.removing_replicas)
    return partition.controller_epoch, partition.leader_epoch, partition.leader, holders


def _deposed() -> KafkaError:
    return KafkaError(ErrorCode.not_controller, "another broker is controller now")
