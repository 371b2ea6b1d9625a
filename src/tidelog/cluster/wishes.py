"""What a controller is asked to do with partitions: leaders to move, replicas to move, brokers
to be led away from. Each is a wish that the reconciler grants, or a mark that makes it look."""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial

from tidelog.base.control import ControlledShutdownResponse, RemainingPartition
from tidelog.base.errors import ErrorCode, KafkaError
from tidelog.base.ids import TopicPartition
from tidelog.cluster.balancing import to_move
from tidelog.cluster.dispatch import Dispatch
from tidelog.cluster.elections import Known, Situation, preferred_leader, unclean_leader
from tidelog.cluster.image import NO_LEADER, PartitionInfo
from tidelog.cluster.realm import PartitionName, Realm
from tidelog.cluster.reassignment import cancelled, check_target, is_reassigned, started
from tidelog.cluster.reconciling import Plan, Reconciler, Wish
from tidelog.cluster.requests import ElectionKind, OngoingReassignment, Reassignment
from tidelog.cluster.standing import Results
from tidelog.cluster.writing import Ask, gather

Granted = KafkaError | None


class Wishes:
    def __init__(self, realm: Realm, dispatch: Dispatch, reconciler: Reconciler) -> None:
        self._realm = realm
        self._dispatch = dispatch
        self._reconciler = reconciler

    def held_by(self, broker_ids: Collection[int]) -> list[PartitionName]:
        """The partitions that one of these brokers holds."""
        wanted = set(broker_ids)
        return [
            (name, index)
            for name, topic in self._realm.image.topics.items()
            for index, partition in enumerate(topic.partitions)
            if not wanted.isdisjoint(partition.replicas)
        ]

    # -- leaders

    def elect_leaders(
        self,
        kind: ElectionKind,
        names: Sequence[PartitionName] | None,
        done: Callable[[dict[PartitionName, Granted]], None],
    ) -> None:
        """None is for all partitions; of these, only those that needed it are in the answer."""
        plan = _preferred if kind == "preferred" else _unclean
        wanted = self._all() if names is None else list(dict.fromkeys(names))

        def granted(results: list[Granted]) -> None:
            found = dict(zip(wanted, results, strict=True))
            if names is None:
                found = {name: error for name, error in found.items() if not _is_needless(error)}
            done(found)

        def ask(_read: list[PartitionName]) -> None:
            gather([partial(self._wish, name, plan) for name in wanted], granted)

        # Leaders announce that others are in sync a while after it is so.
        self._reconciler.rereading.read(wanted, ask)

    def balance(self) -> None:
        """Leaderships go back to the preferred replicas where too many are elsewhere."""
        percentage = self._realm.settings().whole("leader.imbalance.per.broker.percentage")
        placed = (
            (TopicPartition(name, index), partition)
            for name, topic in self._realm.image.topics.items()
            for index, partition in enumerate(topic.partitions)
        )
        for moved in to_move(placed, self._realm.situation(), percentage):
            self._wish((moved.topic, moved.partition), _preferred, _ignore)

    def shut_down(
        self, broker_id: int, epoch: int, done: Callable[[ControlledShutdownResponse], None]
    ) -> None:
        broker = self._realm.image.brokers.get(broker_id)
        if broker is None or broker.epoch != epoch:
            done(ControlledShutdownResponse(error_code=ErrorCode.stale_broker_epoch))
            return
        self._realm.shutting_down[broker_id] = epoch
        self._reconciler.mark(self.held_by({broker_id}))
        self._reconciler.when_settled(partial(self._shut_down, broker_id, done))

    def _shut_down(
        self, broker_id: int, done: Callable[[ControlledShutdownResponse], None]
    ) -> None:
        """What nobody else holds who is there stays with it, and is none of the remaining ones:
        there is nothing to wait for."""
        if self._realm.is_over:
            done(ControlledShutdownResponse(error_code=ErrorCode.not_controller))
            return
        situation = self._realm.situation()
        others_there = situation.live.keys() - situation.shutting_down - {broker_id}
        remaining = tuple(
            RemainingPartition(topic=name, index=index)
            for name, topic in self._realm.image.topics.items()
            for index, partition in enumerate(topic.partitions)
            if partition.leader == broker_id and not others_there.isdisjoint(partition.replicas)
        )
        response = ControlledShutdownResponse(error_code=ErrorCode.none, remaining=remaining)
        # This broker itself is told one thing after the other, and this may be one of them.
        others = [other for other in self._realm.image.brokers if other != self._realm.broker_id]
        self._dispatch.when_told(others, lambda: done(response))

    # -- replicas

    def alter_reassignments(self, wanted: Sequence[Reassignment], done: Results[None]) -> None:
        asks: list[Ask[Granted]] = [
            partial(self._wish, (item.topic, item.partition), _reassigned(item)) for item in wanted
        ]
        gather(asks, lambda results: done(list(results)))

    def list_reassignments(
        self, topics: Mapping[str, Sequence[int]] | None
    ) -> list[OngoingReassignment]:
        """Of all topics, or of some partitions; those that are not moving are left out."""
        names = self._all() if topics is None else _names(topics)
        found = [(name, self._realm.partition(name)) for name in names]
        return [
            OngoingReassignment(
                topic=name[0],
                partition=name[1],
                replicas=partition.replicas,
                adding=partition.adding_replicas,
                removing=partition.removing_replicas,
            )
            for name, partition in found
            if partition is not None and is_reassigned(partition)
        ]

    def _all(self) -> list[PartitionName]:
        topics = self._realm.image.topics
        return [(name, i) for name in sorted(topics) for i in range(len(topics[name].partitions))]

    def _wish(self, name: PartitionName, plan: Plan, done: Callable[[Granted], None]) -> None:
        self._reconciler.wish(name, Wish(plan=plan, done=done))


def _names(topics: Mapping[str, Sequence[int]]) -> list[PartitionName]:
    return [(name, index) for name, indexes in topics.items() for index in indexes]


def _preferred(
    partition: PartitionInfo, situation: Situation, known: Known
) -> PartitionInfo | None:
    if partition.leader == partition.replicas[0]:
        raise KafkaError(ErrorCode.election_not_needed, "the preferred replica leads already")
    wanted = preferred_leader(partition, situation, known)
    if wanted is None:
        raise KafkaError(
            ErrorCode.preferred_leader_not_available,
            f"the preferred replica {partition.replicas[0]} is not in sync, or not alive",
        )
    return wanted


def _unclean(partition: PartitionInfo, situation: Situation, known: Known) -> PartitionInfo | None:
    wanted = unclean_leader(partition, situation, known)
    if wanted is None and partition.leader != NO_LEADER:
        raise KafkaError(ErrorCode.election_not_needed, f"the broker {partition.leader} leads it")
    if wanted is None:
        raise KafkaError(ErrorCode.eligible_leaders_not_available, "none of its replicas is alive")
    return wanted


def _reassigned(item: Reassignment) -> Plan:
    def plan(partition: PartitionInfo, situation: Situation, _known: Known) -> PartitionInfo | None:
        if item.replicas is None:
            wanted = cancelled(partition, situation.controller_epoch)
            return None if wanted is partition else wanted
        check_target(partition, item.replicas, situation.live)
        return started(partition, item.replicas, situation.controller_epoch)

    return plan


def _is_needless(error: Granted) -> bool:
    return error is not None and error.code is ErrorCode.election_not_needed


def _ignore(_granted: Granted) -> None:
    """Whether a leadership went back is seen at the next look."""
